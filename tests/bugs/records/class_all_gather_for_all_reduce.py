"""The mean square of rows that are cut over ranks: the sum of the ranks' sums."""

from __future__ import annotations

from functools import partial

from bugs.record import Bug, Written
from zoo.builder import Builder

from pitcheck.plan.model import Plan

TOKENS, WIDTH = 3, 12


def reference() -> Plan:
    plan = Builder("squares")
    x = plan.input("x", (TOKENS, WIDTH))
    squares = plan.op("sum", plan.op("square", x), out="squares", axes=(1,), keepdim=True)
    plan.output(plan.op("mul", x, plan.op("rsqrt", squares), out="y"))
    return plan.plan()


def parallel(ranks: int, wrong: bool) -> Plan:
    plan = Builder("squares-tp", {"tp": ranks})
    x = plan.input("x", (TOKENS, WIDTH // ranks), {1: "tp"})
    own = plan.op("sum", plan.op("square", x), out="squares:own", axes=(1,), keepdim=True)
    all_of_them = (
        plan.op("all_gather", own, out="squares:all", group="tp", axis=1)
        if wrong
        else plan.op("all_reduce", own, out="squares:all", group="tp")
    )
    squares = plan.op("mean", all_of_them, out="squares", axes=(1,), keepdim=True)
    plan.output(
        plan.op(
            "all_gather", plan.op("mul", x, plan.op("rsqrt", squares)), out="y", group="tp", axis=1
        )
    )
    return plan.plan()


BUG = Bug(
    where="TrainVerify, synthetic: an all-gather where an all-reduce is due",
    should="the ranks' sums of squares are added up",
    was="they stand side by side, and what follows takes their mean",
    codes=("PIT111", "PIT104"),
    says=("squares",),
    shows={
        "two ranks": Written(reference, partial(parallel, 2)),
        "three ranks": Written(reference, partial(parallel, 3)),
    },
    silent={"one rank": Written(reference, partial(parallel, 1))},
)
