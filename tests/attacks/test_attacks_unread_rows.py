"""Rows that no draw may read, and the smallest plans of many parts.

A table that is glued from shards has one row that repeats the row before. It may not be called
equal by a theorem, however few tokens read the table.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from zoo.builder import Builder, lineage, table

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Plan
from pitcheck.report.report import Report

ROWS, WRONG = 300, 153
Index = Callable[[Builder, str], str]
READ: dict[str, Index] = {
    "behind the first hundred": lambda b, i: b.op("add", i, Number(100)),
    "the smaller of two": lambda b, i: b.op("minimum", i, Number(200)),
}


def reports(plans: tuple[Plan, Plan]) -> Report:
    return check(*plans, Options(seed=1, jobs=1, explain=False))


def glued(index: Index, row: int) -> tuple[Plan, Plan]:
    """Tables of ``ROWS`` rows; that of the plan has row ``row`` at the place of ``WRONG``."""
    plans = []
    for name in ("reference", "parallel"):
        b = Builder(name, {"dp": 1} if name == "parallel" else {})
        spec = [{}] if name == "parallel" else []
        rows = b.input("w", (ROWS, 2), *spec)
        i = b.input("i", (8,), *spec, dtype="int64", bounds=(0, 200))
        if spec:
            bounds = (0, WRONG), (row, row + 1), (WRONG + 1, ROWS)
            parts = [b.op("slice", rows, axis=0, start=start, stop=stop) for start, stop in bounds]
            rows = b.op("cat", *parts, axis=0)
        b.op("index_select", rows, index(b, i), axis=0, out="y")
        b.output("y", spec=lineage("y") if spec else None)
        plans.append(b.plan())
    return plans[0], plans[1]


@pytest.mark.parametrize("name", READ)
def test_a_row_that_few_tokens_read(name: str) -> None:
    wrong = reports(glued(READ[name], WRONG - 1))
    assert wrong.verdict != "equivalent" or wrong.heuristic, wrong.findings


def test_the_right_rows() -> None:
    assert reports(glued(READ["behind the first hundred"], WRONG)).verdict == "equivalent"


def other_rows(offsets: tuple[int, ...], ranks: int = 16) -> tuple[Plan, Plan]:
    """The sum of (j + 1) x_j, of which one rank holds rows ``offsets`` further of each input."""
    plans = []
    for mesh in ({}, {"dp": ranks}):
        b, total = Builder("sums", mesh), ""
        for j, offset in enumerate(offsets):
            places = [rank + offset * (rank == 7) for rank in range(ranks)]
            held = lineage(f"x{j}", {0: table("dp", *[((p, p + 1),) for p in places])})
            x = b.input(f"x{j}", (1 if mesh else ranks, 2), held if mesh else None)
            term = b.op("mul", x, Number(j + 1))
            total = b.op("add", total, term) if total else term
        b.op("identity", total, out="y")
        b.output("y", spec=lineage("y", {0: "dp"}) if mesh else None)
        plans.append(b.plan())
    return plans[0], plans[1]


@pytest.mark.parametrize("offsets", [(0, 0, 0), (3, 0, -1), (1, -2, 1), (2, 2, 2)])
def test_one_rank_holds_other_rows(offsets: tuple[int, ...]) -> None:
    """Also by offsets of which sums with small weights are 0."""
    verdict = "mismatch" if any(offsets) else "equivalent"
    assert reports(other_rows(offsets)).verdict == verdict


def micro_batches(count: int, factor: int = 1) -> tuple[Plan, Plan]:
    """Micro-batches that one device adds up."""
    plans = []
    for number in (1, count):
        b = Builder("sums", {}, number)
        many = number > 1
        x = b.input("x", (2 * count // number, 3), {0: "mb"} if many else None, microbatched=many)
        total = b.op("sum", b.op("tanh", x), axes=(0,))
        if many:
            total = b.op("mul", b.op("accumulate", total), Number(factor))
        b.op("identity", total, out="y")
        b.output("y", spec=lineage("y") if many else None)
        plans.append(b.plan())
    return plans[0], plans[1]


def test_many_micro_batches_of_one_device() -> None:
    assert reports(micro_batches(16)).verdict == "equivalent"
    assert reports(micro_batches(16, 2)).verdict == "mismatch"
