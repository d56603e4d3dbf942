"""Degrees over tables, and what a draw of them may accept falsely."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from pitcheck.algebra.bound.degree_bounds import Heights
from pitcheck.algebra.bound.degree_values import DegreeValue, Sign
from pitcheck.algebra.bound.free_degrees import FreeDegreeAlgebra

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
