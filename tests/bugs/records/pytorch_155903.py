"""Gradients are divided by a given factor: in the reduce-scatter over the ranks that share a
parameter, and the all-reduce over the replicas of these adds up.
"""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Number, Plan

ROWS, INTO, OUT = 8, 3, 4
FACTOR = Number("1/5")


def reference() -> Plan:
    plan = Sketch("divided")
    plan.parameter("weight", (OUT, INTO))
    x, gradient = plan.input("x", (ROWS, INTO)), plan.input("grad:y", (ROWS, OUT))
    total = plan.op("einsum", gradient, x, equation="bo,bi->oi")
    plan.gradient(plan.op("mul", total, FACTOR, out="grad:weight"), "weight")
    return plan.plan()


def parallel(replicas: int, shards: int, wrong: bool) -> Plan:
    plan = Sketch("divided-hsdp", {"dp_replicate": replicas, "dp_shard": shards})
    rows, both = ROWS // (replicas * shards), {0: ("dp_replicate", "dp_shard")}
    plan.parameter("weight", (OUT // shards, INTO), {0: "dp_shard"})
    x, gradient = plan.input("x", (rows, INTO), both), plan.input("grad:y", (rows, OUT), both)
    own = plan.op("einsum", gradient, x, equation="bo,bi->oi")
    divided = plan.op("mul", own, FACTOR)
    shard = plan.op("reduce_scatter", divided, out="grad:shard", group="dp_shard", axis=0)
    kind = "avg" if wrong else "sum"
    total = plan.op("all_reduce", shard, out="grad:weight", group="dp_replicate", reduction=kind)
    plan.gradient(total, "weight")
    return plan.plan()


BUG = Bug(
    where="pytorch #155903",
    thread="https://github.com/pytorch/pytorch/issues/155903",
    should="with a divide factor gradients are summed and divided by it, with and without replicas",
    was="over the replicas of HSDP they are averaged as well",
    codes=("PIT111", "PIT101", "PIT102"),
    says=("dp_replicate",),
    shows=written(reference, parallel, two_replicas=(2, 2), four_replicas=(4, 2)),
    silent=written(reference, parallel, no_replicas=(1, 4), one_rank=(1, 1)),
)
