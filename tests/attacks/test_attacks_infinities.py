"""Infinite literals that few inputs choose: exp(a) / exp(a) is 1 for numbers, and NaN there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attacks.domain_pairs import one, zeros
from attacks.formulas import Expression, Formula, differ_at, planned
from attacks.pairs import found

E = Expression
INFINITY = float("inf")
ROWS = {0: "r"}
FOURTH = {"u": 1.0 * (np.arange(16) == 3)}
"""A point at which the fourth of 16 numbers is the largest."""
HELD = {"j": np.eye(4, dtype=np.int64) * 777}
"""A point at which some integers are the one that 31 times gives 24087."""
AT_0 = {**FOURTH, "x": 0.0}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mismatch writes its counterexample where it is run."""
    monkeypatch.chdir(tmp_path)


def used(*inputs: E) -> E:
    """0, of inputs that the other formula decides by."""
    total = zeros(inputs[0].sum())
    for other in inputs[1:]:
        total = total + zeros(other.sum())
    return total


def seldom(u: E) -> E:
    return u.argmax(axis=0).eq(3)


def masked(condition: E, x: E, number: float = -INFINITY, **more: Any) -> E:
    return condition.where(number, x, **more)


def held(j: E) -> E:
    return (j * 31).eq(24087)


def real(j: E) -> E:
    return j.cast(dtype="float32")


def named(condition: E, x: E) -> E:
    """The numbers of a mask, of which the plan says that they are the reference's."""
    return masked(condition, x, out="w", hint=ROWS)


def over_itself(z: E, h: E) -> E:
    return z * one(h) + h.tanh()


def less_itself(z: E, h: E) -> E:
    return z + (h - h)


def weighed(z: E, e: E) -> E:
    """z times the shares of numbers of their rows."""
    return z * (e / e.sum(axes=(1,), keepdim=True))


def plain(x: E, z: E, u: E) -> E:
    return z + zeros(x) + used(u)


BY_REALS: dict[str, tuple[Formula, Formula]] = {
    "a quotient": (plain, lambda x, z, u: z * one(masked(seldom(u), x).exp()) + zeros(x) + used(u)),
    "a sum of exponentials": (
        plain,
        lambda x, z, u: (
            z * one(masked(seldom(u), x).exp().sum(axes=(1,), keepdim=True)) + zeros(x) + used(u)
        ),
    ),
    "a softmax": (
        plain,
        lambda x, z, u: z + zeros(masked(seldom(u), zeros(x)).softmax(axis=1)) + used(u),
    ),
    "a mask that is filled": (
        plain,
        lambda x, z, u: z * one(x.masked_fill(seldom(u), -INFINITY).exp()) + zeros(x) + used(u),
    ),
    "plus infinity": (
        plain,
        lambda x, z, u: z * one((-masked(seldom(u), x, INFINITY)).exp()) + zeros(x) + used(u),
    ),
    "times 0": (plain, lambda x, z, u: z + zeros(masked(seldom(u), x)) + used(u)),
    "a difference": (
        plain,
        lambda x, z, u: less_itself(z, masked(seldom(u), x)) + used(u),
    ),
    "the least": (
        plain,
        lambda x, z, u: z * one(masked((-u).argmin(axis=0).eq(3), x).exp()) + zeros(x) + used(u),
    ),
    "behind a cut of both": (
        lambda x, z, u: z + masked(seldom(u), x).exp().tanh(),
        lambda x, z, u: over_itself(z, masked(seldom(u), x).exp()),
    ),
    "behind a cut that is named": (
        lambda x, z, u: z + named(seldom(u), x).exp().tanh(),
        lambda x, z, u: over_itself(z, named(seldom(u), x).exp()),
    ),
    "the parallel plan alone": (
        lambda x, z, u: x + zeros(z) + used(u),
        lambda x, z, u: masked(seldom(u), x) + zeros(z),
    ),
    "NaN for infinity": (
        lambda x, z, u: masked(seldom(u), x) + z,
        lambda x, z, u: less_itself(masked(seldom(u), x) + z, masked(seldom(u), x)),
    ),
    "plus for minus": (
        lambda x, z, u: masked(seldom(u), x) + z,
        lambda x, z, u: masked(seldom(u), x, INFINITY) + z,
    ),
    "the reference alone": (
        lambda x, z, u: masked(seldom(u), x) + zeros(z),
        lambda x, z, u: x + zeros(z) + used(u),
    ),
}
BY_INTEGERS: dict[str, tuple[Formula, Formula]] = {
    "a quotient": (
        lambda x, z, j: z + zeros(x) + used(real(j)),
        lambda x, z, j: z * one(masked(held(j), x).exp()) + zeros(x),
    ),
    "behind a cut": (
        lambda x, z, j: z + masked(held(j), x).exp().tanh(),
        lambda x, z, j: over_itself(z, masked(held(j), x).exp()),
    ),
    "behind a cut that is named": (
        lambda x, z, j: z + named(held(j), x).exp().tanh(),
        lambda x, z, j: over_itself(z, named(held(j), x).exp()),
    ),
    "a softmax on both sides": (
        lambda x, z, j: z + masked(held(j), x).softmax(axis=1).tanh(),
        lambda x, z, j: over_itself(z, masked(held(j), x).softmax(axis=1)),
    ),
    "a softmax along the other axis": (
        lambda x, z, j: z + masked(held(j), x).softmax(axis=0).tanh(),
        lambda x, z, j: over_itself(z, masked(held(j), x).softmax(axis=0)),
    ),
    "a difference behind a cut": (
        lambda x, z, j: z + masked(held(j), x).exp(),
        lambda x, z, j: less_itself(z, masked(held(j), x)) + masked(held(j), x).exp(),
    ),
    "times 0 behind a cut": (
        lambda x, z, j: z + masked(held(j), x).exp(),
        lambda x, z, j: z + zeros(masked(held(j), x)) + masked(held(j), x).exp(),
    ),
    "a factor": (
        lambda x, z, j: z + (x.exp() * (~held(j)).float()).tanh(),
        lambda x, z, j: over_itself(z, x.exp() * (~held(j)).float()),
    ),
}
BY_BOOLEANS: dict[str, tuple[Formula, Formula]] = {
    "behind a cut that is named": (
        lambda x, z, m: z + named(m, x).exp().tanh(),
        lambda x, z, m: over_itself(z, named(m, x).exp()),
    ),
    "of numbers, behind a cut that is named": (
        lambda x, y, z: z + named(y > 0, x).exp().tanh(),
        lambda x, y, z: over_itself(z, named(y > 0, x).exp()),
    ),
}
WRONG = [
    *((f"by reals: {name}", *pair, AT_0) for name, pair in BY_REALS.items()),
    *((f"by integers: {name}", *pair, HELD) for name, pair in BY_INTEGERS.items()),
    *((f"by booleans: {name}", *pair, {"m": True}) for name, pair in BY_BOOLEANS.items()),
]
RIGHT: dict[str, tuple[Formula, Formula]] = {
    "a softmax in two steps": (
        lambda x, z, u: z * masked(seldom(u), x).softmax(axis=1),
        lambda x, z, u: weighed(z, masked(seldom(u), x).exp()),
    ),
    "the contrary condition": (
        lambda x, z, u: masked(seldom(u), x).exp() + z,
        lambda x, z, u: (~seldom(u)).where(x, -INFINITY).exp() + z,
    ),
    "infinity that comes out": (
        lambda x, z, u: masked(seldom(u), x) + zeros(z),
        lambda x, z, u: zeros(z) + (~seldom(u)).where(x, -INFINITY),
    ),
    "masked by numbers": (
        lambda x, z: z * masked(x > 0, x).exp(),
        lambda x, z: (~(x > 0)).float() * x.exp() * z,
    ),
    "a softmax masked by computed integers": (
        lambda x, z, j: z * masked(held(j), x).softmax(axis=1),
        lambda x, z, j: weighed(z, masked(held(j), x).exp()),
    ),
    "a mask that is named": (
        lambda x, z, j: z * named(held(j), x).softmax(axis=1),
        lambda x, z, j: weighed(z, named(held(j), x).exp()),
    ),
    "a mask of booleans that is named": (
        lambda x, z, m: z * named(m, x).softmax(axis=1),
        lambda x, z, m: weighed(z, named(m, x).exp()),
    ),
}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("case", WRONG, ids=lambda case: case[0])
def test_few_inputs_choose_infinity(case: tuple[Any, ...], ranks: int) -> None:
    _, reference, parallel, point = case
    assert differ_at(reference, parallel, point)
    whole = planned(parallel, ranks, whole=ranks == 1)
    assert found(planned(reference), whole)[0] in ("mismatch", "inconclusive")


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", RIGHT)
def test_infinity_on_both_sides(name: str, ranks: int) -> None:
    reference, parallel = RIGHT[name]
    whole = planned(parallel, ranks, whole=ranks == 1)
    assert found(planned(reference), whole) == ("equivalent", "")


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_the_reference_alone_lacks_where_an_order_decides_is_open(ranks: int) -> None:
    """Draws of orders meet its NaN, and no real input refutes a plan that has a number there."""

    def reference(x: E, z: E, u: E) -> E:
        return z * one(masked(seldom(u), x).exp()) + zeros(x)

    whole = planned(plain, ranks, whole=ranks == 1)
    assert found(planned(reference), whole)[0] == "inconclusive"
