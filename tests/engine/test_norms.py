"""Norms of gradients that are spread over ranks: roots of sums of squares of roots, with other
splits on either side.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.verdicts import caught, proven
from zoo.builder import Builder

from pitcheck.plan.model import Number, Plan

ROWS, COLUMNS = 6, 4


def _norm(b: Builder, x: str) -> str:
    return b.op("sqrt", b.op("sum", b.op("square", x)))


def _clipped(b: Builder, x: str, norm: str) -> str:
    """x * min(1, 3 / (norm + 1))."""
    return b.op(
        "mul", x, b.op("minimum", b.op("div", Number(3), b.op("add", norm, Number(1))), Number(1))
    )


def _reference() -> Plan:
    """The norm of the norms of two tensors, as clip_grad_norm_ takes it."""
    b = Builder("reference")
    x, z = b.input("x", (ROWS, COLUMNS)), b.input("z", (ROWS,))
    norm = _norm(b, b.op("stack", _norm(b, x), _norm(b, z), axis=0))
    b.op("identity", _clipped(b, x, norm), out="y")
    b.output("y")
    b.output(b.op("identity", norm, out="norm"))
    return b.plan()


def _sharded(total: Callable[[Builder, str, str], str]) -> Plan:
    """Both tensors are cut over two ranks; ``total`` makes the norm of all of the two
    local norms.
    """
    b = Builder("sharded", {"dp": 2})
    x, z = b.input("x", (ROWS // 2, COLUMNS), {0: "dp"}), b.input("z", (ROWS // 2,), {0: "dp"})
    norm = total(b, _norm(b, x), _norm(b, z))
    b.op("identity", _clipped(b, x, norm), out="y", hint={0: "dp"})
    b.output("y", spec=b.tensors["y"].lineage)
    b.output(b.op("identity", norm, out="norm"))
    return b.plan()


def _summed(b: Builder, term: str) -> str:
    return b.op("all_reduce", term, group="dp")


def _both(b: Builder, first: str, second: str) -> str:
    return _norm(b, b.op("stack", first, second, axis=0))


RIGHT: dict[str, Callable[[Builder, str, str], str]] = {
    "one sum over the ranks": lambda b, x, z: b.op(
        "sqrt", _summed(b, b.op("square", _both(b, x, z)))
    ),
    "a sum for each tensor": lambda b, x, z: _both(
        b, *(b.op("sqrt", _summed(b, b.op("square", n))) for n in (x, z))
    ),
    "a norm of all that ranks have": lambda b, x, z: _norm(
        b, b.op("all_gather", b.op("stack", x, z, axis=0), group="dp", axis=0)
    ),
    "squares by powers": lambda b, x, z: b.op(
        "pow", _summed(b, b.op("pow", _both(b, x, z), exponent=2)), exponent="1/2"
    ),
    "the root of a half of twice as much": lambda b, x, z: b.op(
        "sqrt",
        _summed(b, _summed(b, b.op("square", b.op("mul", _both(b, x, z), Number("sqrt(1/2)"))))),
    ),
}

WRONG: dict[str, Callable[[Builder, str, str], str]] = {
    "the norm of the shard": _both,
    "norms added": lambda b, x, z: _summed(b, _both(b, x, z)),
    "no square before the sum": lambda b, x, z: b.op("sqrt", _summed(b, _both(b, x, z))),
    "no root after the sum": lambda b, x, z: _summed(b, b.op("square", _both(b, x, z))),
    "one of the two tensors": lambda b, x, z: b.op("sqrt", _summed(b, b.op("square", x))),
    "norms of the tensors added": lambda b, x, z: b.op(
        "sqrt", _summed(b, b.op("square", b.op("add", x, z)))
    ),
    "the mean of squares": lambda b, x, z: b.op(
        "sqrt", b.op("all_reduce", b.op("square", _both(b, x, z)), group="dp", reduction="avg")
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_norms_of_norms_are_proven(name: str) -> None:
    proven(_reference(), _sharded(RIGHT[name]))


@pytest.mark.parametrize("name", WRONG)
def test_other_norms_are_caught(name: str) -> None:
    report = caught(_reference(), _sharded(WRONG[name]))
    assert report.findings[0].output in ("y", "norm")


def test_a_root_of_what_may_be_negative_is_nan_there() -> None:
    """(sqrt x)^2 is x for a sum of squares, and not for any number."""

    def plan(rooted: bool, square: bool) -> Plan:
        b = Builder("root")
        x = b.input("x", (ROWS, COLUMNS))
        s = b.op("add", b.op("square", x), Number(1)) if square else b.op("add", x, Number(1))
        b.output(
            b.op("square", b.op("sqrt", s), out="y") if rooted else b.op("identity", s, out="y")
        )
        return b.plan()

    proven(plan(False, True), plan(True, True))
    caught(plan(False, False), plan(True, False))


def test_a_formula_that_needs_the_residue_of_the_root_is_proven_without_formal_roots() -> None:
    """Dividing twice by a root is dividing by its square, whatever residue that is."""

    def plan(twice: bool) -> Plan:
        b = Builder("divided")
        x, z = b.input("x", (ROWS, COLUMNS)), b.input("z", (ROWS, COLUMNS))
        norm = b.op("sqrt", b.op("add", b.op("square", x), Number(1)))
        by = (
            b.op("div", b.op("div", z, norm), norm)
            if twice
            else b.op("div", z, b.op("mul", norm, norm))
        )
        b.output(b.op("identity", by, out="y"))
        return b.plan()

    proven(plan(False), plan(True))
