"""The discrete cases that draws must show, against what the draws hold, looked at one by one."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from attacks.formulas import planned
from hypothesis import given
from hypothesis import strategies as st

from pitcheck.claims.problem import Problem
from pitcheck.graph.cuts import FREE, Box
from pitcheck.prove.bounds.stage_degrees import StageDegrees
from pitcheck.prove.integers.cases import with_cases
from pitcheck.prove.proof import Settings
from pitcheck.prove.stage_trials import StageTrials
from pitcheck.stage.drawn_inputs import CASES, LAYOUTS, Case, cases_of, discrete
from pitcheck.stage.inputs import Fresh
from pitcheck.stage.shaped_stage import ShapedStage, shape_reduced

MOST = 64


def held(fresh: Fresh, box: Box, seed: int, trial: int) -> set[int]:
    """The integers that a box holds in one trial, element by element."""
    drawn = discrete(fresh, seed, [trial])[0, 0]
    found = set()
    for place in np.ndindex(*fresh.shape):
        if all(
            any(start <= at < stop for start, stop in intervals)
            for at, intervals in zip(place, box, strict=True)
        ):
            found.add(int(drawn[place]))
    return found


def first_held(fresh: Fresh, boxes: list[Box], seed: int, mark: int) -> int:
    """How many of the first trials show an integer in each box; ``MOST + 1`` if too few do."""
    left = [box for box in boxes if prod(_size(intervals) for intervals in box)]
    for trial in range(MOST):
        left = [box for box in left if mark not in held(fresh, box, seed, trial)]
        if not left:
            return trial + 1
    return MOST + 1


def _size(intervals: tuple[tuple[int, int], ...]) -> int:
    return sum(stop - start for start, stop in intervals if start >= 0)


def boxes_of(shape: tuple[int, ...]) -> st.SearchStrategy[list[Box]]:
    """Boxes of a shape, some with places that are free."""
    along = [
        st.tuples(st.integers(0, size - 1), st.integers(1, size)).map(
            lambda ends: ((min(ends), max(*ends, min(ends) + 1)),)
        )
        | st.just(((FREE, 1),))
        for size in shape
    ]
    return st.lists(st.tuples(*along), min_size=1, max_size=4)


@st.composite
def tensors(draw: st.DrawFn) -> tuple[Fresh, list[Box]]:
    shape = tuple(draw(st.lists(st.integers(1, 5), max_size=2)))
    high = draw(st.integers(2, 40))
    marks = draw(st.lists(st.integers(0, high - 1), min_size=1, max_size=4, unique=True))
    return Fresh("labels", shape, "int", bounds=(0, high), marks=tuple(marks)), draw(
        boxes_of(shape)
    )


@given(tensors(), st.integers(0, 2**32))
def test_each_marked_integer_is_named_with_the_draws_that_it_takes(
    drawn: tuple[Fresh, list[Box]], seed: int
) -> None:
    fresh, boxes = drawn
    kinds, *cases = cases_of(fresh, boxes, seed, MOST)
    assert kinds.trials == CASES
    assert cases == [
        Case(f"labels = {mark} on every shard", first_held(fresh, boxes, seed, mark))
        for mark in sorted(fresh.marks)
    ]


def test_all_kinds_of_draws_are_a_case() -> None:
    case = np.array([1, 0, 2])
    fresh = Fresh("n", (3,), "int", bounds=(0, 3), loads=((1, 2), (0, 1)), cases=(case, case))
    assert cases_of(fresh, [], 0, MOST)[0].trials == max(CASES, 2 * 2 * LAYOUTS) + 2
    assert cases_of(Fresh("x", (3,), "field"), [], 0, MOST) == []
    assert cases_of(Fresh("i", (3,), "int", bounds=(0, 3), unread=True), [], 0, MOST) == []


@pytest.mark.parametrize("seed", range(8))
def test_a_single_integer_takes_each_marked_value_within_four_draws_each(seed: int) -> None:
    marks = (-1024, 1, 7, 1023)
    fresh = Fresh("count", (), "int", bounds=(-1024, 1024), marks=marks)
    found = set(discrete(fresh, seed, range(CASES * len(marks)))[:, 0].tolist())
    assert found >= set(marks)


def trials_of(shaped: ShapedStage, most: int) -> StageTrials:
    settings = Settings(np, 1, -64.0, 1, False, 1 << 30, most_trials=most)
    degrees = StageDegrees.of(shaped)
    family = next(degrees.families([3]))
    return StageTrials(with_cases(shaped), family, degrees, settings, 64, refutes=True)


def test_the_redraws_after_the_first_show_all_discrete_cases() -> None:
    plan = planned(lambda x, z, j, k: j.eq(7).where(z, x))
    trials = trials_of(shape_reduced(Problem.of(plan, plan).whole_stage()), 256)
    wanted = max(case.trials for case in trials._cases)
    while trials.number < wanted:
        algebra = trials.redrawn()
        evaluated = trials.evaluated(algebra)
        assert evaluated is not None
        proof = trials.judged(algebra, *evaluated)
    assert CASES <= wanted <= trials.number
    assert proof is not None and proof.outcome == "proven"
    assert len(trials._redraws.agreed) <= 3


def test_a_case_that_no_draw_shows_leaves_a_stage_open() -> None:
    plan = planned(lambda x, z, j, k: j.eq(7).where(z, x))
    trials = trials_of(shape_reduced(Problem.of(plan, plan).whole_stage()), 2)
    assert len(trials.redrawn().trials) <= 2
    algebra = trials.redrawn()
    evaluated = trials.evaluated(algebra)
    assert evaluated is not None
    assert trials.judged(algebra, *evaluated) is None
    assert "a discrete case was not tried" in trials.given_up().reason
