"""Pairs in which a stage holds only together with the stages before it, which no other row of the
golden file has.
"""

from __future__ import annotations

from collections.abc import Callable

from zoo.builder import Builder, lineage
from zoo.pairs import Pair

from pitcheck.plan.model import Plan

ROWS, COLUMNS, RANKS = 4, 6, 2
HELD = {0: "dp"}


def _reference() -> Plan:
    """y = softmax(x) along rows, of shape (4, 6)."""
    b = Builder("whole")
    b.output(b.op("softmax", b.input("x", (ROWS, COLUMNS)), axis=1, out="y"))
    return b.plan()


def _spread(last: Callable[[Builder, str], str]) -> Plan:
    """The same rows on two ranks, with ``last`` after the softmax p, which rightly says to be a
    part of y: proofs begin there.
    """
    b = Builder("spread", {"dp": RANKS})
    x = b.input("x", (ROWS // RANKS, COLUMNS), HELD)
    y = last(b, b.op("softmax", x, axis=1, hint=lineage("y", HELD)))
    b.output(y, spec=lineage("y", HELD))
    return b.plan()


def _over_sums(axis: int) -> Callable[[Builder, str], str]:
    """p over its sums, which are 1 along rows."""

    def last(b: Builder, p: str) -> str:
        return b.op("div", p, b.op("sum", p, axes=(axis,), keepdim=True), out="y")

    return last


PAIRS: dict[str, Callable[[], Pair]] = {
    "softmax over its sums": lambda: (_reference(), _spread(_over_sums(1))),
    "softmax over other sums": lambda: (_reference(), _spread(_over_sums(0))),
    "softmax without its sign": lambda: (
        _reference(),
        _spread(lambda b, p: b.op("abs", p, out="y")),
    ),
}
"""Pairs that hold in a stage only together with its softmax, which must be widened to it.

The softmax alone tells that rows sum to 1 and are positive. Residues cannot tell the latter at all.
"""
