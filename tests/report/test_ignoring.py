"""Warnings that are left out: by code, by file, by a comment. Nothing else ever is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from report.report_samples import MISSING, UNKNOWN, sample

from pitcheck.errors import UsageError
from pitcheck.report.codes import CODES
from pitcheck.report.findings.excerpts import MOST_BYTES
from pitcheck.report.ignoring import comments, ignoring, warning_codes, without_ignored
from pitcheck.report.report import Finding, FindingVerdict, Report
from pitcheck.report.text import render

WARNINGS = ["PIT301", "PIT302", "PIT303", "PIT401"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def narrow(code: str, source: str | None = "train/step.py:2") -> Finding:
    return Finding(code=code, verdict="warning", title=f"{code} somewhere", source=source)


REPORT = sample(
    "equivalent",
    narrow("PIT301"),
    narrow("PIT302", "train/head.py:7"),
    narrow("PIT302", "model.layers.0"),
    narrow("PIT303", None),
    bound=-66.0,
)


def left(
    report: Report,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    per_file: Mapping[str, Sequence[str]] | None = None,
) -> tuple[list[str], dict[str, int]]:
    """Return the codes that are shown, and the counts of those that are not."""
    found = without_ignored(report, ignoring(select, ignore, per_file or {}))
    return [finding.code for finding in found.findings], found.ignored


# --- codes and prefixes


@pytest.mark.parametrize(
    ("select", "ignore", "shown"),
    [
        ((), (), ["PIT301", "PIT302", "PIT302", "PIT303"]),
        ((), ("PIT302",), ["PIT301", "PIT303"]),
        ((), (" pit302 ",), ["PIT301", "PIT303"]),
        ((), ("PIT301,PIT303",), ["PIT302", "PIT302"]),
        ((), ("PIT3",), []),
        (("PIT301",), (), ["PIT301"]),
        (("PIT30",), ("PIT301",), ["PIT302", "PIT302", "PIT303"]),
        (("PIT401",), (), []),
    ],
)
def test_codes_and_prefixes(select: Sequence[str], ignore: Sequence[str], shown: list[str]) -> None:
    codes, counts = left(REPORT, select, ignore)
    assert codes == shown
    assert sum(counts.values()) == 4 - len(shown)
    assert list(counts) == sorted(counts)


def test_files() -> None:
    assert left(REPORT, per_file={"train/*": ["PIT3"]}) == (
        ["PIT302", "PIT303"],
        {"PIT301": 1, "PIT302": 1},
    )
    assert left(REPORT, per_file={"train/step.py": ["PIT302"], "model*": ["PIT3"]})[1] == {}
    both = {"*.py": ["PIT301"], "train/h*.py": ["PIT302"]}
    assert left(REPORT, per_file=both)[1] == {"PIT301": 1, "PIT302": 1}


def test_a_file_below_the_working_directory_is_matched_relative_to_it(folder: Path) -> None:
    report = sample("equivalent", narrow("PIT301", f"{folder}/train/step.py:2"), bound=-66.0)
    assert left(report, per_file={"train/*": ["PIT301"]})[1] == {"PIT301": 1}


@pytest.mark.parametrize("code", [code.code for code in CODES if code.verdict != "warning"])
def test_what_is_more_than_a_warning_is_refused(code: str) -> None:
    for arguments in (((code,), (), {}), ((), (code,), {}), ((), (), {"*": [code]})):
        with pytest.raises(UsageError, match=f"{code}, which can be .*only warnings.*--baseline"):
            ignoring(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("prefix", ["PIT", "PIT1", "PIT2", "PIT0", "PIT9", "PIT10"])
def test_a_prefix_of_such_a_code_is_refused(prefix: str) -> None:
    with pytest.raises(UsageError, match=f"'{prefix}' names PIT"):
        warning_codes(prefix, "ignore")


@pytest.mark.parametrize("text", ["PIT304", "PIT7", "PI", "", "E501", "PIT3*", "PIT301 PIT302"])
def test_what_is_no_code_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--select: .* is no code and no prefix of one"):
        warning_codes(text, "--select")
    with pytest.raises(UsageError, match="the nearest is PIT301"):
        warning_codes("PIT3O1", "--select")


@given(
    st.lists(st.sampled_from(CODES), max_size=6),
    st.sampled_from(["mismatch", "invalid", "inconclusive", "nothing-checked", "imprecise"]),
)
def test_no_finding_of_another_verdict_is_left_out(
    codes: list[object], verdict: FindingVerdict
) -> None:
    findings = tuple(
        Finding(code=code.code, verdict=verdict, title="t", source="a.py:1")  # type: ignore[attr-defined]
        for code in codes
    )
    report = Report(verdict="inconclusive", findings=findings)
    found = without_ignored(report, ignoring(("PIT401",), ("PIT3",), {"*": ["PIT3"]}))
    assert (found.findings, found.ignored) == (findings, {})


def test_a_warning_of_a_code_that_may_be_more_is_always_shown() -> None:
    report = sample("equivalent", narrow("PIT008"), narrow("PIT301"), bound=-66.0)
    assert left(report, select=["PIT302"]) == (["PIT008"], {"PIT301": 1})


def test_the_text_counts_them_and_the_verdict_stays() -> None:
    found = without_ignored(REPORT, ignoring((), ("PIT302",), {}))
    text = "\n".join(line.text for line in render(found))
    assert "2 warnings ignored (2 PIT302)" in text
    assert "warning[PIT302]" not in text
    assert (found.verdict, found.exit_code) == ("equivalent", 0)
    bad = sample("mismatch", MISSING, UNKNOWN, narrow("PIT301"))
    assert without_ignored(bad, ignoring((), ("PIT3",), {})).exit_code == 1


# --- comments


def source(line: str, file: str = "train/step.py") -> None:
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text(f"import torch\n{line}\nmore = 1  # pitcheck: ignore[PIT302]\n")


ONE = sample("equivalent", narrow("PIT301"), bound=-66.0)


@pytest.mark.parametrize(
    "comment",
    [
        "# pitcheck: ignore[PIT301]",
        "#pitcheck:ignore[PIT301]",
        "#  pitcheck :  ignore  [ pit301 , PIT302 ]",
        "# noqa: E501  # pitcheck: ignore[PIT302]  # pitcheck: ignore[PIT301] because",
        "# pitcheck: ignore[PIT3]",
    ],
)
def test_a_comment_leaves_the_warning_of_its_line_out(comment: str) -> None:
    source(f"y = x.sum()  {comment}")
    assert left(ONE) == ([], {"PIT301": 1})


@pytest.mark.parametrize(
    "line",
    [
        "y = x.sum()",
        "y = x.sum()  # pitcheck: ignore[PIT302]",
        "y = x.sum()  # pitcheck: ignored[PIT301]",
        "y = x.sum()  # pytcheck: ignore[PIT301]",
        "y = x.sum()  pitcheck: ignore[PIT301]",
    ],
)
def test_any_other_line_leaves_nothing_out(line: str) -> None:
    source(line)
    assert left(ONE) == (["PIT301"], {})


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        ("# pitcheck: ignore", "names no code"),
        ("# pitcheck: ignore[]", "names no code"),
        ("# pitcheck: ignore[ ]", "names no code"),
        ("# pitcheck: ignore[PIT999]", "'PIT999' is no code"),
        ("# pitcheck: ignore[PIT104]", "PIT104, which can be mismatch"),
        ("# pitcheck: ignore[PIT]", "names PIT001"),
        ("# pitcheck: ignore[PIT302,]", "'' is no code"),
    ],
)
def test_a_comment_that_cannot_be_used_is_a_warning_itself(comment: str, said: str) -> None:
    source(f"y = x.sum()  {comment}")
    twice = replace(ONE, findings=(*ONE.findings, *ONE.findings))
    found = without_ignored(twice, ignoring((), (), {}))
    assert [finding.code for finding in found.findings] == ["PIT301", "PIT301", "PIT401"]
    fault = found.findings[2]
    assert said in fault.title
    assert (fault.verdict, fault.source) == ("warning", "train/step.py:2")
    assert found.exit_code == 0
    assert left(twice, ignore=["PIT401"]) == (["PIT301", "PIT301"], {"PIT401": 1})


def test_right_codes_beside_wrong_ones_count() -> None:
    source("y = x.sum()  # pitcheck: ignore[PIT301, PIT104]")
    assert left(ONE) == (["PIT401"], {"PIT301": 1})


@pytest.mark.parametrize("verdict", ["mismatch", "invalid", "inconclusive", "imprecise"])
def test_a_comment_leaves_only_warnings_out(verdict: FindingVerdict) -> None:
    source("y = x.sum()  # pitcheck: ignore[PIT301]")
    report = Report(verdict="inconclusive", findings=(replace(narrow("PIT301"), verdict=verdict),))
    assert left(report) == (["PIT301"], {})


def test_files_that_are_not_read(folder: Path) -> None:
    line = "y = x.sum()  # pitcheck: ignore[PIT301]"
    outside = folder.parent / "outside.py"
    outside.write_text(f"\n{line}\n")
    source(line)
    Path("link.py").symlink_to(outside)
    Path("large.py").write_text(f"\n{line}\n" + "#" * MOST_BYTES)
    Path("binary.py").write_bytes(f"\n{line}\n".encode() + b"\xff")
    for file in (str(outside), "../outside.py", "link.py", "large.py", "binary.py", "none.py"):
        report = sample("equivalent", narrow("PIT301", f"{file}:2"), bound=-66.0)
        assert left(report) == (["PIT301"], {}), file
    beyond = sample("equivalent", narrow("PIT301", "train/step.py:99"), bound=-66.0)
    assert left(beyond) == (["PIT301"], {})
    outside.unlink()


@given(st.text(max_size=80))
def test_every_line_is_read_without_an_error(line: str) -> None:
    for text in comments(f"{line} # pitcheck: ignore[{line}]"):
        for part in text.split(","):
            with suppress(UsageError):
                assert warning_codes(part, "ignore") <= set(WARNINGS)
