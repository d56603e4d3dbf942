"""Baselines: what a file lists is accepted, and nothing else, whatever it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from report.report_samples import (
    IMPRECISE,
    INTERNAL,
    MISSING,
    NOTHING,
    NOWHERE,
    ODD,
    RENDEZVOUS,
    UNREADABLE,
    sample,
)
from syrupy.assertion import SnapshotAssertion

from pitcheck.errors import UsageError
from pitcheck.report import github, sarif
from pitcheck.report.baseline import (
    MOST_BYTES,
    NEVER,
    SCHEMA,
    Accepted,
    encode,
    held_against,
    read_baseline,
    refusal,
)
from pitcheck.report.codes import CODES
from pitcheck.report.fingerprint import fingerprints
from pitcheck.report.json import decode
from pitcheck.report.json import encode as encode_report
from pitcheck.report.report import Finding, Report, TriedRepair, Verdict
from pitcheck.report.text import render

FILE = "known.json"
OUTPUTS = ("layers.3.attention_norm.weight.grad", "w.grad")
OPEN = Finding(
    code="PIT202",
    verdict="inconclusive",
    title="'b' could not be proven: over numbers modulo a prime both plans differ",
    output="b",
)


def found(*findings: Finding, verdict: Verdict = "mismatch", **fields: Any) -> Report:
    """A report as the check makes it beside a baseline."""
    outputs = OUTPUTS if verdict == "mismatch" else ()
    how = {"differing": outputs, "unproven": outputs, **fields}
    return replace(sample(verdict, *findings), **how)


KNOWN = found(MISSING, NOWHERE)


def read(data: bytes, folder: Path) -> Accepted:
    (folder / FILE).write_bytes(data)
    return read_baseline(str(folder / FILE))


def held(report: Report, of: Report, folder: Path) -> Report:
    """Hold a report against the baseline that another one gave."""
    return held_against(report, read(encode(of), folder), FILE)


# --- what is accepted


def test_known_findings_are_accepted_and_the_verdict_stays(tmp_path: Path) -> None:
    report = held(KNOWN, KNOWN, tmp_path)
    assert (report.verdict, report.exit_code, report.all_known) == ("mismatch", 0, True)
    assert all(finding.known for finding in report.findings)
    assert report.baseline is not None
    assert (report.baseline.known, report.baseline.gone, report.baseline.new_outputs) == (2, (), ())
    text = [line.text for line in render(report)]
    assert text[0].startswith("mismatch: ")
    assert "all of that is known (2 findings, exit code 0)" in " ".join(text)
    assert "2 known findings of baseline known.json" in text
    assert "known error[PIT104]: " in "\n".join(text)


def test_warnings_neither_fail_nor_stand_in_the_file(tmp_path: Path) -> None:
    report = found(MISSING, RENDEZVOUS)
    accepted = read(encode(report), tmp_path)
    assert [entry.code for entry in accepted.findings] == ["PIT104"]
    assert held_against(report, accepted, FILE).exit_code == 0


def test_a_new_line_seed_or_element_is_the_same_finding(tmp_path: Path) -> None:
    moved = replace(MISSING, source="model/norm.py:77", element=(0, 0), parallel_value="9")
    assert held(replace(found(moved, NOWHERE), seed=8), KNOWN, tmp_path).exit_code == 0


def test_a_precision_rule_is_accepted(tmp_path: Path) -> None:
    report = found(IMPRECISE, verdict="equivalent")
    assert report.exit_code == 4
    assert held(report, report, tmp_path).exit_code == 0
    other = found(replace(IMPRECISE, operator="o"), verdict="equivalent")
    assert held(other, report, tmp_path).exit_code == 4


def test_an_output_that_is_not_proven_is_accepted(tmp_path: Path) -> None:
    report = found(OPEN, verdict="inconclusive", unproven=("b",))
    assert report.exit_code == 3
    assert held(report, report, tmp_path).exit_code == 0


# --- what is not


def test_a_new_finding_fails(tmp_path: Path) -> None:
    for new in (ODD, replace(MISSING, ranks=(0, 1)), replace(MISSING, output="w.grad"), OPEN):
        report = held(found(MISSING, NOWHERE, new), KNOWN, tmp_path)
        assert (report.exit_code, report.all_known) == (1, False), new
        assert [finding.known for finding in report.findings] == [True, True, False]


def test_the_same_finding_once_more_fails(tmp_path: Path) -> None:
    assert held(found(MISSING, NOWHERE, MISSING), KNOWN, tmp_path).exit_code == 1
    twice = found(MISSING, MISSING)
    assert held(twice, twice, tmp_path).exit_code == 0


def test_an_output_that_differs_beside_the_known_ones_fails(tmp_path: Path) -> None:
    wider = (*OUTPUTS, "a.grad")
    report = held(replace(KNOWN, differing=wider, unproven=wider), KNOWN, tmp_path)
    assert (report.exit_code, report.all_known) == (1, False)
    assert report.baseline is not None
    assert report.baseline.new_outputs == ("a.grad",)
    text = " ".join(line.text for line in render(report))
    assert "1 output is not proven, and nothing that is known explains it: a.grad" in text
    assert "all of that is known" not in text


def test_an_output_that_is_not_proven_beside_the_known_ones_fails(tmp_path: Path) -> None:
    report = held(replace(KNOWN, unproven=(*OUTPUTS, "a.grad")), KNOWN, tmp_path)
    assert report.exit_code == 1
    # An output that differed when the file was written, and is now open for another reason.
    report = held(replace(KNOWN, differing=OUTPUTS[:1]), KNOWN, tmp_path)
    assert report.exit_code == 1
    assert report.baseline is not None
    assert report.baseline.new_outputs == OUTPUTS[1:]


def test_an_output_that_only_a_mended_finding_named_fails(tmp_path: Path) -> None:
    report = held(found(MISSING), KNOWN, tmp_path)
    assert report.baseline is not None
    assert report.baseline.new_outputs == ("w.grad",)
    assert report.exit_code == 1


def test_entries_that_are_no_longer_found_are_told(tmp_path: Path) -> None:
    left = OUTPUTS[:1]
    report = held(replace(found(MISSING), differing=left, unproven=left), KNOWN, tmp_path)
    assert report.exit_code == 0
    assert report.baseline is not None
    assert report.baseline.gone == (f"PIT108 {NOWHERE.operator} w.grad",)
    assert "1 entry of it is no longer found" in " ".join(line.text for line in render(report))
    clean = held(found(verdict="equivalent"), KNOWN, tmp_path)
    assert clean.exit_code == 0
    assert "2 entries of it are no longer found" in " ".join(x.text for x in render(clean))


@pytest.mark.parametrize("verdict", ["mismatch", "inconclusive", "invalid", "nothing-checked"])
def test_a_verdict_without_a_finding_is_not_known(verdict: Verdict, tmp_path: Path) -> None:
    report = held(found(verdict=verdict, differing=(), unproven=()), KNOWN, tmp_path)
    assert report.exit_code == sample(verdict).exit_code
    assert not report.all_known


def refused() -> list[Finding]:
    """A finding of every kind that no baseline may list."""
    return [
        *(
            Finding(code=code.code, verdict=code.verdict, title="t", output="o")
            for code in CODES
            if refusal(code.code, code.verdict) and code.verdict != "warning"
        ),
        UNREADABLE,
        INTERNAL,
        NOTHING,
        Finding(code="PIT201", verdict="nothing-checked", title="no output was compared"),
    ]


def test_these_codes_are_never_accepted() -> None:
    codes = {finding.code for finding in refused()}
    assert codes >= {*NEVER, "PIT001", "PIT012", "PIT203", "PIT500", "PIT900"}
    assert not codes & {"PIT101", "PIT104", "PIT119", "PIT202", "PIT301"}


@pytest.mark.parametrize("finding", refused(), ids=lambda each: each.code)
def test_what_may_not_be_accepted_is_neither_written_nor_read(
    finding: Finding, tmp_path: Path
) -> None:
    report = Report(verdict="inconclusive", findings=(finding,), unproven=("o",))
    with pytest.raises(UsageError, match=f"no baseline is written: {finding.code} .*because"):
        encode(report)
    # A file that was made by hand, with the right fingerprint and the code of another finding.
    content = json.loads(encode(KNOWN))
    content["findings"][0]["fingerprint"] = fingerprints(report)[0]
    accepted = read(json.dumps(content).encode(), tmp_path)
    assert held_against(report, accepted, FILE).exit_code == 3
    if finding.code != "PIT201":
        content["findings"][0]["code"] = finding.code
        with pytest.raises(UsageError, match=r"findings\[0\]\.code is PIT.*may not stand there"):
            read(json.dumps(content).encode(), tmp_path)


@given(
    st.lists(st.sampled_from([MISSING, NOWHERE, ODD, OPEN, IMPRECISE]), max_size=5),
    st.lists(st.sampled_from([MISSING, NOWHERE, ODD, OPEN, IMPRECISE]), max_size=5),
)
def test_exactly_what_is_listed_as_often_as_it_is_listed_is_known(
    listed: list[Finding], now: list[Finding]
) -> None:
    accepted = json.loads(encode(found(*listed)))
    assert len(accepted["findings"]) == len(listed)
    report = held_against(found(*now), msgspec.convert(accepted, Accepted), FILE)
    for kind in (MISSING, NOWHERE, ODD, OPEN, IMPRECISE):
        marks = [f.known for f in report.findings if replace(f, known=False) == kind]
        most = min(listed.count(kind), now.count(kind))
        assert marks == [True] * most + [False] * (now.count(kind) - most)
    if any(now.count(kind) > listed.count(kind) for kind in now):
        assert report.exit_code == 1


# --- the file


def test_the_file_is_sorted_and_does_not_depend_on_the_run(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    data = encode(KNOWN)
    mixed = replace(found(NOWHERE, MISSING, RENDEZVOUS), differing=OUTPUTS[::-1], seed=99)
    assert encode(mixed) == data
    content = read(data, tmp_path)
    assert content.schema == SCHEMA == "pitcheck.baseline/1"
    assert content.outputs == tuple(sorted(OUTPUTS))
    assert data.decode() == snapshot


def test_an_empty_one_accepts_nothing(tmp_path: Path) -> None:
    nothing = found(verdict="equivalent")
    assert held(nothing, nothing, tmp_path).exit_code == 0
    assert held(KNOWN, nothing, tmp_path).exit_code == 1


GOOD = json.loads(encode(KNOWN))


def spoilt(**fields: Any) -> bytes:
    return json.dumps({**GOOD, **fields}).encode()


def entry(**fields: Any) -> bytes:
    return spoilt(findings=[GOOD["findings"][0], {**GOOD["findings"][1], **fields}])


BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "damaged"),
    "cut off": (encode(KNOWN)[:-20], "damaged"),
    "noise": (bytes(range(256)), "damaged"),
    "not UTF-8": (b'{"schema": "\xff"}', "damaged"),
    "deep": (b"[" * 100_000, "damaged"),
    "a list": (b"[]", r"damaged: Expected `object`"),
    "newer": (spoilt(schema="pitcheck.baseline/2"), "use a newer pitcheck"),
    "a report": (encode_report(KNOWN), "'pitcheck.report/1', so it is no baseline"),
    "no schema": (b"{}", "schema is '', so it is no baseline"),
    "a schema that is no text": (spoilt(schema=1), r"\$\.schema"),
    "an unknown field": (spoilt(more=1), "unknown field `more`"),
    "an entry that is a number": (spoilt(findings=[1]), r"\$\.findings\[0\]"),
    "an entry without its fingerprint": (spoilt(findings=[{"code": "PIT104"}]), r"findings\[0\]"),
    "an unknown field of an entry": (entry(more=1), r"unknown field `more` - at `\$\.findings\[1"),
    "a short fingerprint": (entry(fingerprint="abc:1"), r"findings\[1\]\.fingerprint is 'abc:1'"),
    "twice": (
        entry(fingerprint=GOOD["findings"][0]["fingerprint"]),
        r"findings\[1\]\.fingerprint .*stand once",
    ),
    "an unknown code": (entry(code="PIT999"), r"findings\[1\]\.code is 'PIT999'"),
    "outputs that are no texts": (spoilt(outputs=[1]), r"\$\.outputs\[0\]"),
    "large": (b" " * (MOST_BYTES + 1), "more than"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_file_is_refused_by_name_and_place(name: str, tmp_path: Path) -> None:
    data, said = BAD[name]
    with pytest.raises(UsageError, match=said) as refused:
        read(data, tmp_path)
    assert str(tmp_path / FILE) in str(refused.value)


@pytest.mark.parametrize("name", ["none.json", "", ".", "a\0b"])
def test_a_file_that_cannot_be_read_says_how_to_write_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"cannot read baseline .*--write-baseline"):
        read_baseline(name)


# --- the formats


def test_the_reports_say_what_is_known(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    report = replace(held(found(MISSING, NOWHERE, ODD), KNOWN, tmp_path), ignored={"PIT301": 2})
    assert "\n".join(line.text for line in render(report)) == snapshot
    assert github.encode(report).decode() == snapshot
    results = json.loads(sarif.encode(report))["runs"][0]["results"]
    assert ["suppressions" in result for result in results] == [True, True, False]
    assert decode(encode_report(report)) == report


def test_commands_say_the_verdict_if_known_findings_say_it_alone(tmp_path: Path) -> None:
    lines = github.encode(held(KNOWN, KNOWN, tmp_path)).decode().splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::notice"] * 3
    assert "mismatch: " in lines[-1]
    wider = (*OUTPUTS, "a.grad")
    lines = (
        github.encode(held(replace(KNOWN, differing=wider, unproven=wider), KNOWN, tmp_path))
        .decode()
        .splitlines()
    )
    assert lines[-1].startswith("::error title=pitcheck::mismatch: ")
    assert "a.grad" in lines[-1]


def test_new_findings_come_first_in_the_text(tmp_path: Path) -> None:
    many = [replace(MISSING, operator=f"o{number}") for number in range(30)]
    report = held(found(*many, ODD), found(*many), tmp_path)
    text = [line.text for line in render(report)]
    assert next(line for line in text if "[PIT" in line).startswith("error[PIT102]")


def test_an_output_that_stays_wrong_although_the_known_is_repaired_fails(tmp_path: Path) -> None:
    """What else is wrong with it was not wrong when the baseline was written."""
    repaired = TriedRepair(right=OUTPUTS, compared=2)
    left = TriedRepair(right=OUTPUTS[:1], wrong=OUTPUTS[1:], compared=2)
    before, now = (found(replace(MISSING, tried=tried)) for tried in (repaired, left))
    for of, report, new in ((before, now, OUTPUTS[1:]), (now, now, ()), (now, before, ())):
        result = held(report, of, tmp_path)
        assert result.baseline is not None
        assert result.baseline.new_outputs == new
        assert (result.exit_code == 0) == (not new)
