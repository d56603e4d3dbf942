"""The collective ``scan`` by its right use, forward and backward, and by near misses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.verdicts import caught, not_proven, proven
from zoo.builder import Builder, lineage

from pitcheck.plan.model import Number, Plan

Write = Callable[[Builder, str], str]


def _cumulated() -> Plan:
    """The rows of y are sums of the rows of x so far; dx is the gradient for 2 y as that of y."""
    b = Builder("cumulated")
    x = b.input("x", (3, 4))
    y = b.op("cumsum", x, axis=0, out="y")
    dy = b.op("mul", y, Number(2), out="dy")
    (dx,) = b.back("cumsum", [x], y, dy, ["dx"], axis=0)
    b.output(y)
    b.output(dx)
    return b.plan()


def _scanned(forward: Write, backward: Write | None = None) -> Plan:
    """Rank i has row i of x, and scans over all ranks."""
    b = Builder("scanned", {"dp": 3})
    x = b.input("x", (1, 4), {0: "dp"})
    y = b.op("identity", forward(b, x), out="y")
    dy = b.op("mul", y, Number(2), out="dy")
    dx = (backward or _back)(b, dy)
    b.output(y, spec=lineage("y", {0: "dp"}))
    b.output(b.op("identity", dx, out="dx"), spec=lineage("dx", {0: "dp"}))
    return b.plan()


def _scan(b: Builder, x: str) -> str:
    found: str = b.op("scan", x, group="dp")
    return found


def _back(b: Builder, x: str) -> str:
    found: str = b.op("scan", x, group="dp", reverse=True)
    return found


def _exclusive(b: Builder, x: str) -> str:
    found: str = b.op("sub", _scan(b, x), x)
    return found


def test_a_scan_adds_up_what_comes_before() -> None:
    proven(_cumulated(), _scanned(_scan))


def test_an_exclusive_scan_and_the_operand_are_an_inclusive_one() -> None:
    proven(_cumulated(), _scanned(lambda b, x: b.op("add", _exclusive(b, x), x)))


WRONG: dict[str, tuple[Write, Write]] = {
    "exclusive": (_exclusive, _back),
    "from its place on": (_back, _back),
    "gradient up to its place": (_scan, _scan),
    "exclusive gradient": (_scan, lambda b, x: b.op("sub", _back(b, x), x)),
    "another order": (lambda b, x: b.op("scan", x, group=[(2, 1, 0)]), _back),
    "two members change places": (lambda b, x: b.op("scan", x, group=[(0, 2, 1)]), _back),
    "a member is alone": (lambda b, x: b.op("scan", x, group=[(0,), (1, 2)]), _back),
    "of products": (lambda b, x: b.op("scan", x, group="dp", reduction="product"), _back),
    "the greatest": (lambda b, x: b.op("scan", x, group="dp", reduction="max"), _back),
    "over all": (lambda b, x: b.op("all_reduce", x, group="dp"), _back),
}


@pytest.mark.parametrize("name", WRONG)
def test_near_misses_of_a_scan_are_caught(name: str) -> None:
    caught(_cumulated(), _scanned(*WRONG[name]))


def test_a_mean_over_a_scan_has_no_meaning() -> None:
    not_proven(_cumulated(), _scanned(lambda b, x: b.op("scan", x, group="dp", reduction="avg")))
