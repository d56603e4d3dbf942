"""A loss that all sequence-parallel ranks compute alike, of what they gathered. Its gradient is the
same on all of them, and parameters' gradients are averaged over them.
"""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch
from zoo.builder import table

from pitcheck.plan.model import Plan

TOKENS, WIDTH, OUT = 4, 3, 2


def reference() -> Plan:
    plan = Sketch("gathered-outputs")
    above, _ = _given(plan, TOKENS, {})
    plan.gradient(plan.op("einsum", above, "x", equation="to,td->od", out="grad:weight"), "weight")
    return plan.plan()


def _given(plan: Sketch, tokens: int, cut: dict[int, str]) -> tuple[str, str]:
    """The gradient of a loss that is quadratic in the outputs of all tokens."""
    x, weight = plan.input("x", (tokens, WIDTH), cut), plan.parameter("weight", (OUT, WIDTH), {})
    y = plan.op("linear", x, weight, out="y")
    if cut:
        y = plan.op("all_gather", y, out="y:all", group="sp", axis=0)
    factors = plan.input("factors", (TOKENS, OUT), {})
    return plan.op("mul", y, factors, out="grad:y"), weight


def parallel(ranks: int, wrong: bool) -> Plan:
    plan = Sketch("gathered-outputs-sp", {"sp": ranks})
    above, _ = _given(plan, TOKENS // ranks, {0: "sp"})
    if wrong:
        place = table("sp", *range(ranks))
        own = plan.op("chunk", above, out="grad:y:own", axis=0, count=ranks, position=place)
    else:
        own = plan.op("reduce_scatter", above, out="grad:y:own", group="sp", axis=0)
    term = plan.op("einsum", own, "x", equation="to,td->od", out="grad:weight:own")
    mean = plan.op("all_reduce", term, out="grad:weight", group="sp", reduction="avg")
    plan.gradient(mean, "weight")
    return plan.plan()


BUG = Bug(
    where="VeOmni PR 1120",
    thread="https://github.com/ByteDance-Seed/VeOmni/pull/1120",
    should="where gradients are averaged over sp the derivative of a gather adds up over sp, "
    "though the loss is the same on all ranks",
    was="each rank takes its part: parameters' gradients are sp times too small",
    codes=("PIT111", "PIT101", "PIT102"),
    says=("sp",),
    shows=written(reference, parallel, two_ranks=(2,), four_ranks=(4,)),
    silent=written(reference, parallel, one_rank=(1,)),
)
