"""Degrees over tables, and what a draw of them may accept falsely."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from pitcheck.algebra.bound.degree_bounds import Heights, Polynomial
from pitcheck.algebra.bound.degree_values import DegreeValue, Sign
from pitcheck.algebra.bound.free_degrees import FreeDegreeAlgebra
from pitcheck.algebra.bound.place_degrees import LikelyPlaceAlgebra, PlaceDegreeAlgebra
from pitcheck.algebra.interface import Comparison

P = 1009
NONE = Heights(math.inf, (1.0,), False)


@pytest.fixture
def algebra() -> FreeDegreeAlgebra:
    return FreeDegreeAlgebra()


def _error(algebra: FreeDegreeAlgebra, a: DegreeValue, b: DegreeValue) -> float:
    """Times P - 1."""
    return 2.0 ** algebra.draw_error([(a, b)], (P,), NONE)[0].log2 * (P - 1)


def test_depth_costs_pairs_and_no_degree(algebra: FreeDegreeAlgebra) -> None:
    x, y = algebra.fresh("x", ()), algebra.fresh("y", ())
    once = algebra.exp(x), algebra.exp(y)
    # The values agree, x and y meet, or one of them is 0.
    assert _error(algebra, *once) == pytest.approx(1 + 1 + 2)
    twice = [algebra.exp(value) for value in once]
    assert twice[0].degree.numerator == 1
    assert _error(algebra, *twice) == pytest.approx(1 + 6 + 4)


def test_a_symmetric_function_meets_the_negative_as_well(algebra: FreeDegreeAlgebra) -> None:
    x, y = algebra.fresh("x", ()), algebra.fresh("y", ())
    assert _error(algebra, algebra.function("cos", x), algebra.function("cos", y)) == (
        pytest.approx(1 + 2 + 2)
    )


def test_levels_multiply(algebra: FreeDegreeAlgebra) -> None:
    x, y = algebra.exp(algebra.fresh("x", ())), algebra.exp(algebra.fresh("y", ()))
    three = Heights(math.inf, (1.0,) * 3, False)
    error, _ = algebra.draw_error([(x, y)], (P, P, P), three)
    assert error.log2 == pytest.approx(math.log2(4) - 3 * math.log2(P - 1))
    assert not error.once


def test_primes_that_may_divide_count_at_every_level_and_once(algebra: FreeDegreeAlgebra) -> None:
    x = algebra.fresh("x", ())
    large = algebra.add(x, algebra.constant(Fraction(2**100)))
    few = Heights(1000, (9.0,), False)
    error, _ = algebra.draw_error([(algebra.exp(x), algebra.exp(large))], (P,), few)
    assert error.once
    # 11 primes above 2^9 may divide a number of 100 bits.
    assert 2.0**error.log2 > 11 / 1000
    assert error.agreeing(1) == error.log2
    assert error.agreeing(4) == pytest.approx(error.log2 + 2)


def test_exponentials_of_differences_have_factors_above_and_below(
    algebra: FreeDegreeAlgebra,
) -> None:
    x, y = algebra.fresh("x", ()), algebra.fresh("y", ())
    split = algebra.exp(algebra.subtract(algebra.subtract(x, y), y)).degree
    assert (split.numerator, split.denominator) == (1, 2)
    literal = algebra.exp(algebra.multiply(x, algebra.constant(Fraction(-5)))).degree
    assert literal.denominator == 5
    assert algebra.exp(algebra.add(x, y)).degree.denominator == 0


def test_order_is_noted(algebra: FreeDegreeAlgebra) -> None:
    x = algebra.fresh("x", (3,))
    hidden = algebra.expand(algebra.constant(-math.inf), (3,))
    algebra.compare("ne", x, hidden)
    algebra.maximum(x, hidden)
    algebra.integers(np.zeros((1, 1, 3), dtype=np.int64))
    assert not algebra.ordered and not algebra.compares
    above = algebra.compare("gt", x, algebra.constant(Fraction(0)))
    algebra.cast(algebra.logical_not(above), "field")
    assert not algebra.ordered and algebra.compares


@pytest.mark.parametrize(
    "ordered",
    [
        lambda a, c, x: a.cast(x, "int"),
        lambda a, c, x: a.cast(c, "int"),
        lambda a, c, x: a.where(c, *(a.integers(np.zeros((1, 1, 3), np.int64)),) * 2),
    ],
)
def test_what_no_table_knows_is_noted(
    ordered: Callable[[FreeDegreeAlgebra, DegreeValue, DegreeValue], DegreeValue],
    algebra: FreeDegreeAlgebra,
) -> None:
    x, y = algebra.fresh("x", (3,)), algebra.fresh("y", (3,))
    ordered(algebra, algebra.compare("lt", x, y), x)
    assert algebra.ordered


def test_outcomes_are_variables_and_multiply(algebra: FreeDegreeAlgebra) -> None:
    x, y, z = (algebra.fresh(name, ()) for name in "xyz")
    first, second = algebra.compare("lt", x, y), algebra.compare("eq", algebra.multiply(x, z), y)
    assert first.top.degree == 1
    assert algebra.tables["below"].apart.degree == 1
    assert algebra.tables["equal"].apart.degree == 2
    assert algebra.tables["equal"].meetings == 1 and algebra.tables["equal"].symmetric
    for both in (
        algebra.logical_and(first, second),
        algebra.logical_or(first, algebra.logical_not(second)),
        algebra.compare("ne", first, second),
    ):
        assert both.top.degree == 2
    chosen = algebra.where(first, algebra.divide(x, y), algebra.divide(x, z))
    # x/z + c (x/y - x/z) over y z: c x (z - y) + x y has degree 3.
    assert (chosen.degree.numerator, chosen.degree.denominator) == (3, 2)
    assert algebra.where(first, second, first).top.degree >= 2


def test_what_a_table_hides_of_zeros(algebra: FreeDegreeAlgebra) -> None:
    count = algebra.cast(algebra.integers(np.zeros((1, 1, 3), dtype=np.int64)), "field")
    one = algebra.constant(Fraction(1))
    assert count.sign.divides
    assert algebra.maximum(count, one).sign.divides
    assert not algebra.minimum(count, one).sign.divides
    assert not algebra.subtract(algebra.sqrt(count), one).sign.divides
    assert not algebra.subtract(algebra.exp(count), one).sign.divides
    assert Sign.POSITIVE in algebra.exp(count).sign


def test_an_order_is_an_argument_of_a_table_and_its_places_are_integers(
    algebra: FreeDegreeAlgebra,
) -> None:
    x, y = algebra.fresh("x", (2, 3)), algebra.fresh("y", (2, 3))
    places = algebra.order(algebra.multiply(x, y), 1, True)
    algebra.order(x, 1, False)
    assert algebra.sorts and not algebra.ordered
    assert (places.kind, places.top.degree, places.top.height_log2) == ("int", 0, math.log2(3))
    assert (algebra.tables["descending"].entries, algebra.tables["ascending"].entries) == (6, 6)
    assert algebra.tables["descending"].apart.degree == 2
    # No draw needs to show that such a place is 0, so it is no divisor.
    assert not places.sign.divides
    assert algebra.take_along(x, 1, places).top.degree == 1


def _integers(algebra: FreeDegreeAlgebra, bits: int = 1) -> DegreeValue:
    drawn = algebra.fresh("n", (3,), kind="int")
    return algebra.cast(replace(drawn, top=Polynomial(height_log2=float(bits))), "field")


@pytest.mark.parametrize(
    ("bits", "comparison", "whole"),
    [(20, "eq", True), (21, "eq", False), (7, "lt", True), (8, "lt", False), (8, "ne", True)],
)
def test_small_whole_numbers_are_compared_as_they_are(
    bits: int, comparison: Comparison, whole: bool, algebra: FreeDegreeAlgebra
) -> None:
    algebra.site = "here"
    outcome = algebra.compare(comparison, _integers(algebra, bits), _integers(algebra))
    assert (algebra.whole == {"here"}) == whole
    assert algebra.compares != whole
    algebra.cast(outcome, "int")
    assert algebra.ordered != whole


@pytest.mark.parametrize(
    "made",
    [
        lambda a, n: a.divide(n, a.constant(Fraction(3))),
        lambda a, n: a.multiply(n, a.fresh("x", (3,))),
        lambda a, n: a.maximum(n, a.constant(Fraction(2))),
        lambda a, n: a.exp(n),
        lambda a, n: a.sqrt(n),
        lambda a, n: a.where(a.compare("lt", a.fresh("x", (3,)), n), n, n),
    ],
)
def test_other_numbers_are_arguments(
    made: Callable[[FreeDegreeAlgebra, DegreeValue], DegreeValue], algebra: FreeDegreeAlgebra
) -> None:
    algebra.site = "made"
    number = made(algebra, _integers(algebra))
    algebra.site = "here"
    algebra.compare("eq", number, algebra.constant(Fraction(1)))
    assert "here" not in algebra.whole and algebra.compares


def test_one_other_number_at_a_site_takes_it_away(algebra: FreeDegreeAlgebra) -> None:
    algebra.site = "here"
    zero = algebra.constant(Fraction(0))
    algebra.compare("eq", _integers(algebra), zero)
    algebra.compare("eq", algebra.fresh("x", (3,)), zero)
    algebra.compare("eq", _integers(algebra), zero)
    assert not algebra.whole


def test_weighted_counts_are_arguments() -> None:
    algebra = FreeDegreeAlgebra({3: 1})
    algebra.site = "here"
    algebra.compare("eq", algebra.sum(_integers(algebra), (0,)), algebra.constant(Fraction(0)))
    assert not algebra.whole and algebra.compares


def test_a_decision_by_an_order_depends_on_the_places_of_its_numbers() -> None:
    algebra = LikelyPlaceAlgebra({1}, {3: ((1, 1, 1),)})
    number = algebra.integers(np.zeros((1, 1, 4), dtype=np.int64))
    sums = algebra.sum(algebra.fresh("x", (4, 3)), (1,))
    first = algebra.compare("eq", algebra.order(sums, 0, True), number)
    assert first.top.degree == 1
    assert algebra.in_decisions == 1
    # A number of places decides nothing that few places do not show.
    count = algebra.sum(algebra.integers(np.zeros((1, 1, 3), dtype=np.int64)), (0,))
    assert algebra.compare("eq", count, algebra.integers(np.zeros((1, 1)))).top.degree == 0


def test_places_are_counted_of_all_that_is_compared() -> None:
    algebra = PlaceDegreeAlgebra({1}, {3: ((1, 1, 1),)})
    algebra.site = "here"
    algebra.compare("eq", algebra.fresh("x", (3,)), algebra.fresh("y", (3,)))
    algebra.order(algebra.fresh("x", (3, 2)), 1, True)
    assert not algebra.whole
    assert {"equal", "descending"} <= algebra.arguments.keys()
