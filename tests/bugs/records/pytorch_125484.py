"""HSDP with several micro-batches: gradients are reduce-scattered after each, and summed over the
replicas after the last one.
"""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Plan, Use

ROWS, INTO, OUT = 8, 2, 4


def reference() -> Plan:
    plan = Sketch("accumulated")
    plan.parameter("weight", (OUT, INTO))
    x, above = plan.input("x", (ROWS, INTO)), plan.input("above", (ROWS, OUT))
    plan.gradient(plan.op("einsum", above, x, equation="bo,bi->oi", out="grad:weight"), "weight")
    return plan.plan()


def parallel(replicas: int, microbatches: int, wrong: bool) -> Plan:
    mesh = {"dp_replicate": replicas, "dp_shard": 2}
    plan = Sketch("accumulated-hsdp", mesh, microbatches)
    rows = ROWS // (2 * replicas * microbatches)
    cut = {0: ("mb", "dp_replicate", "dp_shard")}
    plan.parameter("weight", (OUT // 2, INTO), {0: "dp_shard"})
    x, above = (
        plan.input(name, (rows, size), cut, microbatched=True)
        for name, size in (("x", INTO), ("above", OUT))
    )
    term = plan.op("einsum", above, x, equation="bo,bi->oi", out="grad:term")
    shard = plan.op("reduce_scatter", term, out="grad:shard", group="dp_shard", axis=0)
    plan.gradient(_summed(plan, shard, microbatches, wrong), "weight")
    return plan.plan()


def _summed(plan: Sketch, shard: str, microbatches: int, wrong: bool) -> str:
    if not wrong or microbatches == 1:
        total = plan.op("accumulate", shard, out="grad:sum")
        return str(plan.op("all_reduce", total, out="grad:weight", group="dp_replicate"))
    last = microbatches - 1
    before = plan.op("accumulate", shard, out="grad:before", microbatches=tuple(range(last)))
    own = plan.op("all_reduce", Use(shard, last), out="grad:last", group="dp_replicate")
    return str(plan.op("add", before, own, out="grad:weight"))


BUG = Bug(
    where="pytorch PR 125484",
    thread="https://github.com/pytorch/pytorch/pull/125484",
    should="under HSDP what all micro-batches left in a shard is summed over the replicas",
    was="the last one's alone, if they are added up after that sum",
    codes=("PIT116", "PIT104", "PIT108"),
    says=("dp_replicate",),
    shows=written(reference, parallel, two_microbatches=(2, 2)),
    silent=written(reference, parallel, one_microbatch=(2, 1), no_replicas=(1, 2)),
)
