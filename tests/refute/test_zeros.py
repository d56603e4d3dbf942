"""Exit code 1 needs a difference that is more than the rounding of the terms: what is 0 for every
input is none, and what is next to 0 is one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from refute.zero_plans import AFTERWARDS, KINDS, gradient, magnitudes, on_one_rank, plus, zeros
from support.explain_plans import Pair, run, said
from zoo.builder import Builder, lineage

import pitcheck.refute.confirm
from pitcheck.claims.problem import Problem
from pitcheck.claims.specification import specify
from pitcheck.errors import PitcheckError
from pitcheck.graph.lowering import lower
from pitcheck.plan.model import Plan
from pitcheck.plan.schedule.matching import match
from pitcheck.refute.counted_differences import Judged, count_differences
from pitcheck.refute.whole_run import conjecture, run_whole
from pitcheck.report.report import Finding, Report, Shown, TriedRepair
from pitcheck.witness.replay import replay

SEEDS = 2
COSTS = (1_000_000, 300, 100, 0)
"""Limits for a confirmation: from the inputs on, from where both plans agree, and not at all."""


def judged(pair: Pair, seed: int) -> Judged:
    """Return the judgement on all outputs for one draw.

    Small plans are judged, too, although a check proves them before that.
    """
    first, second = (lower(plan, match(plan)[0]) for plan in pair)  # type: ignore[arg-type]
    specification = specify(*pair, first, second)
    problem = Problem(first, second, specification, seed=seed)
    found = run_whole(problem)
    return count_differences(found, conjecture(problem, found), range(len(found.comparisons)))


@pytest.mark.parametrize("cost", [COSTS[0], COSTS[2]])
@pytest.mark.parametrize("after", AFTERWARDS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_zero_does_not_differ(
    kind: str, after: str, cost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pitcheck.refute.confirm, "MOST_WORK", cost)
    for seed in range(SEEDS):
        found = judged(zeros(kind, last=AFTERWARDS[after]), seed)
        assert (found.real, found.shown) == ([], None)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("pair", [gradient(), magnitudes(), on_one_rank("1")])
def test_what_is_equal_does_not_differ(
    pair: Pair, cost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pitcheck.refute.confirm, "MOST_WORK", cost)
    assert not any(judged(pair, seed).real for seed in range(SEEDS))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_zero_is_equivalent(kind: str) -> None:
    for last in ("", "its sign"):
        report = run(zeros(kind, last=AFTERWARDS[last]))
        assert report.verdict == "equivalent", said(report)


NEAR = {
    **{
        f"{kind} and {number}": zeros(kind, own=plus(number))
        for kind in KINDS
        for number in ("1e-12", "1e-30")
    },
    "a billionth more": gradient("1000000001/1000000000"),
    "1e-22 more": gradient("10000000000000000000001/10000000000000000000000"),
    "the smaller one doubled": magnitudes("2e-30"),
    "a billionth more on one rank": on_one_rank("1000000001/1000000000"),
    "1e-14 more on one rank": on_one_rank("100000000000001/100000000000000"),
}


@pytest.mark.parametrize("name", NEAR)
def test_what_is_next_to_it_is_a_mismatch_with_a_witness_that_replays(
    name: str, tmp_path: Path
) -> None:
    report = run(NEAR[name], tmp_path)
    assert report.verdict == "mismatch", said(report)
    assert report.shown is not None
    assert report.shown.reference_value != report.shown.parallel_value
    assert "digits" in report.shown.arithmetic
    # no small integers show this one: it is told by the run alone
    if name != "the smaller one doubled":
        assert report.findings[0].witness is not None, said(report)
        assert replay(Path(report.findings[0].witness))[1] == 1


@pytest.mark.parametrize("cost", [300, 0])
@pytest.mark.parametrize("name", NEAR)
def test_it_is_never_equivalent_whatever_may_be_spent(
    name: str, cost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pitcheck.refute.confirm, "MOST_WORK", cost)
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


def _last_place(reads: str) -> Plan:
    """A number per row: the sum of its tanh, or where its largest element is, or what is made of
    the row otherwise.
    """
    b = Builder("places")
    x = b.input("x", (3, 4))
    if reads == "right":
        b.op("sum", b.op("tanh", x), axes=(1,), out="y")
    elif reads == "what nothing is known of":
        b.op("cast", b.op("argmax", x, axis=1), dtype="float32", out="y")
    else:
        b.op("amax", x, axes=(1,), out="y")
    b.output("y")
    return b.plan()


@pytest.mark.parametrize(
    ("reads", "words"),
    [
        (
            "what nothing is known of",
            "nothing says that what operator '1:cast' reads is wrong, but",
        ),
        ("an input", "'0:amax' reads is right and"),
    ],
)
def test_what_was_not_compared_is_not_called_right(reads: str, words: str) -> None:
    report = run((_last_place("right"), _last_place(reads)))
    assert report.verdict == "mismatch", said(report)
    assert words in (report.findings[0].cause or ""), said(report)


def _two_outputs(wrong: bool) -> Plan:
    """y needs a sum over tp; z is computed from the same tensor, beside it."""
    b = Builder("two", {"tp": 2})
    x, w = b.input("x", (3, 2), {1: "tp"}), b.parameter("w", (2, 2), {1: "tp"})
    part = b.op("matmul", x, b.op("permute", w, permutation=(1, 0)))
    b.output(
        b.op(
            "identity" if wrong else "all_reduce",
            part,
            **({} if wrong else {"group": "tp"}),
            out="y",
        )
    )
    b.output(b.op("exp", x, out="z"), spec=lineage("z", {1: "tp"}))
    return b.plan()


def _two_on_one() -> Plan:
    b = Builder("two")
    x, w = b.input("x", (3, 4)), b.parameter("w", (2, 4))
    b.output(b.op("matmul", x, b.op("permute", w, permutation=(1, 0)), out="y"))
    b.output(b.op("exp", x, out="z"))
    return b.plan()


def test_what_was_tried_is_data() -> None:
    assert run((_two_on_one(), _two_outputs(wrong=False))).verdict == "equivalent"
    report = run((_two_on_one(), _two_outputs(wrong=True)))
    words = "tested: with it, every output is right"
    tried = TriedRepair(right=("y",), compared=2, said=words)
    assert report.findings[0].tried == tried, said(report)
    assert "(tested: with it, every output is right)" in (report.findings[0].repair or ""), said(
        report
    )
