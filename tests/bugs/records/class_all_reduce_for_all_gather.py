"""Scores of a vocabulary that is cut over ranks, joined before the logarithm of the sum of their
exponentials is taken.
"""

from __future__ import annotations

from functools import partial

from bugs.record import Bug, Written
from zoo.builder import Builder

from pitcheck.plan.model import Plan

TOKENS, WIDTH, WORDS = 3, 4, 12


def reference() -> Plan:
    plan = Builder("scores")
    x, weight = plan.input("x", (TOKENS, WIDTH)), plan.parameter("weight", (WORDS, WIDTH))
    plan.output(
        plan.op("logsumexp", plan.op("linear", x, weight, out="scores"), out="lse", axis=-1)
    )
    return plan.plan()


def parallel(ranks: int, wrong: bool) -> Plan:
    plan = Builder("scores-tp", {"tp": ranks})
    x, weight = (
        plan.input("x", (TOKENS, WIDTH), {}),
        plan.parameter("weight", (WORDS // ranks, WIDTH), {0: "tp"}),
    )
    own = plan.op("linear", x, weight, out="scores:own")
    whole = (
        plan.op("all_reduce", own, out="scores:all", group="tp")
        if wrong
        else plan.op("all_gather", own, out="scores:all", group="tp", axis=1)
    )
    plan.output(plan.op("logsumexp", whole, out="lse", axis=-1))
    return plan.plan()


BUG = Bug(
    where="TrainVerify, synthetic: an all-reduce where an all-gather is due",
    should="scores of all ranks stand side by side",
    was="they are added up",
    codes=("PIT111", "PIT102"),
    says=("scores",),
    shows={
        "two ranks": Written(reference, partial(parallel, 2)),
        "three ranks": Written(reference, partial(parallel, 3)),
    },
    silent={"one rank": Written(reference, partial(parallel, 1))},
)
