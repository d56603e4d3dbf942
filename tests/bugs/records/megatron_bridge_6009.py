"""One adapter for all experts, which are cut over ranks: its gradient is a sum over experts."""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Plan

TOKENS, INTO, RANK, EXPERTS, OUT = 3, 3, 2, 4, 2


def reference() -> Plan:
    plan = Sketch("shared-adapter")
    plan.gradient(_gradient(plan, EXPERTS, {}, "grad:lora_a"), "lora_a")
    return plan.plan()


def _gradient(plan: Sketch, experts: int, cut: dict[int, str], out: str) -> str:
    """The gradient of the factor that all experts share."""
    x, shared = plan.input("x", (TOKENS, INTO), {}), plan.parameter("lora_a", (RANK, INTO), {})
    own = plan.parameter("lora_b", (experts, OUT, RANK), cut)
    gates = plan.input("gates", (experts, TOKENS), cut)
    above = plan.input("above", (TOKENS, OUT), {})
    inner = plan.op("linear", x, shared, out="inner")
    terms = plan.op("einsum", inner, own, gates, equation="tr,eor,et->to", out="y:own")
    plan.op("mul", terms, above)
    back = plan.op("einsum", above, own, gates, equation="to,eor,et->tr", out="grad:inner")
    return str(plan.op("einsum", back, x, equation="tr,td->rd", out=out))


def parallel(ranks: int, wrong: bool) -> Plan:
    plan = Sketch("shared-adapter-ep", {"ep": ranks})
    name = "grad:lora_a" if wrong else "grad:lora_a:own"
    own = _gradient(plan, EXPERTS // ranks, {0: "ep"}, name)
    if not wrong:
        own = plan.op("all_reduce", own, out="grad:lora_a", group="ep")
    plan.gradient(own, "lora_a")
    return plan.plan()


BUG = Bug(
    where="Megatron-Bridge PR 6009",
    thread="https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/6009",
    should="the gradient of an adapter that all experts share is summed over ep",
    was="with fused accumulation the hook that sums it is given a tensor that stands for it",
    codes=("PIT104",),
    says=("ep",),
    shows=written(reference, parallel, two_ranks=(2,), four_ranks=(4,)),
    silent=written(reference, parallel, one_rank=(1,)),
)
