"""Every rank has a part of every sequence: gradients are terms of a sum over sequence-parallel
ranks, too.
"""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch
from bugs.token_losses import LENGTH, ROWS, given, mean_over_tokens, sums

from pitcheck.plan.model import Plan

BOTH = ("dp", "sp")


def parallel(dp: int, sp: int, wrong: bool) -> Plan:
    plan = Sketch("synchronised", {"dp": dp, "sp": sp})
    given(plan, ROWS // dp, LENGTH // sp, {0: "dp", 1: "sp"})
    total, count, gradient = sums(plan, "x", "mask")
    count = plan.op("all_reduce", count, out="tokens", group=BOTH)
    plan.output(plan.op("all_reduce", plan.op("div", total, count), out="loss", group=BOTH))
    own = plan.op("div", gradient, count, out="grad:weight:own")
    group = ("dp",) if wrong else BOTH
    plan.gradient(plan.op("all_reduce", own, out="grad:weight", group=group), "weight")
    return plan.plan()


BUG = Bug(
    where="VeOmni #1059, PR 1115",
    thread="https://github.com/ByteDance-Seed/VeOmni/issues/1059",
    should="gradients are summed over data-parallel and sequence-parallel ranks",
    was="over data-parallel ones only, which may be a group of one",
    codes=("PIT106", "PIT104"),
    says=("sp",),
    shows=written(mean_over_tokens, parallel, over_both=(2, 2), one_replica=(1, 2)),
    silent=written(mean_over_tokens, parallel, one_sequence_parallel_rank=(2, 1)),
)
