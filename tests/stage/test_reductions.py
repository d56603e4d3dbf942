"""Every stage reduction, and the whole list of them, decides the stages of the zoo as the stages
themselves are decided; one that is wrong does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from stage.reduction_cases import OWN, Case, cases, names

from pitcheck.errors import UnsupportedError
from pitcheck.stage.batch import Argument
from pitcheck.stage.reductions import symmetry
from pitcheck.stage.reductions.drop_unused_buffer_parts import DropUnusedBufferParts
from pitcheck.stage.reductions.fewer_coordinates import KeepFewCoordinates, KeepFewTerms
from pitcheck.stage.reductions.pipeline import STAGE_REDUCTIONS, Reductions, reduced
from pitcheck.stage.reductions.protocol import Context, Phase, StageReduction
from pitcheck.stage.reductions.sizes import Measured
from pitcheck.stage.reductions.split_all_to_all import SplitAllToAll
from pitcheck.stage.reductions.sum_target_terms import SumTargetTerms
from pitcheck.stage.stage import Stage

EVERY, MISSES = 5, 2
"""The fast suite takes stages of every fifth pair of the zoo, and so many near misses."""
MANY, MANY_AT_NIGHT = 6, 12
"""Near misses of every pair that CI tries, and a nightly job."""
OWN_MISSES = 16
LEAST_STAGES = 60
PARTS = 4
APPLIED = (DropUnusedBufferParts, SumTargetTerms, SplitAllToAll, KeepFewCoordinates, KeepFewTerms)
"""Reductions that do something to few stages: that there are such stages is checked."""


@cache
def stages(name: str, misses: int) -> tuple[tuple[Case, str], ...]:
    """Return the stages of a pair, and what becomes of each without any reduction."""
    return tuple((case, case.outcome(case.stage, ())) for case in cases(name, misses))


def disagreements(
    reduction: StageReduction[Any], some: Sequence[tuple[Case, str]]
) -> Iterator[str]:
    """Yield a line for every stage of which a reduction makes one that is decided otherwise, or
    that is no longer decided.
    """
    for case, plain in some:
        # What frees undecided steps does nothing to a stage that is decided.
        left = (
            case.reduced(reduction)
            if reduction.phase is not Phase.STEPS or plain == "inconclusive"
            else None
        )
        if left is None or _left_out(reduction, plain):
            continue
        outcome = case.outcome(*left)
        if (
            told_wrongly(plain, outcome, reduction.refutes)
            and case.stays(case.stage, (), plain)
            and case.stays(*left, outcome)
        ):
            yield f"{reduction.name}, {case.name}: {plain} -> {outcome}"


def _left_out(reduction: StageReduction[Any], plain: str) -> bool:
    """Return True if shapes do not fit and a part of a buffer is left out: that is a fault of the
    stage which reads the part.
    """
    return plain == "invalid" and reduction.phase is Phase.CUT_OUT


def told_wrongly(plain: str, outcome: str, refutes: bool) -> bool:
    """Return True if a reduced stage that is decided as ``outcome`` says something else than the
    stage, which is decided as ``plain``.

    A stage that is open may be decided by less; one that is decided must be decided, and equally,
    unless the reduction proves alone.
    """
    if outcome == "proven":
        return plain in ("failed", "invalid")
    return refutes and plain in ("proven", "failed") and outcome != plain


def applied(reduction: type[StageReduction[Any]], some: Sequence[tuple[Case, str]]) -> Counter[str]:
    """Count the stages to which a reduction applies by what becomes of them."""
    return Counter(plain for case, plain in some if case.reduced(reduction()) is not None)


def compared(some: Sequence[tuple[Case, str]]) -> list[str]:
    """Return all disagreements of each reduction by itself, and of the whole list."""
    found = [line for reduction in STAGE_REDUCTIONS for line in disagreements(reduction, some)]
    for case, plain in some:
        left = reduced(case.stage, Phase.CUT_OUT, Context()), STAGE_REDUCTIONS
        whole = case.outcome(*left)
        if (
            plain != "invalid"
            and told_wrongly(plain, whole, True)
            and case.stays(case.stage, (), plain)
            and case.stays(*left, whole)
        ):
            found.append(f"all reductions, {case.name}: {plain} -> {whole}")
    return found


def own() -> list[tuple[Case, str]]:
    return [one for name in OWN for one in stages(name, OWN_MISSES)]


def test_reductions_decide_pairs_made_for_them_as_the_stages_are_decided() -> None:
    assert not compared(own())


def test_reductions_decide_the_zoo_as_the_stages_are_decided() -> None:
    some = [one for name in names()[::EVERY] for one in stages(name, MISSES)]
    outcomes = Counter(plain for _, plain in some)
    assert len(some) >= LEAST_STAGES
    assert min(outcomes["proven"], outcomes["failed"]) >= LEAST_STAGES // 4, outcomes
    assert not compared(some)


@pytest.mark.slow
@pytest.mark.parametrize(
    "many", [MANY, pytest.param(MANY_AT_NIGHT, marks=pytest.mark.nightly)], ids=["some", "more"]
)
@pytest.mark.parametrize("part", range(PARTS))
def test_reductions_decide_many_near_misses_as_the_stages_are_decided(part: int, many: int) -> None:
    assert not compared([one for name in names()[part::PARTS] for one in stages(name, many)])


@pytest.mark.parametrize("reduction", APPLIED)
def test_every_reduction_has_right_and_wrong_stages_to_act_on(
    reduction: type[StageReduction[Any]],
) -> None:
    outcomes = applied(reduction, own())
    assert outcomes["proven"], outcomes
    assert outcomes["failed"], outcomes


def test_the_list_is_in_the_order_of_the_phases() -> None:
    order = list(Phase)
    assert all(
        order.index(first.phase) <= order.index(second.phase)
        for first, second in pairwise(STAGE_REDUCTIONS)
    )
    assert {reduction.phase for reduction in STAGE_REDUCTIONS} == set(Phase)
    assert len({reduction.name for reduction in STAGE_REDUCTIONS}) == len(STAGE_REDUCTIONS)


# --- reductions that are wrong on purpose


class DropTheLastRow:
    """Leave out what is claimed at the last coordinate."""

    name = "drop the last row"
    phase = Phase.ROWS
    refutes = True

    def apply(self, subject: Stage, _: Context) -> Stage | None:
        (target,) = subject.targets
        where = target.where.copy()
        where[tuple(place[-1] for place in np.nonzero(where))] = False
        return (
            replace(subject, targets=(replace(target, where=where),))
            if where.any() and target.cut.groups is None
            else None
        )


class AllCoordinatesAlike(KeepFewCoordinates):
    """Take the coordinates of a batch dimension for one class, whatever they compute."""

    name = "all coordinates alike"

    def apply(self, subject: Measured, context: Context) -> Measured | None:
        with patch.object(
            symmetry, "_classes", lambda *given: np.zeros(given[-2].shape[1], dtype=np.int64)
        ):
            return super().apply(subject, context)


class MergeRows:
    """Let the first two rows of every operand be the first one."""

    name = "merge rows"
    phase = Phase.ROWS
    refutes = True

    def apply(self, subject: Stage, _: Context) -> Stage:
        steps = [
            replace(step, inputs=tuple(self._merged(operand) for operand in step.inputs))
            for step in subject.parallel.steps
        ]
        return replace(subject, parallel=replace(subject.parallel, steps=steps))

    def _merged(self, operand: Any) -> Any:
        return (
            Argument(operand.value, np.where(operand.rows == 1, 0, operand.rows))
            if isinstance(operand, Argument)
            else operand
        )


class DropABufferPartThatIsRead(DropUnusedBufferParts):
    """Leave out of a buffer the tensor that is read, and keep another one of its size in
    its place.
    """

    name = "drop a buffer part that is read"

    def apply(self, subject: Stage, context: Context) -> Stage | None:
        steps = [
            replace(step, inputs=(*step.inputs[1:], step.inputs[0])) if step.kind == "cat" else step
            for step in subject.parallel.steps
        ]
        return super().apply(
            replace(subject, parallel=replace(subject.parallel, steps=steps)), context
        )


class LeaveItOpen:
    """Put a step in the place of the first one that nobody knows the meaning of."""

    name = "leave it open"
    phase = Phase.ROWS
    refutes = True

    def apply(self, subject: Stage, _: Context) -> Stage:
        first = subject.parallel.steps[0] if subject.parallel.steps else None
        steps = (
            [] if first is None else [replace(first, kind="unknown"), *subject.parallel.steps[1:]]
        )
        return replace(subject, parallel=replace(subject.parallel, steps=steps))


WRONG = (DropTheLastRow, AllCoordinatesAlike, MergeRows, DropABufferPartThatIsRead, LeaveItOpen)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_reduction_disagrees(wrong: type[StageReduction[Any]]) -> None:
    assert next(disagreements(wrong(), own()), "")


def test_what_a_reduction_refuses_is_left_as_it_is() -> None:
    """``reduced`` passes on what a reduction raises; the proof then looks at the stage itself."""

    class Refuses(SplitAllToAll):
        def apply(self, subject: Stage, context: Context) -> Stage:
            raise UnsupportedError("nothing is split")

    (case, plain), *_ = stages("exchange", OWN_MISSES)
    refusing: Reductions = (Refuses(), *STAGE_REDUCTIONS)
    with pytest.raises(UnsupportedError, match="nothing is split"):
        reduced(case.stage, Phase.ROWS, Context(), refusing)
    assert case.outcome(case.stage, refusing) == plain == "proven"
