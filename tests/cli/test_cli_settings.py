"""Settings in files, ignored warnings and baselines, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.cli_plans import parallel, reference
from conftest import Call, Checker

from pitcheck.plan.files import write_plan
from pitcheck.report.report import Finding, Report, Shown

FILES = ("r.plan.json", "p.plan.json")
SHOWN = Shown("y", (0,), "1", "2", "by hand")
WARNING = Finding(code="PIT301", verdict="warning", title="w", source="train.py:2")
WRONG = Finding(code="PIT104", verdict="mismatch", title="t", operator="o", output="y")
MISMATCH = Report(
    verdict="mismatch", shown=SHOWN, findings=(WRONG,), differing=("y",), unproven=("y",)
)


@pytest.fixture(autouse=True)
def plans(folder: Path, checker: Checker) -> None:
    (folder / "pyproject.toml").unlink()
    write_plan(reference(), FILES[0])
    write_plan(parallel(), FILES[1])
    checker(Report(verdict="equivalent", findings=(WARNING,)))


def settings(text: str, folder: Path = Path()) -> None:
    (folder / "pitcheck.toml").write_text(text)


# --- files


def test_keys_stand_at_the_top_of_the_own_file(call: Call) -> None:
    settings('ignore = ["PIT301"]\nquiet = false\n')
    assert "1 warning ignored (1 PIT301)" in call("check", *FILES).out
    assert "1 warning ignored" not in call("check", *FILES, "--ignore", "PIT302").out


def test_the_nearest_folder_with_settings_counts(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings("quiet = true")
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "pyproject.toml").write_text("[tool.other]\n")
    monkeypatch.chdir(inner)
    pair = [str(folder / name) for name in FILES]
    assert len(call("check", *pair).out.splitlines()) == 1
    (folder / "a" / "pyproject.toml").write_text("[tool.pitcheck]\n")
    assert len(call("check", *pair).out.splitlines()) > 1


def test_two_files_in_one_folder_are_refused_by_name(call: Call, folder: Path) -> None:
    settings("")
    (folder / "pyproject.toml").write_text("[tool.pitcheck]\n")
    result = call("check", *FILES)
    assert (result.code, result.out) == (2, "")
    assert str(folder / "pitcheck.toml") in result.err
    assert str(folder / "pyproject.toml") in result.err
    (folder / "pyproject.toml").write_text("[tool.other]\n")
    assert call("check", *FILES).code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tirals = 3", "unknown key 'tirals'; the nearest is 'trials'"),
        ("per-file-ignore = {}", "the nearest is 'per-file-ignores'"),
        ("[tool.pitcheck]\ntrials = 3", "keys stand at the top, without [tool.pitcheck]"),
        ("write-baseline = 'b'", "is given on the command line alone"),
        ("trials = 'many'", "must be a whole number of at least 1"),
        ("shapes = 'small'", "must be one of 'reduced', 'full'"),
        ("quiet = 'yes'", "quiet is 'yes'; it must be true or false"),
        ("ignore = 'PIT301'", "ignore is 'PIT301'; it must be a list of texts"),
        ("ignore = ['PIT104']", "PIT104, which can be mismatch"),
        ("select = ['PIT2']", "PIT200, which can be inconclusive"),
        ("per-file-ignores = ['a']", "it must be a table of globs"),
        ("per-file-ignores = {a = 'PIT301'}", "'PIT301'; it must be a list of codes"),
        ("per-file-ignores = {a = ['PIT001']}", "PIT001, which can be invalid"),
        ("max-memory = [1]", "one text or number (SIZE)"),
        ("trials = ", "is not TOML"),
    ],
)
def test_wrong_settings_are_refused_with_what_is_allowed(call: Call, text: str, said: str) -> None:
    settings(text)
    result = call("check", *FILES)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    if "which can be" not in said:
        assert "pitcheck.toml" in result.err


def test_warnings_of_a_file_are_ignored(call: Call) -> None:
    settings('[per-file-ignores]\n"tr*.py" = ["PIT3"]\n')
    assert "1 warning ignored" in call("check", *FILES).out
    settings('[per-file-ignores]\n"model*.py" = ["PIT3"]\n')
    assert "warning[PIT301]" in call("check", *FILES).out


# --- options and comments


def test_select_and_ignore_take_lists_with_commas(call: Call) -> None:
    ignored = call("check", *FILES, "--ignore", "PIT302,PIT301", "--output", "json")
    assert json.loads(ignored.out)["ignored"] == {"PIT301": 1}
    assert json.loads(ignored.out)["findings"] == []
    assert "warning[PIT301]" in call("check", *FILES, "--select", "PIT301").out
    assert "1 warning ignored" in call("check", *FILES, "--select", "PIT302").out


@pytest.mark.parametrize("option", ["--select", "--ignore"])
def test_what_is_more_than_a_warning_is_refused(call: Call, option: str) -> None:
    result = call("check", *FILES, option, "PIT1")
    assert (result.code, result.out) == (2, "")
    assert "--baseline" in result.err


def test_a_comment_on_the_line(call: Call) -> None:
    Path("train.py").write_text("import torch\ny = x.sum()  # pitcheck: ignore[PIT301]\n")
    assert "1 warning ignored" in call("check", *FILES).out
    Path("train.py").write_text("import torch\ny = x.sum()  # pitcheck: ignore\n")
    result = call("check", *FILES)
    assert "warning[PIT301]" in result.out
    assert "warning[PIT401]" in result.out
    assert result.code == 0


# --- baselines


def test_a_baseline_is_written_and_accepts_what_it_lists(call: Call, checker: Checker) -> None:
    checker(MISMATCH)
    written = call("check", *FILES, "--write-baseline", "b.json")
    assert written.code == 1
    known = call("check", *FILES, "--baseline", "b.json", "--output", "json")
    report = json.loads(known.out)
    assert (known.code, report["verdict"], report["all_known"]) == (0, "mismatch", True)
    settings('baseline = "b.json"')
    assert call("check", *FILES, "-q").out.startswith("mismatch: ")
    assert call("check", *FILES).code == 0


def test_what_is_not_in_it_fails(call: Call, checker: Checker) -> None:
    checker(MISMATCH)
    call("check", *FILES, "--write-baseline", "b.json")
    other = Finding(code="PIT104", verdict="mismatch", title="t", operator="other", output="y")
    checker(
        Report(
            verdict="mismatch",
            shown=SHOWN,
            findings=(WRONG, other),
            differing=("y",),
            unproven=("y",),
        )
    )
    assert call("check", *FILES, "--baseline", "b.json").code == 1
    checker(KeyError("x"))
    assert call("check", *FILES, "--baseline", "b.json").code == 2
    checker(MemoryError())
    assert call("check", *FILES, "--baseline", "b.json").code == 3
    Path(FILES[1]).write_text("{}")
    assert call("check", *FILES, "--baseline", "b.json").code == 2


def test_the_exit_code_of_writing_is_that_of_the_known_baseline(
    call: Call, checker: Checker
) -> None:
    checker(MISMATCH)
    both = ("--baseline", "b.json", "--write-baseline", "b.json")
    assert call("check", *FILES, *both).code == 1
    assert call("check", *FILES, *both).code == 0


def test_what_may_not_be_accepted_is_not_written(call: Call, checker: Checker) -> None:
    checker(MemoryError())
    result = call("check", *FILES, "--write-baseline", "b.json")
    assert result.code == 3
    assert "no baseline is written: PIT203" in result.err
    assert not Path("b.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--baseline", "none.json"), "cannot read baseline none.json"),
        (("--baseline", FILES[0]), "no baseline"),
        (("--baseline", ""), "cannot read baseline"),
        (("--write-baseline", "none/b.json"), "does not exist"),
        (("--write-baseline", "b.json", "--output", "json:b.json"), "two outputs go to b.json"),
        (("--write-baseline", "b.json", "--no-explain"), "--no-explain"),
    ],
)
def test_wrong_files_are_refused_before_the_check(
    call: Call, checker: Checker, arguments: tuple[str, ...], said: str
) -> None:
    checker(AssertionError("never reached"))
    result = call("check", *FILES, *arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
