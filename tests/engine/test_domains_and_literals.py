"""Formulas that are equal modulo the primes that the check lists and no others, right ones beside
them, and a quotient that few inputs put where it is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import pytest
from zoo.builder import Builder

from pitcheck.algebra.residues.chains import chains_of
from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Plan

Formula = Callable[[Builder, str, str], str]
PRODUCT = prod(chains_of(3)[0].primes)


def n(value: Any) -> Number:
    return Number(value)


def plan(formula: Formula) -> Plan:
    b = Builder("formula")
    x, z = b.input("x", (4, 6)), b.input("z", (4, 6))
    y = b.op("add", formula(b, x, z), b.op("mul", z, n(0)))
    b.op("identity", y, out="y")
    b.output("y")
    return b.plan()


def verdict(reference: Formula, parallel: Formula) -> str:
    return check(plan(reference), plan(parallel), Options(seed=5, jobs=1)).verdict


def times(b: Builder, x: str, value: int) -> str:
    return b.op("mul", x, n(value))


WRONG: dict[str, tuple[Formula, Formula]] = {
    "product of a listed chain": (lambda b, x, z: x, lambda b, x, z: times(b, x, 1 + PRODUCT)),
    "small multiple of a product": (
        lambda b, x, z: x,
        lambda b, x, z: b.op("add", x, b.op("div", times(b, x, PRODUCT), n(10**40))),
    ),
    "prime as divisor": (
        lambda b, x, z: x,
        lambda b, x, z: b.op("div", times(b, x, 1 + chains_of(3)[0].primes[0]), n(1)),
    ),
    "product of all listed last primes": (
        lambda b, x, z: x,
        lambda b, x, z: times(b, x, 1 + prod(c.primes[-1] for c in chains_of(3)[:8])),
    ),
}

RIGHT: dict[str, tuple[Formula, Formula]] = {
    "large literal twice": (
        lambda b, x, z: times(b, x, 1 + PRODUCT),
        lambda b, x, z: b.op("add", x, times(b, x, PRODUCT)),
    ),
    "small numbers": (
        lambda b, x, z: b.op("mul", x, n(0.5)),
        lambda b, x, z: b.op("div", times(b, x, 3), n(6)),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_equal_modulo_some_primes_is_not_proven(name: str) -> None:
    assert verdict(*WRONG[name]) in ("mismatch", "inconclusive")


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_equal_modulo_all_primes_is_proven(name: str) -> None:
    assert verdict(*RIGHT[name]) == "equivalent"


def scattered(quotient: bool) -> Plan:
    """Add a row to one of 64 at a place that an input says; one row of the result is compared."""
    b = Builder("scattered")
    x, z, base = b.input("x", (1, 3)), b.input("z", (1, 3)), b.input("base", (64, 3))
    index = b.input("index", (1,), dtype="int64", bounds=(0, 64))
    source = b.op("mul", z, b.op("div", x, x)) if quotient else b.op("add", z, times(b, x, 0))
    b.op("slice", b.op("index_add", base, index, source, axis=0), out="y", axis=0, start=5, stop=6)
    b.output("y")
    return b.plan()


@pytest.mark.parametrize("seed", range(4))
def test_a_quotient_that_few_inputs_put_where_it_is_compared_is_not_left_out(seed: int) -> None:
    assert (
        check(scattered(False), scattered(False), Options(seed=seed, jobs=1)).verdict
        == "equivalent"
    )
    assert check(scattered(False), scattered(True), Options(seed=seed, jobs=1)).verdict in (
        "mismatch",
        "inconclusive",
    )
