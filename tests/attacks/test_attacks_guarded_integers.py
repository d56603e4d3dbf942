"""Quotients that integers decide together, or by numbers that few draws meet.

Where the conditions hold the reference does not divide, and the parallel plan does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attacks.domain_pairs import flip, one, zeros
from attacks.formulas import Expression, Formula, differ_at, planned
from attacks.pairs import found

E = Expression


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mismatch writes its counterexample where it is run."""
    monkeypatch.chdir(tmp_path)


def used(*integers: E) -> E:
    """0, of integers by which the other formula decides."""
    first, *others = (zeros(i.cast(dtype="float32")) for i in integers)
    for other in others:
        first = first + other
    return first


def both(j: E, k: E) -> E:
    return j.eq(7).logical_and(k.eq(9))


def held(j: E) -> E:
    return (j * 31).eq(24087)


def other(k: E) -> E:
    return (k * 17).eq(73457)


def if_both(first: E, second: E, a: E, b: E) -> E:
    """a where both conditions hold, by a choice inside a choice."""
    return first.where(second.where(a, b), b)


PAIR, COMPUTED = {"j": 7, "k": 9, "x": 0.0}, {"j": 777, "k": 4321, "x": 0.0}
TURNED = {"j": np.array([777, 0, 0, 9])[:, None], "x": 0.0}
WRONG: dict[str, tuple[Formula, Formula, dict[str, Any]]] = {
    "two integers": (
        lambda x, z, j, k: both(j, k).where(z, z / x * x),
        lambda x, z, j, k: z / x * x + used(j, k),
        PAIR,
    ),
    "two integers, and another quotient": (
        lambda x, z, j, k: z / x * x + used(j, k),
        lambda x, z, j, k: both(j, k).where(z * one(x - 1), z / x * x),
        {**PAIR, "x": 1.0},
    ),
    "a disjunction": (
        lambda x, z, j, k: (~j.eq(7)).logical_or(~k.eq(9)).where(z / x, z),
        lambda x, z, j, k: (~j.eq(7)).logical_or(~k.eq(9)).where(z / x, z * one(x)),
        PAIR,
    ),
    "a choice inside a choice": (
        lambda x, z, j, k: if_both(j.eq(7), k.eq(9), z, z / x * x),
        lambda x, z, j, k: z / x * x + used(j, k),
        PAIR,
    ),
    "choices in another order": (
        lambda x, z, j, k: if_both(k.eq(9), j.eq(7), z, z / x),
        lambda x, z, j, k: if_both(j.eq(7), k.eq(9), z * one(x), z / x),
        PAIR,
    ),
    "a computed integer": (
        lambda x, z, j: held(j).where(z, z / x * x),
        lambda x, z, j: z / x * x + used(j),
        COMPUTED,
    ),
    "a computed integer behind a cut": (
        lambda x, z, j: z + held(j).where(zeros(x), zeros(z / x)),
        lambda x, z, j: z + zeros(z / x) + used(j),
        COMPUTED,
    ),
    "two integers behind a cut": (
        lambda x, z, j, k: z + both(j, k).where(zeros(x), zeros((z / x).exp())),
        lambda x, z, j, k: z + zeros((z / x).exp()) + used(j, k),
        PAIR,
    ),
    "two computed integers": (
        lambda x, z, j, k: if_both(held(j), other(k), z, z / x),
        lambda x, z, j, k: if_both(held(j), other(k), z * one(x), z / x),
        COMPUTED,
    ),
    "one of two computed integers": (
        lambda x, z, j, k: if_both(held(j), ~other(k), z, z / x),
        lambda x, z, j, k: if_both(held(j), ~other(k), z * one(x), z / x),
        {**COMPUTED, "k": 0},
    ),
    "two elements of one tensor": (
        lambda x, z, j: if_both(held(j), flip(j).eq(9), z, z / x),
        lambda x, z, j: if_both(held(j), flip(j).eq(9), z * one(x), z / x),
        TURNED,
    ),
    "no quotient, and a choice inside a choice": (
        lambda x, z, j, k: z + x + used(j, k),
        lambda x, z, j, k: if_both(j.eq(7), k.eq(9), z, z + x),
        {**PAIR, "x": 1.0},
    ),
}
RIGHT: dict[str, tuple[Formula, Formula]] = {
    "a choice inside a choice": (
        lambda x, z, j, k: both(j, k).where(z, z / x),
        lambda x, z, j, k: if_both(j.eq(7), k.eq(9), z, z * x.reciprocal()),
    ),
    "the reference divides more": (
        lambda x, z, j, k: z / x * x + used(j, k),
        lambda x, z, j, k: both(j, k).where(z, z / x * x),
    ),
    "the reference divides by a computed integer more": (
        lambda x, z, j: z + zeros(z / x) + used(j),
        lambda x, z, j: z + held(j).where(zeros(x), zeros(z / x)),
    ),
    "a computed integer": (
        lambda x, z, j: z + held(j).where(zeros(x), zeros(z / x)),
        lambda x, z, j: held(j).where(zeros(x), zeros(z) * x.reciprocal()) + z,
    ),
    "a cut": (
        lambda x, z, j: z + held(j).where(zeros(x), zeros((z / x).exp())),
        lambda x, z, j: held(j).where(zeros(x), zeros((z / x).exp())) + z,
    ),
    "two computed integers": (
        lambda x, z, j, k: if_both(held(j), other(k), z, z / x),
        lambda x, z, j, k: if_both(other(k), held(j), z, z * x.reciprocal()),
    ),
}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", WRONG)
def test_few_integers_leave_the_parallel_plan_without_a_value(name: str, ranks: int) -> None:
    reference, parallel, point = WRONG[name]
    assert differ_at(reference, parallel, point)
    if "flip" in parallel.__code__.co_names:
        ranks = 1  # rows of both ranks are exchanged
    whole = planned(parallel, ranks, whole=ranks == 1)
    for seed in (1, 2, 3):
        assert found(planned(reference), whole, seed)[0] in ("mismatch", "inconclusive")


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", RIGHT)
def test_integers_decide_the_same(name: str, ranks: int) -> None:
    reference, parallel = RIGHT[name]
    whole = planned(parallel, ranks, whole=ranks == 1)
    assert found(planned(reference), whole) == ("equivalent", "")
