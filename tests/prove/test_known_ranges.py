"""Conditions that known ranges of integers decide need one outcome only; others need both."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.verdicts import said
from zoo.builder import Builder

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.execution.judge import judge_often
from pitcheck.plan.model import Number, Plan, Tensor
from pitcheck.prove.known_ranges import _decided

EXPERTS, ROWS, WIDTH = 4, 12, 2
Condition = Callable[[Builder, str], str]
COMPARISONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def whole(b: Builder, kind: str, place: str, number: int) -> str:
    """An integer operator on places, which are integers."""
    b.add(Tensor(f"{kind}:{place}", b.tensors[place].shape, "int64"))
    found: str = b.op(kind, place, Number(number), out=f"{kind}:{place}")
    return found


def plans(condition: Condition | None, source: str = "topk") -> Plan:
    """Weights where a condition on the chosen experts holds and nothing elsewhere; without one the
    weights themselves.
    """
    b = Builder("route")
    x, w = b.input("x", (ROWS, EXPERTS)), b.input("w", (ROWS, WIDTH))
    if source == "topk":
        values, place = b.op("topk", x, out=["values", "place"], k=WIDTH, axis=1)
    elif source == "sort":
        values, place = b.op("sort", x, out=["values", "place"], axis=1)
        place = b.op("slice", place, axis=1, start=0, stop=WIDTH)
    else:
        values, place = x, b.op("unsqueeze", b.op("argmax", x, axis=1), axis=1)
    y = (
        b.op("mul", w, Number(1), out="y")
        if condition is None
        else b.op("where", condition(b, place), w, b.op("mul", w, Number(0)), out="y")
    )
    b.output(y)
    b.output(b.op("square", values, out="v"))
    return b.plan()


ALWAYS: dict[str, Condition] = {
    "one group": lambda b, p: b.op("eq", whole(b, "floor_divide", p, EXPERTS), Number(0)),
    "below the number": lambda b, p: b.op("lt", p, Number(EXPERTS)),
    "not negative": lambda b, p: b.op("ge", p, Number(0)),
    "a remainder": lambda b, p: b.op("le", whole(b, "remainder", p, 3), Number(2)),
    "both": lambda b, p: b.op(
        "logical_and", b.op("ge", p, Number(0)), b.op("le", p, Number(EXPERTS - 1))
    ),
}
NOT_ALWAYS: dict[str, Condition] = {
    "two groups": lambda b, p: b.op("eq", whole(b, "floor_divide", p, EXPERTS // 2), Number(0)),
    "an expert is left out": lambda b, p: b.op("lt", p, Number(EXPERTS - 1)),
    "the first is left out": lambda b, p: b.op("gt", p, Number(0)),
    "a remainder": lambda b, p: b.op("le", whole(b, "remainder", p, 3), Number(1)),
    "the other group": lambda b, p: b.op("eq", whole(b, "floor_divide", p, EXPERTS), Number(1)),
    "one of both": lambda b, p: b.op(
        "logical_and", b.op("ge", p, Number(0)), b.op("le", p, Number(EXPERTS - 2))
    ),
}


@pytest.mark.parametrize("source", ["topk", "sort", "argmax"])
@pytest.mark.parametrize("name", ALWAYS)
def test_always_true(name: str, source: str) -> None:
    report = check(plans(None, source), plans(ALWAYS[name], source), Options(seed=2))
    assert report.verdict == "equivalent", said(report)


@pytest.mark.parametrize("source", ["topk", "argmax"])
@pytest.mark.parametrize("name", NOT_ALWAYS)
def test_not_always_true(name: str, source: str) -> None:
    pair = plans(None, source), plans(NOT_ALWAYS[name], source)
    assert not judge_often(*pair, range(3)).same
    assert check(*pair, Options(seed=2)).verdict == "mismatch"


@given(*[st.integers(-3, 3)] * 4, st.sampled_from(sorted(COMPARISONS)))
def test_what_is_decided_is_so_for_all(a: int, b: int, c: int, d: int, name: str) -> None:
    first, second = (min(a, b), max(a, b)), (min(c, d), max(c, d))
    pairs = itertools.product(range(first[0], first[1] + 1), range(second[0], second[1] + 1))
    outcomes = {COMPARISONS[name](x, y) for x, y in pairs}
    assert _decided(name, first, second) == (outcomes.pop() if len(outcomes) == 1 else None)  # type: ignore[arg-type]
