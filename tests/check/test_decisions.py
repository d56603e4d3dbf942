"""Decisions between numbers: plans that decide otherwise only where few inputs lead. None may be called equivalent; plans that decide alike are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from verdicts import proven
from zoo.builder import Builder

from pitcheck.check.options import Options
from pitcheck.check.run import check
from pitcheck.plan.model import Number, Plan

SEEDS = range(3)


def _plan(steps: Callable[[Builder, str], str], shape: tuple[int, ...] = (4, 6), hinted: bool = False) -> Plan:
    """One input x, and what ``steps`` make of it."""
    b = Builder("decides")
    x = b.input("x", shape)
    b.output(b.op("identity", steps(b, x), out="y", **({"hint": hinted} if hinted else {})))
    return b.plan()


def _column(b: Builder, x: str, i: int) -> str:
    return b.op("slice", x, axis=1, start=i, stop=i + 1)


def _unchanged(b: Builder, x: str) -> str:
    return b.op("mul", x, Number(1))


def never_equivalent(reference: Plan, parallel: Plan) -> None:
    """Whatever the seed."""
    for seed in SEEDS:
        assert check(reference, parallel, Options(seed=seed)).verdict != "equivalent"


# --- thresholds


def _doubled_where(kind: str, number: Any, shift: Any = 0, scale: Any = 1) -> Plan:
    def steps(b: Builder, x: str) -> str:
        y = b.op("mul", b.op("sub", x, Number(shift)), Number(scale))
        return b.op("where", b.op(kind, y, Number(number)), b.op("mul", x, Number(2)), x)

    return _plan(steps)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (("gt", 3), ("ge", 3)),
        (("lt", -2), ("le", -2)),
        (("gt", 3), ("gt", 4)),
        (("gt", 3), ("gt", "3001/1000")),
        (("gt", 100000), ("gt", 200000)),
        (("gt", "1/1000"), ("gt", "2/1000")),
        (("gt", 6, 0, 2), ("gt", 7, 0, 2)),
        (("lt", 0, 5), ("lt", 0, 6)),
        (("eq", 3), ("eq", 4)),
        (("ne", 3), ("ne", 2)),
    ],
)
def test_other_threshold(right: tuple[Any, ...], wrong: tuple[Any, ...]) -> None:
    if right[0] not in ("eq", "ne"):
        proven(_doubled_where(*right), _doubled_where(*right))
    never_equivalent(_doubled_where(*right), _doubled_where(*wrong))


def test_threshold_of_a_sum() -> None:
    def steps(number: int) -> Callable[[Builder, str], str]:
        return lambda b, x: b.op("where", b.op("gt", b.op("sum", x, axes=(1,), keepdim=True), Number(number)), b.op("mul", x, Number(2)), x)

    proven(_plan(steps(1000)), _plan(steps(1000)))
    never_equivalent(_plan(steps(1000)), _plan(steps(1100)))


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (0, 6), (-1000, 1000)])
def test_clamp_between(low: int, high: int) -> None:
    def steps(low: int, high: int) -> Callable[[Builder, str], str]:
        return lambda b, x: b.op("clamp", x, min=low, max=high)

    proven(_plan(steps(low, high)), _plan(steps(low, high)))
    never_equivalent(_plan(steps(low, high)), _plan(steps(low, high + 1)))
    never_equivalent(_plan(steps(low, high)), _plan(lambda b, x: b.op("clamp", x, max=high)))


def test_sum_over_ranks_that_decides() -> None:
    """The terms of a sum over ranks are any numbers; what is decided by their sum is decided on all ranks alike."""

    def spread(threshold: int) -> Plan:
        b = Builder("decides", {"tp": 2})
        x, w = b.input("x", (4, 3), {1: "tp"}), b.parameter("w", (3, 6), {0: "tp"})
        h = b.op("all_reduce", b.op("matmul", x, w), group="tp")
        b.output(b.op("where", b.op("gt", h, Number(threshold)), b.op("mul", h, Number(2)), h, out="y"))
        return b.plan()

    r = Builder("decides")
    h = r.op("matmul", r.input("x", (4, 6)), r.parameter("w", (6, 6)))
    r.output(r.op("where", r.op("gt", h, Number(0)), r.op("mul", h, Number(2)), h, out="y"))
    proven(r.plan(), spread(0))
    never_equivalent(r.plan(), spread(1))


# --- conditions made of many


SIGNS = {"alike": (1,) * 14, "mixed": (1, -1, -1, 1, -1, 1, 1, 1, -1, -1, 1, -1, 1, -1)}


def _each(b: Builder, x: str, signs: Sequence[int]) -> list[str]:
    return [b.op("gt" if sign > 0 else "lt", _column(b, x, i), Number(0)) for i, sign in enumerate(signs)]


def _nested(b: Builder, x: str, signs: Sequence[int]) -> str:
    y = b.op("mul", x, Number(2))
    for condition in _each(b, x, signs):
        y = b.op("where", condition, y, x)
    return y


def _anded(b: Builder, x: str, signs: Sequence[int]) -> str:
    every, *rest = _each(b, x, signs)
    for condition in rest:
        every = b.op("logical_and", every, condition)
    return b.op("where", every, b.op("mul", x, Number(2)), x)


def _ored(b: Builder, x: str, signs: Sequence[int]) -> str:
    some, *rest = _each(b, x, signs)
    for condition in rest:
        some = b.op("logical_or", some, condition)
    return b.op("where", some, x, b.op("mul", x, Number(2)))


def _cast(b: Builder, x: str, signs: Sequence[int]) -> str:
    every, *rest = (b.op("cast", condition, dtype="float32") for condition in _each(b, x, signs))
    for factor in rest:
        every = b.op("mul", every, factor)
    return b.op("add", x, every)


def _rectified(b: Builder, x: str, signs: Sequence[int], kind: str) -> str:
    every, *rest = (b.op("relu", b.op("mul", _column(b, x, i), Number(sign))) for i, sign in enumerate(signs))
    for factor in rest:
        every = b.op(kind, every, factor)
    return b.op("add", x, every)


MANY: dict[str, Callable[[Builder, str, Sequence[int]], str]] = {
    "nested": _nested,
    "and": _anded,
    "or": _ored,
    "cast": _cast,
    "product": lambda b, x, signs: _rectified(b, x, signs, "mul"),
    "minimum": lambda b, x, signs: _rectified(b, x, signs, "minimum"),
}


@pytest.mark.parametrize("signs", SIGNS)
@pytest.mark.parametrize("how", MANY)
def test_many_conditions(how: str, signs: str) -> None:
    def steps(b: Builder, x: str) -> str:
        return MANY[how](b, x, SIGNS[signs])

    plan = _plan(steps, (2, 14))
    never_equivalent(_plan(_unchanged, (2, 14)), plan)
    if signs == "alike":
        assert check(plan, plan, Options(seed=1)).verdict == "equivalent"
