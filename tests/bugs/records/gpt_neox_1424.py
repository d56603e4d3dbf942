"""Queries are divided by the size of all heads together, and the heads are cut over ranks."""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Number, Plan

TOKENS, WIDTH = 2, 8


def reference() -> Plan:
    plan = Sketch("across-heads")
    q, weight = plan.input("q", (TOKENS, WIDTH)), plan.parameter("norm", (WIDTH,))
    plan.output(plan.op("rms_norm", q, weight, out="y", eps="1/1000"))
    return plan.plan()


def parallel(ranks: int, wrong: bool) -> Plan:
    plan = Sketch("across-heads-tp", {"tp": ranks})
    q = plan.input("q", (TOKENS, WIDTH // ranks), {1: "tp"})
    weight = plan.parameter("norm", (WIDTH // ranks,), {0: "tp"})
    if wrong:
        own = plan.op("rms_norm", q, weight, out="y:own", eps="1/1000")
    else:
        squares = plan.op("mean", plan.op("square", q), axes=(1,), keepdim=True)
        mean = plan.op("all_reduce", squares, out="squares", group="tp", reduction="avg")
        size = plan.op("rsqrt", plan.op("add", mean, Number("1/1000")))
        own = plan.op("mul", plan.op("mul", q, size), weight, out="y:own")
    plan.output(plan.op("all_gather", own, out="y", group="tp", axis=1))
    return plan.plan()


BUG = Bug(
    where="GPT-NeoX PR 1424",
    thread="https://github.com/EleutherAI/gpt-neox/pull/1424",
    should="a norm across heads takes the mean of squares of all ranks' heads",
    was="of the heads of the rank",
    codes=("PIT104",),
    says=("tp",),
    shows=written(reference, parallel, two_ranks=(2,), four_ranks=(4,)),
    silent=written(reference, parallel, one_rank=(1,)),
)
