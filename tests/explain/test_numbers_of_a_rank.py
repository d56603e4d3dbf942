"""Positions and slopes that every rank makes itself, and makes as those of another rank."""

from __future__ import annotations

import pytest
from support.explain_plans import Pair, first_finding, run, said
from zoo.builder import Builder, table

from pitcheck.plan.model import Number

TITLE = "has the numbers that belong to another rank"


def positions(start: object, scale: int = 1) -> Pair:
    """exp(x times its position), of whose eight rows each rank has four, from ``start`` on."""
    plans = []
    for b, rows, offset in ((Builder("reference"), 8, 0), (Builder("sp", {"sp": 2}), 4, start)):
        x = b.input("x", (rows, 3), {0: "sp"} if rows == 4 else None)
        zeros = b.op("full", sizes=(rows,), value=0, dtype="int64")
        places = b.op("positions", zeros, axis=0, offset=offset, out="places")
        column = b.op("unsqueeze", b.op("cast", places, dtype="float32"), axis=1)
        turned = b.op("mul", b.op("exp", b.op("mul", x, column)), Number(scale if rows == 4 else 1))
        if rows == 4:
            turned = b.op("all_gather", turned, group="sp", axis=0, out="y")
        else:
            turned = b.op("identity", turned, out="y")
        b.output(turned)
        plans.append(b.plan())
    return plans[0], plans[1]


def slopes(right: bool) -> Pair:
    """A sum over heads, each with its slope; a rank has two of the four heads, in two layers."""
    plans = []
    for b, heads in ((Builder("reference"), 4), (Builder("tp", {"tp": 2}), 2)):
        x = b.input("x", (3, heads), {1: "tp"} if heads == 2 else None)
        for _ in range(2):
            numbers = [
                b.op("full", sizes=(1,), value=table("tp", 1 / 2**n, 1 / 2 ** (n + 2)))
                if right and heads == 2
                else b.op("full", sizes=(1,), value=1 / 2**n)
                for n in range(heads)
            ]
            x = b.op("exp", b.op("mul", x, b.op("cat", *numbers, axis=0)))
        y = b.op("sum", x, axes=(1,), keepdim=False, out="y" if heads == 4 else "")
        b.output(y if heads == 4 else b.op("all_reduce", y, group="tp", out="y"))
        plans.append(b.plan())
    return plans[0], plans[1]


def test_positions_that_begin_at_0_on_every_rank() -> None:
    finding = first_finding(positions(0))
    assert finding.code == "PIT107"
    assert finding.title == f"'places' {TITLE}"
    assert finding.cause == (
        "rank 1 makes 'places' as [0:4] of 'places' in the reference, and its part is [4:8]"
    )
    assert finding.ranks == (1,)
    assert finding.tried is not None


def test_slopes_of_the_first_heads_in_every_layer() -> None:
    finding = first_finding(slopes(right=False))
    assert finding.title.endswith(TITLE), finding
    assert "[0:2]" in (finding.cause or "")


@pytest.mark.parametrize("pair", [positions(table("sp", 0, 4)), slopes(right=True)])
def test_numbers_of_the_part_of_a_rank(pair: Pair) -> None:
    report = run(pair)
    assert report.verdict == "equivalent", said(report)


@pytest.mark.parametrize("start", [0, table("sp", 0, 4)])
def test_another_mistake_is_not_blamed_on_positions(start: object) -> None:
    """With the positions of its part a rank is still wrong by a factor."""
    finding = first_finding(positions(start, scale=2))
    assert TITLE not in finding.title or finding.tried is None, finding
