"""Known ranges of integers decide a condition that holds for all integers in them, or for none.

Plans with such conditions are files (tests/attacks/data/decisions).
"""

from __future__ import annotations

import itertools
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zoo.builder import Builder

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Plan
from pitcheck.prove.known_ranges import _decided

COMPARISONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


@given(*[st.integers(-3, 3)] * 4, st.sampled_from(sorted(COMPARISONS)))
def test_what_is_decided_is_so_for_all(a: int, b: int, c: int, d: int, name: str) -> None:
    first, second = (min(a, b), max(a, b)), (min(c, d), max(c, d))
    pairs = itertools.product(range(first[0], first[1] + 1), range(second[0], second[1] + 1))
    outcomes = {COMPARISONS[name](x, y) for x, y in pairs}
    assert _decided(name, first, second) == (outcomes.pop() if len(outcomes) == 1 else None)  # type: ignore[arg-type]


def _chosen(comparison: str, number: int) -> Plan:
    """Return a where b is not, by the places of ordered numbers, counted from 2."""
    b = Builder("places", {"device": 1})
    x, first, second = (b.input(name, (12,)) for name in ("x", "a", "b"))
    _, order = b.op("sort", x, axis=0, out=("sorted", "order"))
    counted = b.op("positions", x, axis=0, offset=2)
    place = b.op("gather", counted, order, axis=0)
    holds = b.op(comparison, place, Number(number))
    b.output(b.op("where", holds, first, second, out="y"))
    return b.plan()


def _all_of_first() -> Plan:
    b = Builder("places", {"device": 1})
    for name in ("x", "b"):
        b.input(name, (12,))
    b.output(b.op("identity", b.input("a", (12,)), out="y"))
    return b.plan()


@pytest.mark.parametrize(
    ("comparison", "number", "verdict"),
    [
        ("ge", 2, "equivalent"),
        ("lt", 14, "equivalent"),
        ("ge", 3, "mismatch"),
        ("lt", 13, "mismatch"),
    ],
)
def test_places_of_ordered_numbers_lie_along_their_axis(
    comparison: str, number: int, verdict: str
) -> None:
    pair = _chosen(comparison, number), _all_of_first()
    assert check(*pair, Options(seed=1)).verdict == verdict
    assert check(*reversed(pair), Options(seed=1)).verdict == verdict


def _signed(kind: str, comparison: str, *, mirrored: bool = False, twice: str = "") -> Plan:
    """Return a where a function of x compares with 0, else b; ``twice`` is doubled."""
    b = Builder("signs", {"device": 1})
    x, first, second = (b.input(name, (6,)) for name in ("x", "a", "b"))
    chosen = [b.op("mul", each, Number(2 if each == twice else 1)) for each in (first, second)]
    found, zero = b.op(kind, x), b.constant("zero", 0.0)
    holds = b.op(comparison, *((zero, found) if mirrored else (found, zero)))
    b.output(b.op("where", holds, *chosen, out="y"))
    return b.plan()


@pytest.mark.parametrize(
    ("kind", "comparison", "mirrored", "chosen"),
    [
        ("exp", "ge", False, "a"),
        ("exp", "gt", False, "a"),
        ("exp", "lt", False, "b"),
        ("exp", "le", False, "b"),
        ("exp", "le", True, "a"),
        ("square", "ge", False, "a"),
        ("square", "gt", True, "b"),
    ],
)
def test_what_is_never_negative_compares_with_0_in_one_way(
    kind: str, comparison: str, mirrored: bool, chosen: str
) -> None:
    """No draw shows the other outcome, and none needs to."""
    plan = _signed(kind, comparison, mirrored=mirrored)
    assert check(plan, plan, Options(seed=1)).verdict == "equivalent"
    wrong = _signed(kind, comparison, mirrored=mirrored, twice=chosen)
    assert check(plan, wrong, Options(seed=1)).verdict == "mismatch"


@pytest.mark.parametrize(
    ("kind", "comparison", "twice"),
    [
        ("square", "gt", "b"),  # it is 0 where x is
        ("square", "le", "a"),
        ("sin", "ge", "b"),
        ("log", "lt", "a"),
        ("identity", "ge", "b"),
    ],
)
def test_the_other_outcome_of_what_may_be_0_or_negative_counts(
    kind: str, comparison: str, twice: str
) -> None:
    pair = _signed(kind, comparison), _signed(kind, comparison, twice=twice)
    assert check(*pair, Options(seed=1)).verdict in {"mismatch", "inconclusive"}
