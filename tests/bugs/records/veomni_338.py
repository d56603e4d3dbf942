"""Gradients are averaged over data-parallel and sequence-parallel ranks; the loss is multiplied by
their number before, to be divided by the number of tokens alone.
"""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch
from bugs.token_losses import LENGTH, ROWS, given, mean_over_tokens, sums

from pitcheck.plan.model import Number, Plan

BOTH = ("dp", "sp")


def parallel(dp: int, sp: int, wrong: bool) -> Plan:
    plan = Sketch("token-mean-sp", {"dp": dp, "sp": sp})
    given(plan, ROWS // dp, LENGTH // sp, {0: "dp", 1: "sp"})
    total, count, gradient = sums(plan, "x", "mask")
    count = plan.op("all_reduce", count, out="tokens", group=BOTH)
    plan.output(plan.op("all_reduce", plan.op("div", total, count), out="loss", group=BOTH))
    times = Number(dp if wrong else dp * sp)
    own = plan.op("mul", plan.op("div", gradient, count), times, out="grad:weight:own")
    mean = plan.op("all_reduce", own, out="grad:weight", group=BOTH, reduction="avg")
    plan.gradient(mean, "weight")
    return plan.plan()


BUG = Bug(
    where="VeOmni PR 338, DeepSpeed PR 4530",
    thread="https://github.com/ByteDance-Seed/VeOmni/pull/338",
    should="the loss is multiplied by as many ranks as gradients are averaged over",
    was="by dp, while gradients are averaged over dp and sp: they are sp times too small",
    codes=("PIT101", "PIT102", "PIT111"),
    says=("sp",),
    shows=written(
        mean_over_tokens, parallel, over_both=(2, 4), two_ranks=(1, 2), as_many_of_both=(2, 2)
    ),
    silent=written(mean_over_tokens, parallel, one_sequence_parallel_rank=(2, 1)),
)
