"""Adapters of experts that are not cut over tensor-parallel ranks, while the rest is: all ranks
have replicas of them, and different tokens.
"""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Plan

TOKENS, INTO, OUT = 8, 3, 2
BOTH = ("dp", "tp")


def reference() -> Plan:
    plan = Sketch("expert-replicas")
    plan.gradient(_gradient(plan, TOKENS, {}, "grad:lora"), "lora")
    return plan.plan()


def _gradient(plan: Sketch, tokens: int, cut: dict[int, tuple[str, ...]], out: str) -> str:
    plan.parameter("lora", (OUT, INTO), {})
    x, above = plan.input("x", (tokens, INTO), cut), plan.input("above", (tokens, OUT), cut)
    return str(plan.op("einsum", above, x, equation="to,td->od", out=out))


def parallel(dp: int, tp: int, wrong: bool) -> Plan:
    plan = Sketch("expert-replicas-tp", {"dp": dp, "tp": tp})
    own = _gradient(plan, TOKENS // (dp * tp), {0: BOTH}, "grad:lora:own")
    group = ("dp",) if wrong else BOTH
    plan.gradient(plan.op("all_reduce", own, out="grad:lora", group=group), "lora")
    return plan.plan()


BUG = Bug(
    where="Megatron-Bridge #5229",
    thread="https://github.com/NVIDIA-NeMo/Megatron-Bridge/issues/5229",
    should="gradients of experts that are not cut over tp are summed over all ranks that have them",
    was="with one expert-parallel rank they count as other weights: over dp only",
    codes=("PIT106", "PIT104"),
    says=("tp",),
    shows=written(reference, parallel, over_both=(2, 2), two_ranks=(1, 2)),
    silent=written(reference, parallel, one_tensor_parallel_rank=(4, 1)),
)
