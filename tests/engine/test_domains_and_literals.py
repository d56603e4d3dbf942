"""Formulas that are equal on part of the real numbers only, or modulo some primes only, and right
ones beside them.
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


def part_of_quotients(b: Builder, x: str, z: str, start: int) -> str:
    """Four rows of a buffer with x / z in the first four and z / x in the others."""
    return b.op(
        "slice",
        b.op("cat", b.op("div", x, z), b.op("div", z, x), axis=0),
        axis=0,
        start=start,
        stop=start + 4,
    )


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
    "x / x is 1": (lambda b, x, z: z, lambda b, x, z: b.op("mul", z, b.op("div", x, x))),
    "x x / x": (lambda b, x, z: x, lambda b, x, z: b.op("div", b.op("square", x), x)),
    "(x^2 - 1) / (x - 1)": (
        lambda b, x, z: b.op("add", x, n(1)),
        lambda b, x, z: b.op("div", b.op("sub", b.op("square", x), n(1)), b.op("sub", x, n(1))),
    ),
    "z x / x": (lambda b, x, z: z, lambda b, x, z: b.op("div", b.op("mul", z, x), x)),
    "sqrt(x)^2": (lambda b, x, z: x, lambda b, x, z: b.op("square", b.op("sqrt", x))),
    "sqrt(x + 10)^4": (
        lambda b, x, z: b.op("square", b.op("add", x, n(10))),
        lambda b, x, z: b.op("square", b.op("square", b.op("sqrt", b.op("add", x, n(10))))),
    ),
    "sqrt(x) sqrt(z)": (
        lambda b, x, z: b.op("sqrt", b.op("mul", x, z)),
        lambda b, x, z: b.op("mul", b.op("sqrt", x), b.op("sqrt", z)),
    ),
    "sqrt(x^2) is x": (lambda b, x, z: x, lambda b, x, z: b.op("sqrt", b.op("square", x))),
    "sqrt(x / z)": (
        lambda b, x, z: b.op("sqrt", b.op("div", x, z)),
        lambda b, x, z: b.op("div", b.op("sqrt", x), b.op("sqrt", z)),
    ),
    "exp(log x)": (lambda b, x, z: x, lambda b, x, z: b.op("exp", b.op("log", x))),
    "log x + log z": (
        lambda b, x, z: b.op("log", b.op("mul", x, z)),
        lambda b, x, z: b.op("add", b.op("log", x), b.op("log", z)),
    ),
    "2 log x": (
        lambda b, x, z: b.op("log", b.op("square", x)),
        lambda b, x, z: times(b, b.op("log", x), 2),
    ),
    "log x - log x": (
        lambda b, x, z: z,
        lambda b, x, z: b.op("add", z, b.op("sub", b.op("log", x), b.op("log", x))),
    ),
    "exp(log x + z)": (
        lambda b, x, z: b.op("mul", x, b.op("exp", z)),
        lambda b, x, z: b.op("exp", b.op("add", b.op("log", x), z)),
    ),
    "rsqrt(x)^2": (
        lambda b, x, z: b.op("div", n(1), x),
        lambda b, x, z: b.op("square", b.op("rsqrt", x)),
    ),
    "1 / (1 / x)": (lambda b, x, z: x, lambda b, x, z: b.op("div", n(1), b.op("div", n(1), x))),
    "quotient that inputs choose": (
        lambda b, x, z: z,
        lambda b, x, z: b.op("where", b.op("gt", x, n(0)), z, b.op("mul", z, b.op("div", z, z))),
    ),
    "quotient behind a comparison": (
        lambda b, x, z: z,
        lambda b, x, z: b.op("where", b.op("lt", b.op("div", x, x), n(2)), z, n(0)),
    ),
    "quotient in a part of a buffer": (
        lambda b, x, z: z,
        lambda b, x, z: b.op("mul", x, part_of_quotients(b, x, z, 4)),
    ),
    "mask times a quotient": (
        lambda b, x, z: b.op("where", b.op("gt", x, n(0)), b.op("log", x), n(0)),
        lambda b, x, z: b.op("mul", b.op("log", x), b.op("where", b.op("gt", x, n(0)), n(1), n(0))),
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
    "x / (z^2 + 1)": (
        lambda b, x, z: b.op("div", x, b.op("add", b.op("square", z), n(1))),
        lambda b, x, z: b.op("mul", b.op("div", n(1), b.op("add", b.op("mul", z, z), n(1))), x),
    ),
    "x / z": (
        lambda b, x, z: b.op("div", x, z),
        lambda b, x, z: b.op("mul", x, b.op("div", n(1), z)),
    ),
    "sqrt of the same": (
        lambda b, x, z: b.op("mul", b.op("sqrt", x), z),
        lambda b, x, z: b.op("mul", z, b.op("sqrt", x)),
    ),
    "quotient in another part of a buffer": (
        lambda b, x, z: b.op("div", x, z),
        lambda b, x, z: part_of_quotients(b, x, z, 0),
    ),
    "norm": (
        lambda b, x, z: b.op(
            "div", z, b.op("add", b.op("sqrt", b.op("sum", b.op("square", x))), n(1e-6))
        ),
        lambda b, x, z: b.op(
            "div",
            z,
            b.op(
                "add", b.op("sqrt", b.op("sum", b.op("sum", b.op("square", x), axes=[1]))), n(1e-6)
            ),
        ),
    ),
    "rsqrt of a mean of squares": (
        lambda b, x, z: b.op(
            "mul",
            x,
            b.op(
                "rsqrt",
                b.op("add", b.op("mean", b.op("square", x), axes=[1], keepdim=True), n(1e-5)),
            ),
        ),
        lambda b, x, z: b.op(
            "div",
            x,
            b.op(
                "sqrt",
                b.op(
                    "add",
                    b.op("div", b.op("sum", b.op("square", x), axes=[1], keepdim=True), n(6)),
                    n(1e-5),
                ),
            ),
        ),
    ),
    "softmax": (
        lambda b, x, z: b.op("softmax", x, axis=1),
        lambda b, x, z: b.op(
            "div", b.op("exp", x), b.op("sum", b.op("exp", x), axes=[1], keepdim=True)
        ),
    ),
    "log-sum-exp": (
        lambda b, x, z: b.op("log", b.op("sum", b.op("exp", x), axes=[1], keepdim=True)),
        lambda b, x, z: b.op(
            "add",
            b.op("log", b.op("sum", b.op("exp", b.op("sub", x, n(1))), axes=[1], keepdim=True)),
            n(1),
        ),
    ),
    "silu": (
        lambda b, x, z: b.op("silu", x),
        lambda b, x, z: b.op("div", x, b.op("add", n(1), b.op("exp", b.op("neg", x)))),
    ),
    "log of the same": (
        lambda b, x, z: b.op("add", b.op("log", x), z),
        lambda b, x, z: b.op("add", z, b.op("log", x)),
    ),
    "root of a number": (
        lambda b, x, z: b.op("mul", x, n("sqrt(2)")),
        lambda b, x, z: b.op("div", times(b, x, 2), n("sqrt(2)")),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_equal_on_a_part_only_is_not_proven(name: str) -> None:
    assert verdict(*WRONG[name]) in ("mismatch", "inconclusive")


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_equal_wherever_the_reference_has_a_value_is_proven(name: str) -> None:
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
