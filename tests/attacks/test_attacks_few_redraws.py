"""Plans that differ where several integers have one combination of values, which few draws hold.

The judge is NumPy, at all values of two integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from attacks.formulas import NUMPY, Expression
from attacks.pairs import found
from zoo.builder import Builder, lineage

from pitcheck.plan.model import Number, Plan

Condition = Callable[[Expression, Expression], Expression]
"""A condition of two integers."""
BELOW = 1000
"""The number below which the integers of most pairs lie."""
SHAPES: Mapping[str, tuple[int, ...]] = {"i": (), "j": (), "a": (4,), "b": (4,)}
"""The integers: single ones, and those of which each rank holds some."""


def plan_of(condition: Condition, names: str, below: int, ranks: int) -> Plan:
    """Return the plan whose output is 2 x where a condition of the integers holds, else x."""
    builder = Builder("condition", {"r": ranks} if ranks > 1 else None)

    def make(kind: str, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
        given = [Number(str(o)) if isinstance(o, (int, float)) else o for o in operands]
        return builder.op(kind, *given, **attributes)

    def held(name: str, shape: tuple[int, ...], **more: Any) -> Expression:
        local = tuple(size // ranks for size in shape)
        spec = lineage(name, {0: "r"} if shape else {}) if ranks > 1 else None
        return Expression(make, builder.input(name, local, spec, **more))

    x = held("x", (4,))
    first, second = (held(name, SHAPES[name], dtype="int64", bounds=(0, below)) for name in names)
    builder.op("identity", condition(first, second).where(x * 2, x).value, out="out")
    builder.output("out", spec=lineage("out", {0: "r"}) if ranks > 1 else None)
    return builder.plan()


def holds(condition: Condition, below: int) -> Any:
    """Return where a condition holds, shape (below, below)."""

    def make(kind: str, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
        return NUMPY[kind](*operands, **attributes)

    numbers = np.arange(below)
    return condition(Expression(make, numbers[:, None]), Expression(make, numbers[None, :])).value


def both(a: Expression, b: Expression) -> Expression:
    return a.logical_and(b)


def either(a: Expression, b: Expression) -> Expression:
    return a.logical_or(b)


def product(a: Expression, b: Expression) -> Expression:
    return (a.float() * b.float()).gt(0)


def verdict(
    one: Condition, two: Condition, names: str, below: int, ranks: int, seed: int
) -> tuple[str, str]:
    return found(plan_of(one, names, below, 1), plan_of(two, names, below, ranks), seed)


CAUGHT: dict[str, tuple[Condition, Condition, int]] = {
    "one pair of integers": (
        lambda i, j: i.eq(5),
        lambda i, j: either(i.eq(5), both(i.eq(7), j.eq(9))),
        12,
    ),
    "equal integers": (lambda i, j: i.eq(j), lambda i, j: i.eq(j + 1), BELOW),
    "a product that is 12": ((lambda i, j: (i * j).eq(12)), lambda i, j: (i * j).eq(18), BELOW),
    "the edge of a sum": (
        lambda i, j: (i + j).ge(BELOW),
        lambda i, j: (i + j).gt(BELOW),
        BELOW,
    ),
    "the greatest sum": (
        lambda i, j: (i + j).ge(2 * BELOW - 2),
        lambda i, j: (i + j).ge(2 * BELOW - 3),
        BELOW,
    ),
    "two of three": (
        lambda i, j: both(i.eq(0), j.gt(0)),
        lambda i, j: both(i.eq(0), j.gt(1)),
        3,
    ),
    "two of five": (
        lambda i, j: both(i.eq(0), j.gt(2)),
        lambda i, j: both(i.eq(0), j.gt(3)),
        5,
    ),
    "a pair that is left out": (
        lambda i, j: i.ge(500),
        lambda i, j: both(i.ge(500), either(i.eq(777).logical_not(), j.eq(4).logical_not())),
        BELOW,
    ),
}
"""The reference, a wrong plan, and the number below which the integers lie."""
RIGHT: dict[str, tuple[Condition, Condition]] = {
    "and": (
        lambda i, j: both(i.eq(5), j.gt(3)),
        lambda i, j: either(~i.eq(5), j.le(3)).logical_not(),
    ),
    "product": (
        lambda i, j: product(i.eq(5), j.gt(3)),
        lambda i, j: both(i.eq(5), j.gt(3)),
    ),
    "equal": (lambda i, j: i.eq(j), lambda i, j: both(i.ge(j), j.ge(i))),
    "sum": (lambda i, j: (i + j).ge(BELOW), lambda i, j: (j + i).gt(BELOW - 1)),
}
ABOVE_THREE_OR_FOUR: tuple[Condition, Condition] = (
    lambda i, j: both(i.eq(5), j.gt(3)),
    lambda i, j: both(i.eq(5), j.gt(4)),
)
ONE_PAIR: dict[str, tuple[Condition, Condition, str, int]] = {
    "and": (*ABOVE_THREE_OR_FOUR, "ij", BELOW),
    "one integer and a shard": (*ABOVE_THREE_OR_FOUR, "ia", BELOW),
    "two shards": (*ABOVE_THREE_OR_FOUR, "ba", BELOW),
    "or": (
        lambda i, j: either(~i.eq(5), j.lt(4)),
        lambda i, j: either(~i.eq(5), j.lt(5)),
        "ij",
        BELOW,
    ),
    "product": (
        lambda i, j: product(i.eq(5), j.gt(3)),
        lambda i, j: product(i.eq(5), j.gt(4)),
        "ij",
        BELOW,
    ),
    "one side has the second integer": (
        lambda i, j: both(i.eq(5), j.ge(0)),
        lambda i, j: both(i.eq(5), ~j.eq(4)),
        "ij",
        BELOW,
    ),
    "beyond two limits": (
        lambda i, j: both(i.gt(10), j.gt(3)),
        lambda i, j: both(i.gt(10), both(j.gt(3), either(~j.eq(7), i.gt(11)))),
        "ij",
        20,
    ),
}
"""The reference, a wrong plan that differs at one pair of integers (rows), and the integers."""


@pytest.mark.parametrize("name", CAUGHT)
def test_few_pairs_of_integers_differ(name: str) -> None:
    one, two, below = CAUGHT[name]
    assert (holds(one, below) != holds(two, below)).any()
    assert verdict(one, two, "ij", below, 2, 1)[0] in ("mismatch", "inconclusive")


@pytest.mark.parametrize("name", RIGHT)
def test_the_same_condition_is_written_in_another_way(name: str) -> None:
    one, two = RIGHT[name]
    assert (holds(one, BELOW) == holds(two, BELOW)).all()
    assert verdict(one, two, "ij", BELOW, 4, 1)[0] != "mismatch"


@pytest.mark.parametrize("name", ONE_PAIR)
def test_two_conditions_differ_at_one_pair_of_integers(name: str) -> None:
    one, two, names, below = ONE_PAIR[name]
    assert (holds(one, below) != holds(two, below)).any()
    for seed in range(4):
        assert verdict(one, two, names, below, 2, seed)[0] in ("mismatch", "inconclusive")
