"""What draws of computed integers must show, and that what is watched are the draws compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from attacks.integer_pairs import Formula, number, plan, running, total

from pitcheck.algebra.value import Value
from pitcheck.claims.problem import Problem
from pitcheck.prove.bounds.stage_degrees import StageDegrees
from pitcheck.prove.draws.shaped_proof import decide
from pitcheck.prove.integers.cases import Cases, with_cases
from pitcheck.prove.integers.classes import MOST_CASES, Table, representatives
from pitcheck.prove.integers.intervals import IntervalAlgebra, possible
from pitcheck.prove.proof import Settings
from pitcheck.prove.stage_trials import StageTrials
from pitcheck.stage.drawn_inputs import CASES, discrete
from pitcheck.stage.inputs import Fresh
from pitcheck.stage.shaped_stage import shape_reduced

VALUES = np.arange(5000)


def cases(formula: Formula) -> Cases:
    problem = Problem.of(
        plan(formula, (0, 50000), "int64", 1), plan(formula, (0, 50000), "int64", 2)
    )
    return with_cases(shape_reduced(problem.whole_stage()))


def drawn(found: Cases) -> Any:
    return next(fresh for fresh in found.shaped.fresh.values() if fresh.kind == "int")


def test_every_element_has_a_value_of_every_class() -> None:
    fresh = drawn(cases(lambda i: i * 31 == 38254))
    trials = discrete(fresh, 1, range(CASES, CASES + len(fresh.cases)))
    assert (trials == 1234).any(axis=0).all()


def test_in_one_draw_of_four_no_two_integers_are_equal_if_there_are_so_many() -> None:
    labels = Fresh("labels", (4, 6), "int", bounds=(3, 27), marks=(3, 26))
    different = [len(np.unique(draw)) == 24 for draw in discrete(labels, 1, range(40))]
    assert different == [trial % CASES == CASES - 1 for trial in range(40)]
    few = replace(labels, bounds=(3, 26))
    assert max(len(np.unique(draw)) for draw in discrete(few, 1, range(40))) < 24


def test_given_integers_need_no_cases() -> None:
    found = cases(lambda i: i == 1234)
    assert found.tested is None
    assert not drawn(found).cases


def test_what_is_watched_are_the_draws_that_are_compared() -> None:
    found = cases(lambda i: running(number(i % 4 == 1)) <= 3)
    assert found.tested is not None
    assert found.tested.cone.shaped is found.shaped
    assert drawn(found).cases


def test_outcomes_that_were_not_drawn_are_lacking() -> None:
    found = cases(lambda i: total(i) * 3 == 60000)
    assert found.tested is not None
    found.tested.observe(range(12), 1)
    assert "was never: true" in found.tested.lacking()


def test_an_attempt_has_seen_nothing_of_what_another_drew() -> None:
    """Tables and chains of primes draw other integers; each compares its own draws alone."""
    found = cases(lambda i: running(number(i % 4 == 1)) <= 3)
    assert found.tested is not None
    lacking = found.tested.lacking()
    assert lacking
    degrees, settings = StageDegrees.of(found.shaped), Settings(np, 1, -64.0, 1, False, 1 << 30)
    family = next(degrees.families([3]))
    for _ in range(2):
        trials = StageTrials(found, family, degrees, settings, 8, refutes=False)
        proof = decide(trials)
        assert proof is not None
        assert proof.outcome == "proven"
        assert found.tested.lacking() == lacking


def test_a_quotient_lies_within_its_range() -> None:
    algebra = IntervalAlgebra()
    for least in range(-7, 8):
        for most in range(least, 8):
            for by in range(1, 5):
                ends = Value("int", np.array([least, most]).reshape(1, 2, 1))
                low, high = algebra.divide(ends, algebra.constant(by, "int")).data.reshape(-1)
                assert low * by <= least <= most <= high * by
                # Only a number that is known for certain has one end.
                assert (low == high) == (least == most == low * by)


def test_more_classes_than_can_be_tried_leave_it_open() -> None:
    many = [Table(0, n == VALUES % (MOST_CASES + 1)) for n in range(MOST_CASES + 1)]
    assert representatives(VALUES, many, frozenset()) is None
    assert representatives(VALUES, many[:9], frozenset()) is not None


def test_a_table_that_follows_from_no_other_leaves_it_open() -> None:
    scattered = VALUES * 7919 % 4999
    assert representatives(VALUES, [Table(0, VALUES), Table(1, scattered)], frozenset()) is None
    assert (
        representatives(VALUES, [Table(0, scattered), Table(1, scattered)], frozenset()) is not None
    )


@pytest.mark.parametrize(
    ("what", "one", "two", "expected"),
    [
        ("lt", (0, 3), (4, 9), (True, False)),
        ("le", (4, 9), (0, 3), (False, True)),
        ("ge", (0, 4), (4, 9), (True, True)),
        ("eq", (5, 5), (5, 5), (True, False)),
        ("ne", (0, 4), (5, 6), (True, False)),
        ("maximum", (1, 5), (1, 1), (True, False)),
        ("minimum", (1, 5), (1, 1), (False, True)),
        ("floor_divide", (0, 6), (7, 7), (True, False)),
        ("floor_divide", (0, 7), (7, 7), (True, True)),
    ],
)
def test_ranges_exclude_outcomes(
    what: str, one: tuple[int, int], two: tuple[int, int], expected: tuple[bool, bool]
) -> None:
    first, second = (Value("int", np.array(ends).reshape(1, 2, 1)) for ends in (one, two))
    assert tuple(bool(x.all()) for x in possible(what, first, second)) == expected
