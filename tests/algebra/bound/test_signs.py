"""Facts about the sign and the size of a number, against numbers that NumPy computes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pitcheck.algebra.bound.degree_values import ABOVE_ZERO, DegreeValue, Sign
from pitcheck.algebra.bound.degrees import DegreeAlgebra
from pitcheck.algebra.bound.signs import SignAlgebra
from pitcheck.ops.registry import evaluate

SHAPE = (4,)
LARGEST = 300
"""The numbers of which float64 holds the exponential."""
LEAST = 1e-100
"""The positive numbers of which float64 holds products."""
NEGATIVE_INFINITY = float("-inf")
Pair = tuple[DegreeValue, Any]
"""A value with its facts, and numbers that it may be."""

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": np.negative,
    "exp": np.exp,
    "square": np.square,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "abs": np.abs,
}
COMPARISONS = {"gt": np.greater, "ge": np.greater_equal, "lt": np.less, "ne": np.not_equal}


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max())
    return e / e.sum()


def leaf(algebra: SignAlgebra, name: str, numbers: Any) -> Pair:
    if name == "x":
        return algebra.fresh("x", SHAPE), numbers
    number = NEGATIVE_INFINITY if name == "hidden" else int(name)
    constant = algebra.expand(algebra.constant(float(number)), SHAPE)
    return constant, np.full(SHAPE, float(number))


def grown(algebra: SignAlgebra, pool: list[Pair], step: tuple[str, int, int]) -> Pair:
    """Apply one operator to values of a pool."""
    kind, first, second = step
    (a, x), (b, y) = pool[first % len(pool)], pool[second % len(pool)]
    if kind in BINARY:
        return evaluate(algebra, kind, [a, b], {})[0], BINARY[kind](x, y)
    if kind in UNARY:
        return evaluate(algebra, kind, [a], {})[0], UNARY[kind](x)
    if kind in COMPARISONS:
        chooser = evaluate(algebra, kind, [a, b], {})[0]
        chosen = evaluate(algebra, "where", [chooser, a, b], {})[0]
        return chosen, np.where(COMPARISONS[kind](x, y), x, y)
    if kind == "softmax":
        return evaluate(algebra, "softmax", [a], {"axis": 0})[0], softmax(x)
    total = evaluate(algebra, "sum", [a], {"axes": (0,), "keepdim": True})[0]
    return algebra.expand(total, SHAPE), np.broadcast_to(x.sum(), SHAPE)


KINDS = (*BINARY, *UNARY, *COMPARISONS, "softmax", "sum")


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(KINDS), st.integers(0, 9), st.integers(0, 9)),
        min_size=1,
        max_size=6,
    ),
    numbers=st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0]), min_size=4, max_size=4),
)
def test_no_number_contradicts_what_is_said(
    steps: list[tuple[str, int, int]], numbers: list[float]
) -> None:
    algebra = SignAlgebra()
    pool = [leaf(algebra, name, np.array(numbers)) for name in ("x", "hidden", "0", "2")]
    with np.errstate(all="ignore"):
        for step in steps:
            pool.append(grown(algebra, pool, step))
            sizes = np.abs(pool[-1][1][np.isfinite(pool[-1][1])])
            assume(sizes.max(initial=0) < LARGEST)
            assume(sizes[sizes > 0].min(initial=1) > LEAST)
    for value, result in pool[4:]:
        defined = result[~np.isnan(result)]
        assert Sign.NEVER_ZERO not in value.sign or (np.abs(defined) > 0).all()
        assert Sign.NONNEGATIVE not in value.sign or (defined >= 0).all()


@pytest.mark.parametrize(
    ("kind", "operands", "expected"),
    [
        ("exp", ["x"], {"NEVER_ZERO", "FINITE", "BELOW_INFINITY"}),
        ("exp", ["hidden"], {"FINITE", "BELOW_INFINITY"}),
        ("add", ["x", "hidden"], {"BELOW_INFINITY"}),
        ("sub", ["hidden", "x"], {"BELOW_INFINITY"}),
        ("sub", ["x", "hidden"], set()),
        ("neg", ["hidden"], set()),
        ("mul", ["hidden", "x"], set()),
        ("div", ["x", "hidden"], set()),
        ("maximum", ["x", "hidden"], {"BELOW_INFINITY"}),
        ("minimum", ["x", "2"], {"FINITE", "BELOW_INFINITY"}),
        ("tanh", ["hidden"], set()),
        ("abs", ["x"], {"FINITE", "BELOW_INFINITY"}),
        ("abs", ["2"], {"NEVER_ZERO", "FINITE", "BELOW_INFINITY"}),
        ("abs", ["hidden"], set()),
    ],
)
def test_what_is_finite(kind: str, operands: list[str], expected: set[str]) -> None:
    algebra = SignAlgebra()
    values = [leaf(algebra, name, None if name == "x" else np.zeros(4))[0] for name in operands]
    sign = evaluate(algebra, kind, values, {})[0].sign
    asked = (Sign.NEVER_ZERO, Sign.FINITE, Sign.BELOW_INFINITY)
    assert {str(fact.name) for fact in asked if fact in sign} == expected


def test_a_softmax_of_what_is_hidden_may_be_0() -> None:
    algebra = SignAlgebra()
    x, hidden = (leaf(algebra, name, np.zeros(4))[0] for name in ("x", "hidden"))
    chosen = algebra.where(algebra.compare("gt", x, x), x, hidden)
    for value, positive in ((x, True), (chosen, False)):
        sign = evaluate(algebra, "softmax", [value], {"axis": 0})[0].sign
        assert (Sign.NEVER_ZERO in sign) is positive
        assert Sign.FINITE in sign


def test_numbers_that_are_drawn_positive_are_bounded_as_any_are() -> None:
    algebra = DegreeAlgebra()
    anything, positive = (algebra.fresh("x", (2,), domain=domain) for domain in ("any", "positive"))
    assert positive.sign & ABOVE_ZERO == ABOVE_ZERO
    assert anything.sign & ABOVE_ZERO != ABOVE_ZERO
    assert positive.top == anything.top
    assert not algebra.divisions


@pytest.mark.parametrize(
    ("offset", "divisor", "added", "guarded"),
    [
        (0, 3, 1, False),
        (5, 3, 1, False),
        (-1, 3, 1, True),
        (0, -3, 1, True),
        (0, 3, 0, True),
        (0, 3, -1, True),
    ],
)
def test_a_logarithm_of_counted_places_needs_no_guard_if_it_is_of_positive_numbers(
    offset: int, divisor: int, added: int, guarded: bool
) -> None:
    algebra = SignAlgebra()
    places = algebra.add(
        algebra.arange(algebra.fresh("x", SHAPE), 0), algebra.constant(Fraction(offset), "int")
    )
    by = algebra.cast(algebra.constant(Fraction(divisor)), "int")
    steps = algebra.cast(algebra.floor_divide(places, by), "field")
    result = algebra.log(algebra.add(steps, algebra.constant(Fraction(added))))
    assert bool(algebra.guards) == guarded
    assert (Sign.FINITE in result.sign) == (not guarded)


def test_the_absolute_value_of_what_is_positive_is_positive() -> None:
    algebra = SignAlgebra()
    x = algebra.fresh("x", SHAPE)
    total = evaluate(algebra, "sum", [algebra.exp(x)], {"axes": (0,)})[0]
    for value, positive in ((total, True), (algebra.negate(total), False), (x, False)):
        sign = evaluate(algebra, "abs", [value], {})[0].sign
        assert (sign & ABOVE_ZERO == ABOVE_ZERO) is positive
        assert (
            Sign.FINITE
            in evaluate(algebra, "log", [evaluate(algebra, "abs", [value], {})[0]], {})[0].sign
        ) is positive


@pytest.mark.parametrize(
    ("comparison", "decided"),
    [("ge", False), ("gt", False), ("ne", True), ("lt", True), ("le", True), ("eq", True)],
)
def test_a_choice_is_decided_as_it_is_where_a_number_has_no_value(
    comparison: str, decided: bool
) -> None:
    """Without a value x >= 0 is false: where(x >= 0, x, 0) is 0 there though x is never 0."""
    algebra = SignAlgebra()
    x, zero = algebra.exp(algebra.fresh("x", SHAPE)), leaf(algebra, "0", np.zeros(4))[0]
    chosen = (x, zero) if comparison in {"ge", "gt", "ne"} else (zero, x)
    outcome = evaluate(algebra, comparison, [x, zero], {})[0]
    sign = evaluate(algebra, "where", [outcome, *chosen], {})[0].sign
    assert (Sign.NEVER_ZERO in sign) is decided
