"""Degree bounds: by hand, and against the degrees of quotients interpolated along random lines."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from algebra.bound.prime_line import LineAlgebra, is_quotient
from hypothesis import given
from hypothesis import strategies as st

from pitcheck.algebra.bound.degrees import (
    DegreeAlgebra,
    DegreeValue,
    rejected_share,
    trial_error,
    trial_error_log2,
)
from pitcheck.errors import ShapeError, UnsupportedError
from pitcheck.ops.registry import evaluate

PRIMES = (251891639, 503783279, 1007566559, 2015133119)


@pytest.fixture
def algebra() -> DegreeAlgebra:
    return DegreeAlgebra()


def quotient(value: DegreeValue) -> tuple[int, int]:
    return value.degree.numerator, value.degree.denominator


# --- by hand


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        (lambda a, x, y: a.add(x, y), (1, 0)),
        (lambda a, x, y: a.multiply(x, y), (2, 0)),
        (lambda a, x, y: a.divide(x, y), (1, 1)),
        (lambda a, x, y: a.divide(x, a.divide(x, y)), (2, 1)),
        (lambda a, x, y: a.add(a.divide(x, y), x), (2, 1)),
        (lambda a, x, y: a.add(a.divide(x, y), a.divide(y, y)), (1, 1)),
        (lambda a, x, y: a.add(a.divide(x, y), a.divide(y, x)), (2, 2)),
        (lambda a, x, y: a.add(a.divide(x, y), a.flip(a.divide(y, y), 0)), (2, 2)),
        (lambda a, x, y: a.add(a.divide(x, y), a.transpose(a.divide(x, y), (1, 0))), (2, 2)),
        (lambda a, x, y: a.power(x, 3), (3, 0)),
        (lambda a, x, y: a.power(x, -3), (0, 3)),
        (lambda a, x, y: a.power(x, 0), (0, 0)),
        (lambda a, x, y: a.power(a.divide(x, y), 2), (2, 2)),
        (lambda a, x, y: a.negate(x), (1, 0)),
        (lambda a, x, y: a.sum(x, (0, 1)), (1, 0)),
        (lambda a, x, y: a.sum(a.divide(x, y), (1,)), (4, 4)),
        (lambda a, x, y: a.sum(a.divide(x, y), (0, 1)), (16, 16)),
        (lambda a, x, y: a.sum(a.divide(x, a.sum(y, (0,))), (0,)), (1, 1)),
        (lambda a, x, y: a.sum(a.divide(x, a.sum(y, (0,))), (1,)), (4, 4)),
        (lambda a, x, y: a.matmul(x, y), (2, 0)),
        (lambda a, x, y: a.matmul(a.divide(x, y), y), (5, 4)),
        (lambda a, x, y: a.matmul(a.divide(x, a.sum(y, (0, 1))), y), (2, 1)),
        (lambda a, x, y: a.divide(a.divide(x, y), a.divide(x, y)), (1, 1)),
        (lambda a, x, y: a.divide(a.divide(x, y), a.flip(a.divide(x, y), 0)), (2, 2)),
        (lambda a, x, y: a.concatenate([a.divide(x, y), x], 0), (1, 1)),
        (
            lambda a, x, y: a.where(
                a.fresh("c", (4, 4), 1, "any", "bool"), a.divide(x, y), a.multiply(x, y)
            ),
            (2, 1),
        ),
        (
            lambda a, x, y: a.add_at(
                x, 0, a.fresh("i", (3,), 1, "any", "int"), a.fresh("s", (3, 4))
            ),
            (1, 0),
        ),
        (lambda a, x, y: a.take(a.divide(x, y), 0, a.fresh("i", (3,), 1, "any", "int")), (1, 1)),
        (lambda a, x, y: a.multiply(x, a.extent(x, (0,))), (1, 0)),
        (lambda a, x, y: a.divide(x, a.constant(Fraction(3))), (1, 0)),
        (lambda a, x, y: a.multiply(x, a.draw("s", a.arange(x, 1))), (1, 0)),
        (lambda a, x, y: a.gather(a.divide(x, y), np.array([0, 0])), (1, 1)),
        (lambda a, x, y: a.sum(a.stack(a.divide(x, y), np.array([[0, 0, 0]])), (0,)), (3, 3)),
        (lambda a, x, y: a.join([a.divide(x, y), a.multiply(x, y)]), (2, 1)),
        (lambda a, x, y: a.sqrt(a.divide(x, y)), (1, 1)),
    ],
)
def test_degrees_by_hand(
    algebra: DegreeAlgebra, compute: Callable[..., DegreeValue], expected: tuple[int, int]
) -> None:
    assert (
        quotient(compute(algebra, algebra.fresh("x", (4, 4)), algebra.fresh("y", (4, 4))))
        == expected
    )


def test_squares_have_degree_two_and_integers_none(algebra: DegreeAlgebra) -> None:
    assert quotient(algebra.fresh("s", (3,), 1, "square")) == (2, 0)
    assert quotient(algebra.fresh("i", (3,), 1, "any", "int")) == (0, 0)
    with pytest.raises(UnsupportedError, match="even"):
        algebra.fresh("x", (3,), 1, "even")


def test_softmax_over_n_keys(algebra: DegreeAlgebra) -> None:
    """Bound a quotient of one term by n terms, with exponents of the degree of the scores.

    The sum over keys does not multiply denominators.
    """
    x, v = algebra.fresh("x", (5, 8)), algebra.fresh("v", (8, 3))
    e = algebra.exp(x)
    p = algebra.divide(e, algebra.reshape(algebra.sum(e, (1,)), (5, 1)))
    assert (p.degree.top.terms_log2, p.degree.bottom.terms_log2, p.degree.exponent) == (0, 3, 1)
    out = algebra.matmul(p, v).degree
    assert (
        out.numerator,
        out.denominator,
        out.top.terms_log2,
        out.bottom.terms_log2,
        out.bottom.powers,
    ) == (1, 0, 3, 3, 1)
    assert "exp" in out.uses
    assert not ("order" in out.uses or out.heuristic)


def test_terms_multiply_and_add(algebra: DegreeAlgebra) -> None:
    x = algebra.fresh("x", (4, 4))
    e = algebra.exp(x)
    assert algebra.multiply(algebra.add(e, e), algebra.add(e, e)).degree.terms_log2 == 2
    assert algebra.sum(e, (0, 1)).degree.terms_log2 == 4
    assert algebra.matmul(e, e).degree.terms_log2 == 2
    assert algebra.add(x, x).degree.terms_log2 == 0
    assert algebra.add(x, e).degree.terms_log2 == 1


def test_exponents_of_exponents(algebra: DegreeAlgebra) -> None:
    x = algebra.fresh("x", (4,))
    inner = algebra.exp(algebra.multiply(x, x)).degree
    assert inner.exponent == 2
    outer = algebra.exp(algebra.exp(algebra.multiply(x, x))).degree
    assert outer.exponents is not None
    assert outer.exponents.exponent == 2


def test_what_is_used_is_known(algebra: DegreeAlgebra) -> None:
    x = algebra.fresh("x", (4, 4))
    assert "log" in algebra.log(x).degree.uses
    assert algebra.sqrt(x).degree.has_root
    assert "keyed" in algebra.function("erf", x).degree.uses
    decided = algebra.where(
        algebra.compare("lt", x, x), algebra.constant(Fraction(1)), algebra.constant(Fraction(2))
    )
    for value in (
        algebra.maximum(x, x),
        algebra.reduce_max(x, 1),
        algebra.take_along(x, 1, algebra.order(x, 1, False)),
        decided,
    ):
        assert "order" in value.degree.uses
        assert value.degree.heuristic
        assert value.degree.numerator == 1
    for value in (algebra.sqrt(x), algebra.exp(x)):
        assert not value.degree.heuristic
    assert algebra.exp(algebra.log(x)).degree.heuristic


def test_decisions_on_integers_are_given(algebra: DegreeAlgebra) -> None:
    x, i = algebra.fresh("x", (4, 4)), algebra.fresh("i", (4, 4), 1, "any", "int")
    chosen = algebra.where(algebra.compare("lt", i, i), x, algebra.multiply(x, x)).degree
    assert not chosen.uses
    assert chosen.numerator == 2
    assert not algebra.compare(
        "ge", algebra.draw("s", i), algebra.constant(Fraction(1, 2))
    ).degree.uses


def test_roots_are_counted(algebra: DegreeAlgebra) -> None:
    x = algebra.fresh("x", (4, 6))
    root = algebra.sqrt(algebra.sum(algebra.multiply(x, x), (1,)))
    assert (root.degree.roots, root.degree.numerator) == (1, 1)
    column = algebra.reshape(root, (4, 1))
    normed = algebra.divide(x, column)
    assert algebra.multiply(normed, normed).degree.roots == 1
    assert algebra.sum(normed, (1,)).degree.roots == 1
    assert algebra.sum(normed, (0,)).degree.roots == 4
    assert algebra.add(normed, algebra.flip(normed, 0)).degree.roots == 2


# --- error


def test_error_of_a_polynomial_at_all_levels(algebra: DegreeAlgebra) -> None:
    degree = algebra.matmul(algebra.fresh("a", (4, 5)), algebra.fresh("b", (5, 6))).degree
    assert trial_error_log2(degree, degree, PRIMES, [0, 2]) == pytest.approx(
        math.log2(2 / PRIMES[0]) + math.log2(2 / PRIMES[2])
    )
    assert trial_error_log2(degree, degree, PRIMES, []) == 0


def test_error_of_a_quotient_is_cross_multiplied(algebra: DegreeAlgebra) -> None:
    x, y = algebra.fresh("x", (4,)), algebra.fresh("y", (4,))
    a, b = (
        algebra.divide(x, y).degree,
        algebra.divide(algebra.multiply(x, x), algebra.multiply(y, y)).degree,
    )
    assert trial_error_log2(a, b, PRIMES, [1]) == pytest.approx(math.log2(3 / PRIMES[1]))


def test_error_with_a_root_counts_one_level_and_doubles(algebra: DegreeAlgebra) -> None:
    root = algebra.sqrt(algebra.fresh("x", (4,), 1, "square")).degree
    assert trial_error_log2(
        root, algebra.fresh("y", (4,)).degree, PRIMES, [0, 1, 3]
    ) == pytest.approx(math.log2(2 / PRIMES[3]))


def test_more_than_two_roots_are_heuristic(algebra: DegreeAlgebra) -> None:
    one = algebra.sqrt(algebra.fresh("x", (4,))).degree
    two = algebra.multiply(
        algebra.sqrt(algebra.fresh("x", (4,))), algebra.sqrt(algebra.fresh("y", (4,)))
    ).degree
    assert not trial_error(one, one, PRIMES, [0]).heuristic
    assert trial_error(one, two, PRIMES, [0]).heuristic


def test_error_with_two_exponentials(algebra: DegreeAlgebra) -> None:
    """Bound x e^y - z e^u.

    The coefficient degree is 1 over p, the exponent degree 1 over the prime below; there is one
    pair, and the safety factor is 4.
    """
    x, y = algebra.fresh("x", (4,)), algebra.fresh("y", (4,))
    value = algebra.multiply(x, algebra.exp(y)).degree
    expected = math.log2(4 * (1 / PRIMES[3] + 2 * 1 / PRIMES[2]))
    found = trial_error(value, value, PRIMES, [1, 2, 3])
    assert found.log2 == pytest.approx(expected, abs=1.01)
    assert not found.heuristic


def test_more_than_two_exponentials_are_heuristic(algebra: DegreeAlgebra) -> None:
    e = algebra.exp(algebra.fresh("x", (20, 40)))
    ratio = algebra.divide(e, algebra.reshape(algebra.sum(e, (1,)), (20, 1)))
    few, many = ratio.degree, algebra.sum(ratio, (0,)).degree
    assert trial_error(e.degree, e.degree, PRIMES, [1]) == (
        pytest.approx(math.log2(4 * (1 / PRIMES[1] + 2 / PRIMES[0]))),
        False,
    )
    assert trial_error(few, few, PRIMES, [1]).heuristic
    assert trial_error(many, many, PRIMES, [1]).heuristic
    assert trial_error(few, few, PRIMES, [1]).log2 < -10
    assert trial_error(many, many, PRIMES, [1]).log2 < -10


def test_fewer_terms_are_bounded_as_well_as_more() -> None:
    """Bound two layers of tanh(x w), whose exponents have exponentials, too.

    A bound of these by cases that is just of use gives no bound of the whole.
    """

    def error(width: int) -> float:
        algebra = DegreeAlgebra()
        y = algebra.fresh("x", (4, width))
        for layer in range(2):
            y = evaluate(
                algebra, "tanh", [algebra.matmul(y, algebra.fresh(f"w{layer}", (width, width)))], {}
            )[0]
        return trial_error_log2(y.degree, y.degree, PRIMES, [2])

    assert error(2) < -4
    errors = [error(width) for width in range(3, 9)]
    assert all(less <= more < -10 for less, more in pairwise(errors)), errors


def test_a_vacuous_bound_is_zero(algebra: DegreeAlgebra) -> None:
    huge = algebra.power(algebra.fresh("x", ()), 2**40).degree
    assert trial_error_log2(huge, huge, PRIMES, [0, 1, 2, 3]) == 0


def test_rejected_share_counts_elements_instances_and_levels(algebra: DegreeAlgebra) -> None:
    x, y = (
        algebra.fresh("x", (3, 4)),
        algebra.gather(algebra.fresh("y", (3, 4)), np.zeros(5, dtype=np.int64)),
    )
    algebra.divide(x, algebra.multiply(y, y))
    algebra.divide(x, algebra.constant(Fraction(2)))
    assert rejected_share(algebra.divisions, PRIMES) == pytest.approx(
        sum(12 * 5 * 2 / p for p in PRIMES)
    )
    other = DegreeAlgebra()
    other.fresh("s", (10,), 1, "square")
    assert rejected_share(other.divisions, PRIMES) == pytest.approx(sum(10 / p for p in PRIMES))


def test_shapes_that_do_not_fit(algebra: DegreeAlgebra) -> None:
    x, y = algebra.fresh("x", (3, 4)), algebra.fresh("y", (3, 5))
    for compute in (algebra.add, algebra.matmul, lambda a, _: algebra.reshape(a, (5, 2))):
        with pytest.raises(ShapeError):
            compute(x, y)


def test_operators_run(algebra: DegreeAlgebra) -> None:
    """A layer forward and backward has a bound that is of use."""
    x, w, dy = (
        algebra.fresh("x", (3, 4, 6)),
        algebra.fresh("w", (6,)),
        algebra.fresh("dy", (3, 4, 6)),
    )
    (y,) = evaluate(algebra, "rms_norm", [x, w], {"eps": 1e-5})
    for gradient in evaluate(algebra, "rms_norm.backward", [x, w, y, dy], {"eps": 1e-5}):
        assert trial_error_log2(gradient.degree, gradient.degree, PRIMES, [0, 1]) < -20


# --- against interpolation


@dataclass
class Pair:
    bound: DegreeValue
    line: Any


def grow(data: st.DataObject, algebra: DegreeAlgebra, line: LineAlgebra, pairs: list[Pair]) -> None:
    """Add one operation on random operands; all values are 2 x 2."""
    choice = data.draw(
        st.sampled_from(
            [
                "add",
                "subtract",
                "multiply",
                "divide",
                "power",
                "mean",
                "broadcast",
                "matmul",
                "transpose",
                "flip",
                "cat",
                "view",
            ]
        )
    )
    one, other = (data.draw(st.sampled_from(pairs)) for _ in range(2))
    axis = data.draw(st.integers(0, 1))
    shape = [1 if i == axis else 2 for i in range(2)]

    def both(compute: Callable[[Any, Any, Any], Any]) -> Pair:
        return Pair(compute(algebra, one.bound, other.bound), compute(line, one.line, other.line))

    if choice in ("add", "subtract", "multiply", "divide", "matmul"):
        pairs.append(both(lambda a, x, y: getattr(a, choice)(x, y)))
    elif choice == "power":
        exponent = data.draw(st.sampled_from([-1, 2]))
        pairs.append(both(lambda a, x, _: a.power(x, exponent)))
    elif choice == "mean":
        pairs.append(both(lambda a, x, y: a.add(y, a.reshape(a.sum(x, (axis,)), shape))))
    elif choice == "broadcast":
        pairs.append(both(lambda a, x, y: a.divide(y, a.reshape(a.sum(x, (axis,)), shape))))
    elif choice == "transpose":
        pairs.append(both(lambda a, x, _: a.transpose(x, (1, 0))))
    elif choice == "flip":
        pairs.append(both(lambda a, x, _: a.flip(x, axis)))
    elif choice == "cat":
        pairs.append(
            both(
                lambda a, x, y: a.concatenate(
                    [a.slice(x, axis, 0, 1), a.slice(y, axis, 1, 2)], axis
                )
            )
        )
    else:
        pairs.append(both(lambda a, x, _: a.reshape(a.flip(a.reshape(x, (4,)), 0), (2, 2))))


@given(st.data(), st.integers(0, 2**32))
def test_bounds_hold_along_random_lines(data: st.DataObject, seed: int) -> None:
    algebra, line = DegreeAlgebra(), LineAlgebra(64, seed)
    pairs = [Pair(algebra.fresh(n, (2, 2)), line.fresh((2, 2))) for n in "xy"]
    pairs.append(Pair(algebra.fresh("s", (2, 2), 1, "square"), line.fresh((2, 2), squared=True)))
    for _ in range(data.draw(st.integers(1, 6))):
        try:
            grow(data, algebra, line, pairs)
        except ValueError:  # a divisor vanished on the line, by chance or because it is 0
            continue
    for pair in pairs:
        top, bottom = quotient(pair.bound)
        if top + bottom + 2 <= line.points:
            for index in np.ndindex(2, 2):
                assert is_quotient([int(v) for v in pair.line[(slice(None), *index)]], top, bottom)


def test_interpolation_tells_degrees_apart() -> None:
    line = LineAlgebra(20, 1)
    x, y = line.fresh((1,)), line.fresh((1,))
    values = [int(v) for v in line.divide(line.multiply(x, x), y)[:, 0]]
    assert is_quotient(values, 2, 1)
    assert not is_quotient(values, 2, 0)
    assert not is_quotient(values, 1, 1)
