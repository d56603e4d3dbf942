"""Every way out of the command line has its exit code, and 1 is left to a mismatch alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.cli_plans import parallel, reference
from click.testing import CliRunner
from conftest import Call, Checker
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pitcheck.base.options import Options
from pitcheck.cli import cli
from pitcheck.errors import BudgetError, PlanError, ShapeError, UnsupportedError, UsageError
from pitcheck.plan.files import write_plan
from pitcheck.report.report import EXIT_CODES, Finding, Report, Shown, Verdict

SHOWN = Shown("y", (0,), "1", "2", "by hand")
PITCHECK = (sys.executable, "-m", "pitcheck")


@pytest.fixture(autouse=True)
def plans(folder: Path) -> None:
    write_plan(reference(), "r.plan.json")
    write_plan(parallel(), "p.plan.zst")


FILES = ("r.plan.json", "p.plan.zst")


# --- verdicts and errors


@pytest.mark.parametrize("verdict", list(EXIT_CODES))
@pytest.mark.parametrize("quiet", [False, True])
def test_a_verdict_has_its_exit_code(
    call: Call, checker: Checker, verdict: Verdict, quiet: bool
) -> None:
    checker(Report(verdict=verdict, shown=SHOWN if verdict == "mismatch" else None))
    result = call("check", *FILES, *(["--quiet"] if quiet else []))
    assert result.code == EXIT_CODES[verdict]
    assert result.out.splitlines()[0].startswith(f"{verdict}:")
    assert result.err == ""


@pytest.mark.parametrize(
    ("options", "explain"), [((), True), (("--explain",), True), (("--no-explain",), False)]
)
def test_a_mismatch_is_explained_unless_that_is_not_asked_for(
    call: Call, checker: Checker, options: tuple[str, ...], explain: bool
) -> None:
    checker(Report(verdict="mismatch", shown=SHOWN))
    assert call("check", *FILES, *options).code == 1
    assert sys.modules["pitcheck.engine.check"].options.explain is explain  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("error", "exit_code", "code"),
    [
        (PlanError("bad", "operators[1]"), 2, "PIT001"),
        (ShapeError("bad", "operators[1]"), 2, "PIT003"),
        (UnsupportedError("no meaning"), 3, "PIT200"),
        (BudgetError("too much"), 3, "PIT203"),
        (MemoryError(), 3, "PIT203"),
        (KeyError("x"), 2, "PIT900"),
        (RecursionError("deep"), 2, "PIT900"),
        (EOFError("short"), 2, "PIT900"),
        (StopIteration(), 2, "PIT900"),
        (OSError(5, "Input/output error"), 2, "PIT900"),
    ],
)
def test_what_stops_a_check_is_a_finding_of_the_report(
    call: Call, checker: Checker, error: Exception, exit_code: int, code: str
) -> None:
    checker(error)
    result = call("check", *FILES, "--output", "json:-")
    assert result.code == exit_code
    report = json.loads(result.out)
    assert report["exit_code"] == exit_code
    assert [finding["code"] for finding in report["findings"]] == [code]
    assert ("Traceback" in result.err) == (code == "PIT900")


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [(UsageError("no GPU"), 2), (KeyboardInterrupt(), 130), (SystemExit(1), 141)],
)
def test_what_is_not_about_the_plans_is_a_message(
    call: Call, checker: Checker, error: BaseException, exit_code: int
) -> None:
    checker(error)
    result = call("check", *FILES)
    assert result.code == exit_code
    assert result.out == ""


def test_click_runner_sees_the_same_codes(checker: Checker) -> None:
    checker(KeyError("x"))
    assert CliRunner().invoke(cli, ["check", *FILES]).exit_code == 2
    checker(Report(verdict="mismatch", shown=SHOWN))
    assert CliRunner().invoke(cli, ["check", *FILES]).exit_code == 1
    assert CliRunner().invoke(cli, ["check"]).exit_code == 2
    assert CliRunner().invoke(cli, ["--help"]).exit_code == 0


def test_a_broken_precision_rule_has_an_exit_code_of_its_own_where_it_is_wanted(
    call: Call, checker: Checker
) -> None:
    finding = Finding(code="PIT301", verdict="imprecise", title="t")
    checker(Report(verdict="equivalent", findings=(finding,)))
    result = call("check", *FILES)
    assert result.code == 4
    assert "error[PIT301]: t" in result.out
    assert "exit code 4" in result.out
    checker(Report(verdict="inconclusive", findings=(finding,)))
    assert call("check", *FILES).code == 3


# --- files that are no plans


BAD_FILES: dict[str, bytes | None] = {
    "missing.plan.json": None,
    "empty.plan.json": b"",
    "truncated.plan.json": b'{"format": "pitcheck.plan/1", "mesh": [',
    "other.plan.json": b"[]",
    "version.plan.json": b'{"format": "pitcheck.plan/999"}',
    "nan.plan.json": b'{"format": "pitcheck.plan/1", "mesh": NaN}',
    "deep.plan.json": b"[" * 100_000,
    "noise.plan.zst": bytes(range(256)),
    "empty.plan.zst": b"",
    "format.onnx": b"x",
    "noise": b"x",
    "\udcff.plan.json": None,
}


@pytest.mark.parametrize("name", list(BAD_FILES))
@pytest.mark.parametrize("first", [True, False])
def test_an_unreadable_plan_is_invalid_and_named(
    call: Call, checker: Checker, name: str, first: bool
) -> None:
    checker(AssertionError("never reached"))
    content = BAD_FILES[name]
    if content is not None:
        Path(name).write_bytes(content)
    pair = (name, FILES[1]) if first else (FILES[0], name)
    result = call("check", *pair, "--output", "json:-")
    assert result.code == 2
    findings = json.loads(result.out)["findings"]
    assert [finding["code"] for finding in findings] == ["PIT001"]
    assert name.encode("utf-8", "backslashreplace").decode() in findings[0]["title"]
    assert result.err == ""


def test_both_unreadable_plans_are_named(call: Call) -> None:
    result = call("check", "a.plan.json", ".")
    assert result.code == 2
    assert "a.plan.json" in result.out
    assert "this is a directory" in result.out


# --- wrong commands


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Usage"),
        (("plan",), "Usage"),
        (("chekc",), "chekc"),
        (("check",), "REFERENCE"),
        (("check", "a"), "PARALLEL"),
        (("check", *FILES, "x"), "x"),
        (("check", *FILES, "--fast"), "--fast"),
        (("check", *FILES, "--trials", "0"), "--trials"),
        (("check", *FILES, "--trials", "many"), "--trials"),
        (("check", *FILES, "--seed", "-1"), "--seed"),
        (("check", *FILES, "--seed", str(2**128)), "--seed"),
        (("check", *FILES, "--backend", "torch"), "auto"),
        (("check", *FILES, "--shapes", "tiny"), "reduced"),
        (("check", *FILES, "--coordinates", "some"), "full"),
        (("check", *FILES, "--jobs", "0"), "--jobs"),
        (("check", *FILES, "--max-memory", "much"), "4GiB"),
        (("check", *FILES, "--max-memory", "-4GB"), "4GiB"),
        (("check", *FILES, "--max-memory", "10"), "one megabyte"),
        (("check", *FILES, "--error-bound", "2^64"), "2^-64"),
        (("check", *FILES, "--error-bound", "0"), "2^-64"),
        (("check", *FILES, "--error-bound", "1"), "2^-64"),
        (("check", *FILES, "--error-bound", "nan"), "2^-64"),
        (("check", *FILES, "--output", "pdf:x"), "text, json"),
        (("check", *FILES, "--output", "json:none/x"), "does not exist"),
        (("check", *FILES, "--output", "sarif:"), "no file"),
        (
            ("check", *FILES, "--output", "sarif", "--output", "github:-"),
            "two outputs go to standard output",
        ),
        (("check", *FILES, "--output", "json:-", "--output", "text:-"), "two outputs"),
        (("check", *FILES, "--output", "json:a", "--output", "text:./a"), "two outputs"),
        (("check", *FILES, "--precision", "strict"), "warn"),
        (("check", *FILES, "--witness-directory", "none"), "create it"),
        (("check", *FILES, "--quiet", "--verbose"), "exclude each other"),
        (("explain", "PIT999"), "PIT104"),
        (("replay",), "WITNESS"),
        (("replay", "none.witness.json"), "no such file"),
        (("plan", "show"), "FILE"),
        (("plan", "validate"), "FILES"),
        (("plan", "show", "none.plan.json"), "no such file"),
        (("plan", "validate", "none.plan.json"), "no such file"),
        (("plan", "convert", "r.plan.json"), "TARGET"),
        (("plan", "convert", "r.plan.json", "x.json"), ".plan.json"),
        (("plan", "convert", "r.plan.json", "none/x.plan.json"), "none/x.plan.json"),
    ],
)
def test_a_wrong_command_is_exit_2_with_a_message_on_stderr(
    call: Call, checker: Checker, arguments: tuple[str, ...], said: str
) -> None:
    checker(Report(verdict="mismatch", shown=SHOWN))
    result = call(*arguments)
    assert result.code == 2
    assert result.out == ""
    assert said in result.err
    assert "Traceback" not in result.err


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.text(max_size=12)
        | st.sampled_from(
            ["check", "plan", "show", "explain", "--output", "--seed", "-q", "--", "-"]
        ),
        min_size=1,
        max_size=6,
    )
)
def test_junk_never_exits_with_1_and_never_with_a_traceback(
    call: Call, arguments: list[str]
) -> None:
    if {"demo", "doctor"} & set(arguments):
        return
    result = call(*arguments)
    assert result.code in (0, 2)
    assert "Traceback" not in result.err
    assert result.code == 0 or result.err or "PIT001" in result.out


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=15))
def test_junk_numbers_are_refused_or_sound(call: Call, checker: Checker, text: str) -> None:
    checker(Report(verdict="equivalent"))
    for option in ("--error-bound", "--max-memory"):
        result = call("check", *FILES, f"{option}={text}")
        assert result.code in (0, 2)
        if result.code == 0:
            options = sys.modules["pitcheck.engine.check"].options
            assert options.error_bound_log2 < 0
            assert options.max_memory >= 10**6


# --- the options that reach the checker


def given_options() -> Options:
    options = sys.modules["pitcheck.engine.check"].options
    assert isinstance(options, Options)
    return options


def test_options_reach_the_checker(call: Call, checker: Checker) -> None:
    checker(Report(verdict="equivalent"))
    call("check", *FILES)
    assert given_options() == Options(
        jobs=None,
        cache_directory=Path(".pitcheck"),
        witness_directory=Path(".pitcheck/witnesses"),
    )
    words = (
        "--error-bound 1e-20 --trials 4 --seed 9 --backend numpy --shapes full --coordinates "
        "full --jobs 2 --max-memory 500MB --no-cache --witness-directory .."
    )
    call("check", *FILES, *words.split(), "--precision", "off")
    options = given_options()
    assert options.error_bound_log2 == pytest.approx(-66.4385619)
    assert options == Options(
        options.error_bound_log2, 4, 9, "numpy", "full", "full", 2, 500_000_000, Path(".."), "off"
    )


@pytest.mark.parametrize(
    ("text", "log2"),
    [
        ("2^-64", -64),
        ("2**-30", -30),
        ("2^-0.5", -0.5),
        ("0.5", -1),
        ("1e-400", -1328.7712),
        (" 0.25 ", -2),
        ("2^-100000", -100000),
    ],
)
def test_error_bounds(call: Call, checker: Checker, text: str, log2: float) -> None:
    checker(Report(verdict="equivalent"))
    assert call("check", *FILES, "--error-bound", text).code == 0
    assert given_options().error_bound_log2 == pytest.approx(log2)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GB", 4 * 10**9),
        ("4GiB", 4 << 30),
        ("1.5g", 1_500_000_000),
        ("2000000", 2_000_000),
        ("512 MiB", 512 << 20),
    ],
)
def test_sizes(call: Call, checker: Checker, text: str, size: int) -> None:
    checker(Report(verdict="equivalent"))
    assert call("check", *FILES, "--max-memory", text).code == 0
    assert given_options().max_memory == size


# --- files written


def test_reports_are_written_whole_or_not_at_all(
    call: Call, checker: Checker, folder: Path
) -> None:
    checker(
        Report(
            verdict="mismatch",
            shown=SHOWN,
            findings=(Finding(code="PIT100", verdict="mismatch", title="t"),),
        )
    )
    result = call("check", *FILES, "--output", "json:a.json", "--output", "text:a.txt")
    assert result.code == 1
    assert result.err == ""
    assert json.loads(Path("a.json").read_text())["verdict"] == "mismatch"
    assert Path("a.txt").read_text() == result.out
    assert sorted(each.name for each in folder.iterdir()) == [
        "a.json",
        "a.txt",
        "p.plan.zst",
        "pyproject.toml",
        "r.plan.json",
    ]


def test_reports_for_scanners_name_the_files_of_the_command(call: Call, checker: Checker) -> None:
    checker(
        Report(
            verdict="mismatch",
            shown=SHOWN,
            findings=(Finding(code="PIT100", verdict="mismatch", title="t"),),
        )
    )
    result = call("check", *FILES, "--output", "sarif:a.sarif", "--output", "github")
    assert (result.code, result.err) == (1, "")
    assert result.out.startswith("::error file=p.plan.zst,title=PIT100%3A t::")
    assert (
        json.loads(Path("a.sarif").read_text())["runs"][0]["results"][0]["locations"][0][
            "physicalLocation"
        ]["artifactLocation"]["uri"]
        == "p.plan.zst"
    )
    assert "file=none.toml," in call("check", "none.toml", "--output", "github").out


def test_a_page_names_the_files_of_the_command_and_stands_beside_other_reports(
    call: Call, checker: Checker
) -> None:
    checker(
        Report(
            verdict="mismatch",
            shown=SHOWN,
            findings=(Finding(code="PIT100", verdict="mismatch", title="a < b"),),
        )
    )
    result = call("check", *FILES, "--output", "html:a.html", "--output", "text", "--quiet")
    assert (result.code, result.err) == (1, "")
    assert result.out.startswith("mismatch: ")
    page = Path("a.html").read_text(encoding="utf-8")
    assert "<code>r.plan.json</code> against <code>p.plan.zst</code>" in page
    assert "a &lt; b" in page
    assert call("check", *FILES, "--output", "html").out == page


def test_a_mismatch_whose_report_cannot_be_written_is_still_exit_1(
    call: Call, checker: Checker, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker(
        Report(
            verdict="mismatch",
            shown=SHOWN,
            findings=(Finding(code="PIT100", verdict="mismatch", title="t"),),
        )
    )

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    result = call("check", *FILES, "--output", "json:a.json")
    assert result.code == 1
    assert "a.json: No space left on device" in result.err
    assert "mismatch: " in result.out


def test_a_report_that_cannot_be_written_is_exit_2_but_printed(
    call: Call, checker: Checker, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    checker(Report(verdict="equivalent"))
    before = sorted(folder.iterdir())

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    result = call("check", *FILES, "--output", "json:a.json")
    assert result.code == 2
    assert "a.json: No space left on device" in result.err
    assert result.out.startswith("equivalent")
    assert sorted(folder.iterdir()) == before


# --- whole processes


def process(*arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PITCHECK, *arguments], capture_output=True, text=True, check=False, timeout=60, **settings
    )  # type: ignore[call-overload,no-any-return]


def test_a_process_exits_as_main_returns() -> None:
    assert process("--version").returncode == 0
    missing = process("check", "a", "b")
    assert (missing.returncode, missing.stderr) == (2, "")
    assert process("check").returncode == 2


def test_stdout_in_ascii_takes_any_name() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    result = process("check", "λ\x1b[31m", "b", env=environment)
    assert result.returncode == 2
    assert "\x1b" not in result.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_stdout_is_exit_2() -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        for arguments in (["explain", "PIT104"], ["check", "a", "b"]):
            result = subprocess.run(
                [*PITCHECK, *arguments],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                timeout=60,
            )
            assert result.returncode == 2
            assert "No space left" in result.stderr
            assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code"), [(["check", "a", "b"], 2), (["explain"], 0), (["--help"], 141)]
)
def test_a_reader_that_has_gone_makes_no_noise(arguments: list[str], code: int) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        result = subprocess.run(
            [*PITCHECK, *arguments],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        os.close(write)
    assert (result.returncode, result.stderr) == (code, "")


def test_an_interrupt_is_130(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.plan.json")
    # A process started in the background of a shell ignores interrupts, and so would its children.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        waiting = subprocess.Popen(
            [*PITCHECK, "check", "pipe.plan.json", "b"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with waiting:
        # returns when the process has opened it for reading
        writer = os.open(tmp_path / "pipe.plan.json", os.O_WRONLY)
        waiting.send_signal(signal.SIGINT)
        try:
            waiting.wait(30)
        finally:
            waiting.kill()
            os.close(writer)
    assert waiting.returncode == 130


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from pitcheck.cli import main; main(['--help']); "
        "print(sorted({n.split('.')[0] for n in sys.modules}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = result.stdout.splitlines()[-1]
    assert "'click'" in loaded
    for heavy in (
        "numpy",
        "rich",
        "msgspec",
        "networkx",
        "galois",
        "mpmath",
        "zstandard",
        "cupy",
        "numba",
    ):
        assert f"'{heavy}'" not in loaded
