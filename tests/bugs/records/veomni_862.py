"""Under HSDP the gradients are cut over the ranks that share the parameters, and the same in every
replica of these.
"""

from __future__ import annotations

from bugs.norms import squares, step
from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Plan

SIZE = 4


def reference() -> Plan:
    plan = Sketch("norm")
    weight, gradient = plan.parameter("weight", (SIZE,)), plan.input("g", (SIZE,))
    norm = plan.op("sqrt", squares(plan, gradient), out="norm")
    plan.output(norm)
    step(plan, weight, gradient, norm)
    return plan.plan()


def parallel(replicas: int, shards: int, wrong: bool) -> Plan:
    plan = Sketch("norm-hsdp", {"dp_replicate": replicas, "dp_shard": shards})
    cut = {0: "dp_shard"}
    weight = plan.parameter("weight", (SIZE // shards,), cut)
    gradient = plan.input("g", (SIZE // shards,), cut)
    own = squares(plan, gradient)
    group = ("dp_replicate", "dp_shard") if wrong else ("dp_shard",)
    norm = plan.op("sqrt", plan.op("all_reduce", own, out="squares", group=group), out="norm")
    plan.output(norm)
    step(plan, weight, gradient, norm)
    return plan.plan()


BUG = Bug(
    where="VeOmni PR 862, #184",
    thread="https://github.com/ByteDance-Seed/VeOmni/pull/862",
    should="the squares of gradients are summed over the ranks that share the parameters",
    was="over all data-parallel ranks: every replica's gradients are counted",
    codes=("PIT105", "PIT106"),
    says=("dp_shard",),
    shows=written(reference, parallel, two_replicas=(2, 2), three_replicas=(3, 2)),
    silent=written(reference, parallel, no_replicas=(1, 4)),
)
