"""The mean over tokens, which are cut over data-parallel and context-parallel ranks."""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch
from bugs.token_losses import LENGTH, ROWS, given, mean_over_tokens, sums

from pitcheck.plan.model import Plan


def parallel(dp: int, cp: int, wrong: bool) -> Plan:
    plan = Sketch("token-mean-cp", {"dp": dp, "cp": cp})
    given(plan, ROWS // dp, LENGTH // cp, {0: "dp", 1: "cp"})
    total, count, gradient = sums(plan, "x", "mask")
    count = plan.op("all_reduce", count, out="tokens", group="dp" if wrong else ("dp", "cp"))
    loss = plan.op("div", total, count)
    plan.output(plan.op("all_reduce", loss, out="loss", group=("dp", "cp")))
    own = plan.op("div", gradient, count)
    plan.gradient(plan.op("all_reduce", own, out="grad:weight", group=("dp", "cp")), "weight")
    return plan.plan()


BUG = Bug(
    where="verl #5983",
    thread="https://github.com/verl-project/verl/issues/5983",
    should="the number of tokens is summed over data-parallel and context-parallel ranks",
    was="over data-parallel ranks only",
    codes=("PIT104",),
    says=("cp",),
    shows=written(mean_over_tokens, parallel, over_both=(2, 2), two_ranks=(1, 2)),
    silent=written(mean_over_tokens, parallel, one_context_parallel_rank=(2, 1)),
)
