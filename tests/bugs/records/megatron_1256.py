"""Dropout: sequence-parallel tensor-parallel ranks have different tokens and draw different masks;
elsewhere they have the same tokens and masks.
"""

from __future__ import annotations

from functools import partial

from bugs.record import Bug, Written
from zoo.builder import Builder, table

from pitcheck.plan.model import Plan

TOKENS, WIDTH = 6, 4


def reference(probability: str) -> Plan:
    plan = Builder("dropout")
    x, weight = plan.input("x", (TOKENS, WIDTH)), plan.parameter("weight", (WIDTH, WIDTH))
    dropped = plan.op(
        "dropout",
        x,
        plan.op("dropout_mask", x, stream="tokens", probability=probability),
        out="dropped",
        probability=probability,
    )
    y = plan.op("linear", dropped, weight, out="y")
    plan.output(
        plan.op(
            "dropout",
            y,
            plan.op("dropout_mask", y, stream="all", probability=probability),
            out="z",
            probability=probability,
        )
    )
    return plan.plan()


def parallel(ranks: int, probability: str, wrong: bool) -> Plan:
    """``wrong``: in the region where ranks have different tokens all draw from the first place on;
    in the other one each from a place of its own.
    """
    plan = Builder("dropout-sp", {"tp": ranks})
    own = TOKENS // ranks
    x, weight = (
        plan.input("x", (own, WIDTH), {0: "tp"}),
        plan.parameter("weight", (WIDTH, WIDTH), {}),
    )
    starts = table("tp", *((0 if wrong else own * place, 0) for place in range(ranks)))
    mask = plan.op(
        "dropout_mask",
        x,
        stream="tokens",
        probability=probability,
        whole=(TOKENS, WIDTH),
        start=starts,
    )
    dropped = plan.op("dropout", x, mask, out="dropped:own", probability=probability)
    y = plan.op(
        "linear", plan.op("all_gather", dropped, out="dropped", group="tp", axis=0), weight, out="y"
    )
    offsets = table("tp", *(TOKENS * WIDTH * place if wrong else 0 for place in range(ranks)))
    plan.output(
        plan.op(
            "dropout",
            y,
            plan.op("dropout_mask", y, stream="all", probability=probability, offset=offsets),
            out="z",
            probability=probability,
        )
    )
    return plan.plan()


def setting(ranks: int, probability: str) -> Written:
    return Written(partial(reference, probability), partial(parallel, ranks, probability))


BUG = Bug(
    where="Megatron-LM #1256, PaddleFleetX PR 1005",
    should="masks differ between ranks inside a sequence-parallel region, and are the same outside",
    was="the other way round",
    codes=("PIT114",),
    says=("dropout", "tp"),
    shows={"two ranks": setting(2, "1/4"), "three ranks": setting(3, "1/2")},
    silent={"one rank": setting(1, "1/4"), "nothing dropped": setting(2, "0")},
)
