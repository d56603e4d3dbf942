"""Exit code 1 needs a difference that is more than the rounding of the terms: what is 0 for every input is none, and what is next to 0 is one."""

from __future__ import annotations

from pathlib import Path

import pytest
from explain_plans import Pair, run, said
from zero_plans import AFTERWARDS, KINDS, gradient, magnitudes, on_one_rank, plus, zeros

import pitcheck.check.confirm
from pitcheck.algebra.axis_templates import Templates
from pitcheck.check.judge import Judged, judge
from pitcheck.check.specification import specify
from pitcheck.check.whole import conjecture, run_whole
from pitcheck.errors import PitcheckError
from pitcheck.explain.replay import replay
from pitcheck.ops.registry import evaluate
from pitcheck.plan.matching import match
from pitcheck.report.model import Finding, Report, Shown
from pitcheck.stages.lowering import lower

SEEDS = 2
COSTS = (1_000_000, 300, 100, 0)
"""What a confirmation may cost: from the inputs on, from where both plans agree, and not at all."""


def judged(pair: Pair, seed: int) -> Judged:
    """What is said of all outputs on one draw, although small plans are proven before that is asked."""
    first, second = (lower(plan, match(plan)[0]) for plan in pair)  # type: ignore[arg-type]
    specification = specify(*pair, first, second)
    found = run_whole(first, second, specification, seed, False, Templates(evaluate))
    return judge(found, conjecture(found, second, specification), range(len(found.comparisons)))


@pytest.mark.parametrize("cost", [COSTS[0], COSTS[2]])
@pytest.mark.parametrize("after", AFTERWARDS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_zero_does_not_differ(kind: str, after: str, cost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pitcheck.check.confirm, "MOST_WORK", cost)
    for seed in range(SEEDS):
        found = judged(zeros(kind, last=AFTERWARDS[after]), seed)
        assert (found.real, found.shown) == ([], None)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("pair", [gradient(), magnitudes(), on_one_rank("1")])
def test_what_is_equal_does_not_differ(pair: Pair, cost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pitcheck.check.confirm, "MOST_WORK", cost)
    assert not any(judged(pair, seed).real for seed in range(SEEDS))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_zero_is_equivalent(kind: str) -> None:
    for last in ("", "its sign"):
        report = run(zeros(kind, last=AFTERWARDS[last]))
        assert report.verdict == "equivalent", said(report)


NEAR = {
    **{f"{kind} and {number}": zeros(kind, own=plus(number)) for kind in KINDS for number in ("1e-12", "1e-30")},
    "a billionth more": gradient("1000000001/1000000000"),
    "1e-22 more": gradient("10000000000000000000001/10000000000000000000000"),
    "the smaller one doubled": magnitudes("2e-30"),
    "a billionth more on one rank": on_one_rank("1000000001/1000000000"),
    "1e-14 more on one rank": on_one_rank("100000000000001/100000000000000"),
}


@pytest.mark.parametrize("name", NEAR)
def test_what_is_next_to_it_is_a_mismatch_with_a_witness_that_replays(name: str, tmp_path: Path) -> None:
    report = run(NEAR[name], tmp_path)
    assert report.verdict == "mismatch", said(report)
    assert report.shown is not None
    assert report.shown.reference_value != report.shown.parallel_value
    assert "digits" in report.shown.arithmetic
    if name != "the smaller one doubled":  # no small integers show this one: it is told by the run alone
        assert report.findings[0].witness is not None, said(report)
        assert replay(Path(report.findings[0].witness))[1] == 1


@pytest.mark.parametrize("cost", [300, 0])
@pytest.mark.parametrize("name", NEAR)
def test_it_is_never_equivalent_whatever_may_be_spent(name: str, cost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pitcheck.check.confirm, "MOST_WORK", cost)
    report = run(NEAR[name])
    assert report.verdict in {"mismatch", "inconclusive"}, said(report)


def test_a_zero_beside_something_wrong_is_no_part_of_it() -> None:
    """The gradient of a key bias is rounding on both sides, and not named among what differs."""
    pair = zeros("key bias", seen="square")
    for seed in range(SEEDS):
        assert judged(pair, seed).real == [1]


def test_no_report_of_a_mismatch_without_what_shows_it() -> None:
    shown = Shown("y", (0,), "1", "2", "by hand")
    finding = Finding(code="PIT100", verdict="mismatch", title="t")
    with pytest.raises(PitcheckError, match="mismatch"):
        Report(verdict="mismatch", findings=(finding,))
    with pytest.raises(PitcheckError, match="equivalent"):
        Report(verdict="equivalent", shown=shown)
    assert Report(verdict="mismatch", shown=shown).exit_code == 1
