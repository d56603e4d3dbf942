"""Queries are divided by their size, head by head, and multiplied by one weight for all heads; the
heads are cut over ranks.
"""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Plan

TOKENS, HEADS, SIZE = 2, 4, 3


def reference() -> Plan:
    plan = Sketch("head-norm")
    plan.gradient(_gradient(plan, HEADS, {}, "grad:norm"), "norm")
    return plan.plan()


def _gradient(plan: Sketch, heads: int, cut: dict[int, str], out: str) -> str:
    """The gradient of the weight that all heads share."""
    q, weight = plan.input("q", (TOKENS, heads, SIZE), cut), plan.parameter("norm", (SIZE,), {})
    y = plan.op("rms_norm", q, weight, out="normed", eps="1/1000")
    above = plan.input("above", (TOKENS, heads, SIZE), cut)
    return plan.back("rms_norm", [q, weight], y, above, ["", out], eps="1/1000")[1]


def parallel(ranks: int, wrong: bool) -> Plan:
    plan = Sketch("head-norm-tp", {"tp": ranks})
    own = _gradient(plan, HEADS // ranks, {1: "tp"}, "grad:norm" if wrong else "grad:norm:own")
    if not wrong:
        own = plan.op("all_reduce", own, out="grad:norm", group="tp")
    plan.gradient(own, "norm")
    return plan.plan()


BUG = Bug(
    where="NeMo-RL #3716",
    thread="https://github.com/NVIDIA-NeMo/RL/issues/3716",
    should="the gradient of the norm that all heads share is summed over tp",
    was="a way to train step by step leaves the sum out",
    codes=("PIT104",),
    says=("grad:norm", "tp"),
    shows=written(reference, parallel, two_ranks=(2,), four_ranks=(4,)),
    silent=written(reference, parallel, one_rank=(1,)),
)
