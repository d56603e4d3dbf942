"""Attention over a sequence of packed documents; a document begins where a start is 1."""

from __future__ import annotations

from typing import Any

from bugs.sketch import Sketch

from pitcheck.plan.model import Plan

LENGTH, WIDTH = 4, 3
PARTS = ("q", "k", "v")


def packed(documents: int = 2) -> Plan:
    """One device: a token sees the tokens before it of its document. 1 document: all start at 0."""
    plan = Sketch("packed")
    q, k, v = (plan.input(name, (LENGTH, WIDTH)) for name in PARTS)
    of = numbers(plan, plan.input("starts", (LENGTH,), dtype="int64", bounds=(0, documents)))
    seen = together(plan, of, of)
    earlier = before(plan, q, k)
    mask = plan.op("logical_and", seen, earlier)
    plan.output(plan.op("scaled_dot_product_attention", q, k, v, mask, out="y"))
    return plan.plan()


def numbers(plan: Sketch, starts: str) -> str:
    """Record the number of each token's document."""
    return str(plan.op("cumsum", starts, axis=0))


def together(plan: Sketch, rows: str, columns: str) -> str:
    """Record whether the documents of a row and a column are the same."""
    row, column = plan.op("unsqueeze", rows, axis=1), plan.op("unsqueeze", columns, axis=0)
    return str(plan.op("eq", row, column))


def before(plan: Sketch, q: str, k: str, first: Any = 0) -> str:
    """Record whether a column comes before a row, the first of which is number ``first``."""
    row = plan.op("unsqueeze", plan.op("positions", q, axis=0, offset=first), axis=1)
    column = plan.op("unsqueeze", plan.op("positions", k, axis=0), axis=0)
    return str(plan.op("le", column, row))
