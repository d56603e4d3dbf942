"""Muon treats queries, keys and values, which lie in one matrix, one after the other. The optimizer
sees from the number of rows whether a matrix is one of these.
"""

from __future__ import annotations

from bugs.orthogonal import moved, orthogonal, orthogonal_parts
from bugs.record import Bug, written
from bugs.sketch import Sketch
from zoo.builder import table

from pitcheck.plan.model import Plan

PARTS, WIDTH = (4, 2, 2), 3
ROWS = sum(PARTS)


def reference() -> Plan:
    plan = Sketch("muon")
    weight, gradient = plan.parameter("qkv", (ROWS, WIDTH)), plan.input("grad:qkv", (ROWS, WIDTH))
    moved(plan, weight, orthogonal_parts(plan, gradient, PARTS, "step"))
    return plan.plan()


def parallel(ranks: int, wrong: bool) -> Plan:
    plan = Sketch("muon-sharded", {"tp": ranks})
    own, cut = ROWS // ranks, {0: "tp"}
    weight = plan.parameter("qkv", (own, WIDTH), cut)
    gradient = plan.input("grad:qkv", (own, WIDTH), cut)
    whole = plan.op("all_gather", gradient, out="grad:qkv:whole", group="tp", axis=0)
    split = (own if wrong else ROWS) % ROWS == 0
    step = (
        orthogonal_parts(plan, whole, PARTS, "step") if split else orthogonal(plan, whole, "step")
    )
    place = table("tp", *range(ranks))
    moved(
        plan,
        weight,
        plan.op("chunk", step, out="step:own", axis=0, count=ranks, position=place),
    )
    return plan.plan()


BUG = Bug(
    where="Megatron-LM PR 7117",
    thread="https://github.com/NVIDIA/Megatron-LM/pull/7117",
    should="Muon's steps of queries, keys and values are taken one after the other, however the "
    "matrix is cut",
    was="whether they are is read from the rows of a rank's shard: cut, the matrix is one",
    codes=("PIT103", "PIT102", "PIT108"),
    says=("1:square", "parts of 'grad:qkv'"),
    shows=written(reference, parallel, two_ranks=(2,), four_ranks=(4,)),
    silent=written(reference, parallel, one_rank=(1,)),
)
