"""Tables of random residues in place of functions: the laws that are kept, and no others."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.free_functions import FreeAlgebra
from pitcheck.algebra.value import Value
from pitcheck.errors import UnsupportedError

PRIMES = (2147481311, 2147366399, 2147260631)
"""Primes modulo which 2, 3 and 5 are squares."""


def _algebra(**more: object) -> FreeAlgebra:
    return FreeAlgebra(np, Chain(PRIMES, linked=False), 1, (0, 1), **more)


@pytest.fixture
def algebra() -> FreeAlgebra:
    return _algebra()


def _number(algebra: FreeAlgebra, number: float | int) -> Value:
    exact = number if isinstance(number, float) else Fraction(number)
    return algebra.expand(algebra.constant(exact), (3,))


def _same(algebra: FreeAlgebra, a: Value, b: Value) -> bool:
    return not algebra.differs(a, b).any()


def test_equal_arguments_have_equal_values_at_every_level_of_a_draw(algebra: FreeAlgebra) -> None:
    x = algebra.fresh("x", (3,))
    first = algebra.exp(x)
    assert _same(algebra, first, algebra.exp(algebra.add(x, _number(algebra, 0))))
    assert _same(_algebra(), first, _algebra().exp(x))
    assert first.data.shape[0] == len(PRIMES)
    assert len(np.unique(first.data)) == first.data.size
    assert algebra.differs(first, algebra.exp(algebra.fresh("y", (3,)))).all()


@pytest.mark.parametrize(
    ("law", "holds"),
    [
        (lambda a, x, y: (a.exp(a.subtract(x, y)), a.divide(a.exp(x), a.exp(y))), True),
        (lambda a, x, y: (a.exp(a.subtract(x, y)), a.multiply(a.exp(x), a.exp(y))), False),
        (lambda a, x, y: (a.exp(a.negate(a.negate(x))), a.exp(x)), True),
        (lambda a, x, y: (a.exp(a.subtract(x, x)), _number(a, 1)), True),
        (
            lambda a, x, y: (a.exp(a.multiply(a.constant(Fraction(3)), x)), a.power(a.exp(x), 3)),
            True,
        ),
        (
            lambda a, x, y: (a.exp(a.multiply(a.constant(Fraction(3)), x)), a.power(a.exp(x), 2)),
            False,
        ),
        (lambda a, x, y: (a.exp(a.multiply(a.extent(x, (0,)), x)), a.power(a.exp(x), 3)), False),
        (lambda a, x, y: (a.exp(a.add(x, y)), a.multiply(a.exp(x), a.exp(y))), False),
        (
            lambda a, x, y: (
                a.exp(a.add(x, a.subtract(x, y))),
                a.divide(a.power(a.exp(x), 2), a.exp(y)),
            ),
            True,
        ),
        (lambda a, x, y: (a.log(a.exp(x)), x), True),
        (lambda a, x, y: (a.log(a.multiply(x, y)), a.add(a.log(x), a.log(y))), True),
        (lambda a, x, y: (a.log(a.multiply(x, y)), a.subtract(a.log(x), a.log(y))), False),
        (lambda a, x, y: (a.log(_number(a, 1)), _number(a, 0)), True),
        (lambda a, x, y: (a.multiply(x, a.log(y)), a.multiply(x, a.log(a.negate(y)))), False),
        (lambda a, x, y: (a.power(a.sqrt(a.power(x, 2)), 2), a.power(x, 2)), True),
        (lambda a, x, y: (a.sqrt(a.power(x, 2)), x), False),
        (lambda a, x, y: (a.power(a.sqrt(x), 2), x), False),
        (
            lambda a, x, y: (
                a.multiply(a.sqrt(a.power(x, 2)), a.sqrt(a.power(y, 2))),
                a.sqrt(a.power(a.multiply(x, y), 2)),
            ),
            True,
        ),
        (lambda a, x, y: (a.maximum(x, y), a.maximum(y, x)), True),
        (lambda a, x, y: (a.maximum(x, y), a.minimum(y, x)), False),
        (lambda a, x, y: (a.maximum(x, y), a.negate(a.minimum(a.negate(y), a.negate(x)))), True),
        (lambda a, x, y: (a.maximum(x, x), x), True),
        (lambda a, x, y: (a.maximum(x, a.constant(-math.inf)), x), True),
        (lambda a, x, y: (a.function("cos", x), a.function("cos", a.negate(x))), True),
        (lambda a, x, y: (a.function("sin", x), a.function("sin", a.negate(x))), False),
    ],
)
def test_laws(law: Callable[..., tuple[Value, Value]], holds: bool, algebra: FreeAlgebra) -> None:
    x, y = algebra.fresh("x", (3,)), algebra.fresh("y", (3,))
    assert _same(algebra, *law(algebra, x, y)) == holds


def test_a_sum_of_which_one_term_is_not_0_is_split(algebra: FreeAlgebra) -> None:
    x, m = algebra.fresh("x", (3,)), algebra.fresh("m", ())
    picked = algebra.integers(np.array([[[False, True, False]]]))
    gap = algebra.where(picked, algebra.subtract(x, m), _number(algebra, 0))
    power = algebra.exp(algebra.sum(gap, (0,)))
    one = algebra.reshape(algebra.slice(x, 0, 1, 2), ())
    assert _same(algebra, power, algebra.divide(algebra.exp(one), algebra.exp(m)))
    every = algebra.exp(algebra.sum(algebra.subtract(x, m), (0,)))
    assert not _same(algebra, every, power)


@pytest.mark.parametrize(
    ("operands", "largest"),
    [
        ((-math.inf, -math.inf), -math.inf),
        ((-math.inf, 3), 3),
        ((math.inf, 3), math.inf),
        ((math.nan, math.inf), math.nan),
        ((2, 2), 2),
    ],
)
def test_a_maximum_is_infinite_where_real_ones_are(
    operands: tuple[float, float], largest: float, algebra: FreeAlgebra
) -> None:
    values = [_number(algebra, n) for n in operands]
    found = algebra.maximum(*values)
    stacked = algebra.concatenate([algebra.reshape(v, (3, 1)) for v in values], 1)
    assert _same(algebra, found, _number(algebra, largest))
    assert _same(algebra, algebra.reduce_max(stacked, 1), found)


def test_nothing_is_left_where_all_is_hidden(algebra: FreeAlgebra) -> None:
    hidden = _number(algebra, -math.inf)
    top = algebra.reduce_max(hidden, 0)
    assert _same(algebra, algebra.exp(hidden), _number(algebra, 0))
    assert _same(algebra, algebra.exp(algebra.subtract(hidden, top)), _number(algebra, math.nan))


@pytest.mark.parametrize(
    "ordered",
    [
        lambda a, x: a.cast(x, "int"),
        lambda a, x: a.multiply(x, _number(a, -math.inf)),
        lambda a, x: a.divide(x, _number(a, 0)),
        lambda a, x: a.divide(_number(a, math.inf), x),
        lambda a, x: a.matmul(a.reshape(x, (1, 3)), a.reshape(_number(a, math.inf), (3, 1))),
    ],
)
def test_what_depends_on_order_is_refused(
    ordered: Callable[[FreeAlgebra, Value], Value], algebra: FreeAlgebra
) -> None:
    with pytest.raises(UnsupportedError, match="order of numbers"):
        ordered(algebra, algebra.fresh("x", (3,)))


def test_infinity_is_compared_and_scaled_by_what_is_positive(algebra: FreeAlgebra) -> None:
    x, hidden = algebra.fresh("x", (3,)), _number(algebra, -math.inf)
    assert algebra.compare("ne", x, hidden).data.all()
    scaled = algebra.multiply(hidden, algebra.constant(Fraction(1, 3)))
    assert _same(algebra, scaled, hidden)
    assert _same(algebra, algebra.divide(algebra.exp(x), hidden), _number(algebra, 0))


@pytest.mark.parametrize(("number", "exact"), [(4, True), (6, True), (19, False), (361, False)])
def test_a_root_of_a_number_is_a_residue_if_its_primes_are_squares(
    number: int, exact: bool
) -> None:
    algebra = _algebra(numbers={"here": [Fraction(number)]})
    algebra.site = "here"
    root = algebra.sqrt(_number(algebra, number))
    assert (root.square is None) == exact
    if number == 4:
        assert _same(algebra, root, _number(algebra, 2))
    assert _same(algebra, algebra.power(root, 2), _number(algebra, number))


def test_a_number_that_is_not_the_argument_is_not_believed() -> None:
    algebra = _algebra(numbers={"here": [Fraction(4)]})
    algebra.site = "here"
    assert algebra.sqrt(algebra.power(algebra.fresh("x", (3,)), 2)).square is not None
