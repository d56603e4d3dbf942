"""Squares in the norm of all gradients that every rank has as a whole, and adds up with its own."""

from __future__ import annotations

from support.explain_plans import Pair, first_finding, run, said
from zoo.builder import Builder, lineage

from pitcheck.plan.model import Number


def clipped(counted: str, summed: bool = True) -> Pair:
    """Both gradients over the norm of both; ``w`` is cut over tp, and ``bias`` is not.

    ``counted``: the squares of the bias are added up over the ranks ("twice"), or beside ("once").
    """
    plans = []
    for b in (Builder("reference"), Builder("tp", {"tp": 2})):
        whole = b.name == "reference"
        w = b.input("w", (4, 3) if whole else (2, 3), None if whole else {0: "tp"})
        bias = b.input("bias", (5,), None if whole else {})
        squares = [
            b.op("sum", b.op("mul", each, each), axes=axes, keepdim=False)
            for each, axes in ((w, (0, 1)), (bias, (0,)))
        ]
        if whole or counted == "twice":
            total = b.op("add", *squares)
            if not whole and summed:
                total = b.op("all_reduce", total, group="tp")
        else:
            total = b.op("add", b.op("all_reduce", squares[0], group="tp"), squares[1])
        norm = b.op("sqrt", b.op("add", total, Number(1)))
        for each in (w, bias):
            name = f"clipped:{each}"
            held = lineage(name, {0: "tp"}) if each == "w" and not whole else None
            b.output(b.op("div", each, norm, out=name), spec=held)
        plans.append(b.plan())
    return plans[0], plans[1]


def test_squares_that_every_rank_adds() -> None:
    finding = first_finding(clipped("twice"))
    assert finding.code == "PIT108"
    assert "counts the squares of 'bias' 2 times: every rank over tp has them" in (
        finding.cause or ""
    )
    assert finding.tried is not None


def test_squares_that_are_counted_once() -> None:
    report = run(clipped("once"))
    assert report.verdict == "equivalent", said(report)


def test_squares_that_are_not_added_up() -> None:
    """The norm of a rank alone has another cause."""
    assert "every rank over" not in (first_finding(clipped("twice", summed=False)).cause or "")
