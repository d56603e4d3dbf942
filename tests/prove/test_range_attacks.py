"""Conditions that ranges and signs seem to decide: each pair is as near to a decided one as can be.

``right`` is computed by hand: whether what is doubled is ever chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import msgspec
import pytest
from zoo.builder import Builder

from pitcheck.algebra.bound.degree_values import Sign
from pitcheck.algebra.bound.degrees import DegreeAlgebra
from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Operand, Plan

N = 12
Condition = Callable[[Builder], str]


def _whole(b: Builder, kind: str, *inputs: Operand) -> str:
    """Append an operator on integers. The builder takes a literal for a floating-point number."""
    name: str = b.op("add" if kind in {"remainder", "floor_divide"} else kind, *inputs)
    b.tensors[name] = msgspec.structs.replace(b.tensors[name], dtype="int64")
    b.operators[-1] = msgspec.structs.replace(b.operators[-1], kind=kind)
    return name


def _order(b: Builder) -> str:
    _, order = b.op("sort", b.input("x", (N,)), axis=0, out=("sorted", "order"))
    return str(order)


def _places(b: Builder) -> str:
    """Return the places 0, 1, ... of a sorted tensor, in its order."""
    order = _order(b)
    return str(b.op("gather", b.op("positions", "x", axis=0, offset=0), order, axis=0))


def _plan(condition: Condition, doubled: str = "") -> Plan:
    """Return a where a condition holds, else b; ``doubled`` is one of both."""
    b = Builder("attacks", {"device": 1})
    holds = condition(b)
    chosen = [
        b.op("mul", b.input(name, (N,)), Number(2 if name == doubled else 1)) for name in ("a", "b")
    ]
    b.output(b.op("where", holds, *chosen, out="y"))
    return b.plan()


def _of_places(kind: str, number: int, comparison: str, other: int) -> Condition:
    """Return a condition on an operator of places, counted from 1, and a number."""

    def condition(b: Builder) -> str:
        counted = _whole(b, "add", _places(b), Number(1))
        return str(b.op(comparison, _whole(b, kind, counted, Number(number)), Number(other)))

    return condition


def _is_another_order(of: str) -> Condition:
    """Return a condition that fails for one order of the inputs alone, among 12!."""

    def condition(b: Builder) -> str:
        order, counted = _order(b), b.op("positions", "x", axis=0, offset=0)
        moved = _whole(b, "add", _whole(b, "mul", counted, Number(5)), Number(3))
        apart = _whole(b, "sub", order, _whole(b, "remainder", moved, Number(N)))
        found = _whole(b, "mul", apart, apart)
        if of == "quotient":
            found = _whole(b, "floor_divide", _whole(b, "add", found, Number(1)), Number(2))
        if of == "remainder":
            found = _whole(b, "remainder", _whole(b, "add", found, Number(999)), Number(999))
        zero = Number(0) if of == "integers" else b.constant("zero", 0.0)
        differs = b.op("gt", found, zero)
        some = str(b.op("slice", differs, axis=0, start=0, stop=1))
        for i in range(1, N):
            each = b.op("slice", differs, axis=0, start=i, stop=i + 1)
            some = str(b.op("logical_or", some, each))
        return some

    return condition


def _not_a_number(b: Builder) -> str:
    """Return a condition that fails where a square is NaN: of a difference of infinities."""
    hidden = b.op("gt", b.input("z", (N,)), Number(0))
    masked = b.op("where", hidden, Number("-inf"), b.input("x", (N,)))
    return str(b.op("ge", b.op("square", b.op("sub", masked, masked)), b.constant("zero", 0.0)))


def _over_infinity(b: Builder) -> str:
    """Return a condition that fails where a positive number is divided by infinity."""
    positive = b.op("add", b.op("square", b.input("z", (N,))), Number(1))
    hidden = b.op("gt", "z", Number(0))
    limit = b.op("where", hidden, Number("inf"), b.input("x", (N,)))
    share = b.op("div", positive, b.op("maximum", positive, limit))
    return str(b.op("gt", share, b.constant("zero", 0.0)))


ATTACKS: dict[str, tuple[Condition, str, bool]] = {
    "a remainder by what a place reaches": (_of_places("remainder", N, "ne", 0), "b", False),
    "a remainder by one more": (_of_places("remainder", N + 1, "ne", 0), "b", True),
    "a remainder by less": (_of_places("remainder", 7, "gt", 0), "b", False),
    "a quotient that is 0 but once": (_of_places("floor_divide", N, "eq", 0), "b", False),
    "a quotient that is always 0": (_of_places("floor_divide", N + 1, "eq", 0), "b", True),
    "one of all orders": (_is_another_order("integers"), "b", False),
    "one of all orders, as numbers": (_is_another_order("numbers"), "b", False),
    "one of all orders, by quotients": (_is_another_order("quotient"), "b", False),
    "one of all orders, by remainders": (_is_another_order("remainder"), "b", False),
    "a square that is no number": (_not_a_number, "b", False),
    "a quotient by infinity": (_over_infinity, "b", False),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_only_what_is_never_chosen_may_differ(name: str) -> None:
    condition, doubled, right = ATTACKS[name]
    pair = _plan(condition), _plan(condition, doubled)
    verdict = check(*pair, Options(seed=1, explain=False)).verdict
    assert (verdict == "equivalent") == right
    assert not (right and verdict == "mismatch")


def test_a_quotient_of_positive_places_may_be_0() -> None:
    algebra = DegreeAlgebra()
    x = algebra.fresh("x", (4,))
    places = algebra.take_along(algebra.arange(x, 0), 0, algebra.order(x, 0, descending=False))
    counted = algebra.add(places, algebra.constant(Fraction(1), "int"))
    assert Sign.NEVER_ZERO in counted.sign
    for operation in (algebra.floor_divide, algebra.remainder):
        sign = operation(counted, algebra.constant(Fraction(4), "int")).sign
        assert Sign.NONNEGATIVE in sign
        assert not sign & (Sign.POSITIVE | Sign.NEVER_ZERO)
