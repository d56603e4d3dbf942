"""Findings of each code as text: short, and in the words of those who train models."""

from __future__ import annotations

from pathlib import Path

import pytest
from bugs.records import megatron_1256 as dropout
from explain.message_plans import PAIRS, crossed_calls, unreachable_experts
from explain.repair_plans import gated, masked_mean, norm, stacked
from explain.spread_plans import updated_by_owners
from support.explain_plans import row_parallel
from syrupy.assertion import SnapshotAssertion

from pitcheck.base.options import Options
from pitcheck.commands.checking.pair import checked
from pitcheck.commands.reading import read
from pitcheck.engine.check import check
from pitcheck.report.codes import CODES
from pitcheck.report.report import Report
from pitcheck.report.text import render

REPAIRED = {
    "PIT111": lambda: masked_mean("kind"),
    "PIT112": lambda: masked_mean("means"),
    "PIT113": lambda: norm("part"),
    "PIT114": dropout.BUG.shows["two ranks"].wrong,
    "PIT115": lambda: stacked("lost"),
    "PIT116": crossed_calls,
    "PIT117": lambda: gated("stretch"),
    "PIT119": lambda: updated_by_owners(0, 0, owners=(0, 1)),
    "PIT204": unreachable_experts,
}
SHOWN = {**PAIRS, **REPAIRED}
STOPPED = {"PIT001", "PIT013", "PIT401", "PIT900"}
"""Codes of findings that come before there are two plans, or from the lines of source files."""
OURS = (
    "residue",
    "obligation",
    "widen",
    "canonical",
    "lattice",
    "row of the batch",
    "stage holds",
    "hint",
)
"""Words of the program's own, which say nothing to those who have not read it."""


def message(report: Report, code: str) -> str:
    """The first finding of a code as text, with what belongs to it."""
    finding = next((each for each in report.findings if each.code == code), None)
    assert finding is not None, (report.verdict, report.findings)
    alone = Report(
        verdict=report.verdict,
        shown=report.shown,
        mesh=report.mesh,
        microbatches=report.microbatches,
        findings=(finding,),
    )
    text = "\n".join(line.text for line in render(alone))
    _, found, *_ = text.split("\n\n") if "\n\n" in text else ("", text)
    return found


def hold(text: str, snapshot: SnapshotAssertion) -> None:
    assert len(text.splitlines()) <= 40
    assert not [word for word in OURS if word in text.lower()], text
    assert text == snapshot


def test_every_code_is_shown() -> None:
    assert {code.code for code in CODES} == SHOWN.keys() | STOPPED


@pytest.mark.parametrize("code", SHOWN)
def test_a_finding_is_short_and_as_it_was(code: str, snapshot: SnapshotAssertion) -> None:
    memory = 64 if code == "PIT203" else 1 << 30
    estimates = "refuse" if code == "PIT208" else "accept"
    options = Options(seed=1, max_memory=memory, estimates=estimates)
    hold(message(check(*SHOWN[code](), options), code), snapshot)


def test_an_unreadable_plan_is_named(
    snapshot: SnapshotAssertion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("parallel.plan.json").write_text(
        '{"format": "pitcheck.plan/1", "mesh": [{"name": "tp", "size": "two"}]}'
    )
    report = checked(
        [lambda: [row_parallel(True)[0]], lambda: [read("parallel.plan.json")]], Options(seed=1)
    )
    hold(message(report, "PIT001"), snapshot)


def test_an_internal_error_says_nothing_of_the_plans(snapshot: SnapshotAssertion) -> None:
    def broken() -> list[object]:
        raise KeyError("x")

    hold(message(checked([broken], Options(seed=1)), "PIT900"), snapshot)  # type: ignore[list-item]
