"""Packed documents under context parallelism, where keys and values are gathered."""

from __future__ import annotations

from functools import partial

from bugs.documents import LENGTH, PARTS, WIDTH, before, numbers, packed, together
from bugs.record import Bug, written
from bugs.sketch import Sketch
from zoo.builder import table

from pitcheck.plan.model import Plan


def parallel(ranks: int, documents: int, wrong: bool) -> Plan:
    plan = Sketch("packed-cp", {"cp": ranks})
    own, cut = LENGTH // ranks, {0: "cp"}
    q, k, v = (plan.input(name, (own, WIDTH), cut) for name in PARTS)
    starts = plan.input("starts", (own,), cut, dtype="int64", bounds=(0, documents))
    k, v, starts = (
        plan.op("all_gather", x, out=f"{x}:all", group="cp", axis=0) for x in (k, v, starts)
    )
    mask = before(plan, q, k, table("cp", *(own * rank for rank in range(ranks))))
    if not wrong:
        of = numbers(plan, starts)
        place = table("cp", *range(ranks))
        rows = plan.op("chunk", of, axis=0, count=ranks, position=place)
        mask = plan.op("logical_and", together(plan, rows, of), mask)
    mixed = plan.op("scaled_dot_product_attention", q, k, v, mask, out="y:own")
    plan.output(plan.op("all_gather", mixed, out="y", group="cp", axis=0))
    return plan.plan()


BUG = Bug(
    where="trl PR 6843",
    thread="https://github.com/huggingface/trl/pull/6843",
    should="a token sees the tokens before it of its document, with context parallelism as without",
    was="with context parallelism it sees those of all documents before it in the sequence",
    codes=("PIT102", "PIT103", "PIT108"),
    says=("8:scaled_dot_product_attention", "'packed.logical_and.9'"),
    shows=written(packed, parallel, two_ranks=(2, 2), four_ranks=(4, 2)),
    silent=written(partial(packed, 1), parallel, one_document=(2, 1)),
)
