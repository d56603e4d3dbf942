"""Muon's step of a matrix whose rows are cut over tensor-parallel ranks depends on all rows."""

from __future__ import annotations

from bugs.orthogonal import moved, orthogonal
from bugs.record import Bug, written
from bugs.sketch import Sketch
from zoo.builder import table

from pitcheck.plan.model import Plan

ROWS, WIDTH = 4, 3


def reference() -> Plan:
    plan = Sketch("muon-rows")
    weight, gradient = plan.parameter("weight", (ROWS, WIDTH)), plan.input("g", (ROWS, WIDTH))
    moved(plan, weight, orthogonal(plan, gradient, "step"))
    return plan.plan()


def parallel(ranks: int, wrong: bool) -> Plan:
    plan = Sketch("muon-rows-tp", {"tp": ranks})
    own, cut = ROWS // ranks, {0: "tp"}
    weight, gradient = (
        plan.parameter("weight", (own, WIDTH), cut),
        plan.input("g", (own, WIDTH), cut),
    )
    if wrong:
        moved(plan, weight, orthogonal(plan, gradient, "step"))
    else:
        whole = plan.op("all_gather", gradient, out="g:whole", group="tp", axis=0)
        step, place = orthogonal(plan, whole), table("tp", *range(ranks))
        moved(plan, weight, plan.op("chunk", step, axis=0, count=ranks, position=place))
    return plan.plan()


BUG = Bug(
    where="DeepSpeed #8437",
    thread="https://github.com/deepspeedai/DeepSpeed/issues/8437",
    should="Muon's step is taken of the whole matrix, and every rank takes its rows of it",
    was="of the rows of a rank, so that the step depends on the number of tensor-parallel ranks",
    codes=("PIT104",),
    says=("tp",),
    shows=written(reference, parallel, two_ranks=(2,), four_ranks=(4,)),
    silent=written(reference, parallel, one_rank=(1,)),
)
