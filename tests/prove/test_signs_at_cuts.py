"""Cuts that carry signs: the norm of norms of gradients is the norm of them all, and no other."""

from __future__ import annotations

import pytest
from zoo.builder import Builder

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Plan

SIZES = (4, 6, 9)


def _squares(b: Builder, given: tuple[dict[str, object], ...]) -> list[str]:
    """Return the sums of squares of three gradients, each of them an output, so a cut."""
    gradients = [b.input(f"g{n}", (size, 3), *given) for n, size in enumerate(SIZES)]
    squares = [b.op("sum", b.op("mul", g, g), axes=(0, 1)) for g in gradients]
    for number, square in enumerate(squares):
        b.output(b.op("identity", square, out=f"square{number}"), *given)
    return squares


def _reference() -> Plan:
    b = Builder("reference", {})
    norms = [b.op("sqrt", square) for square in _squares(b, ())]
    again = [b.op("mul", norm, norm) for norm in norms]
    norm = b.op("sqrt", b.op("add", b.op("add", again[0], again[1]), again[2]))
    b.output(b.op("identity", norm, out="norm"))
    return b.plan()


def _parallel(way: str) -> Plan:
    b = Builder("parallel", {"dp": 1})
    squares = _squares(b, ({},))
    if way == "one is left out":
        squares[2] = b.op("mul", squares[2], Number(0))
    if way == "one counts twice":
        squares[1] = b.op("add", squares[1], squares[1])
    if way == "one is subtracted":
        squares[2] = b.op("neg", squares[2])
    total = b.op("add", squares[0], b.op("add", squares[1], squares[2]))
    norm = b.op("sqrt", total)
    if way == "of the other sign":
        norm = b.op("neg", norm)
    b.output(b.op("identity", norm, out="norm"), {})
    return b.plan()


def test_a_norm_of_norms_is_the_norm_of_all() -> None:
    report = check(_reference(), _parallel("right"), Options(seed=1, jobs=1))
    assert (report.verdict, report.heuristic) == ("equivalent", ())


@pytest.mark.parametrize(
    "way", ["one is left out", "one counts twice", "one is subtracted", "of the other sign"]
)
def test_another_norm_is_a_mismatch(way: str) -> None:
    report = check(_reference(), _parallel(way), Options(seed=1, jobs=1, explain=False))
    assert report.verdict == "mismatch"
    assert report.findings[0].output == "norm"
