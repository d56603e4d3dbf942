"""The rows of a projection of which some go through a column-parallel layer, whose backward pass
sums over tp already, and some past it.
"""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Plan

TOKENS, INTO, LATENT, ROPE, HEADS, SIZE = 2, 3, 2, 2, 4, 2


def reference() -> Plan:
    plan = Sketch("latent")
    latent, rope = _above(plan, HEADS, {})
    plan.gradient(_weight(plan, latent, rope, "grad:kv_a"), "kv_a")
    return plan.plan()


def _above(plan: Sketch, heads: int, cut: dict[int, str]) -> list[str]:
    """Gradients of the latent part and of the part that only turns, as sums over a rank's heads."""
    plan.parameter("kv_a", (LATENT + ROPE, INTO), {})
    plan.input("x", (TOKENS, INTO), {})
    up = plan.parameter("kv_b", (heads, SIZE, LATENT), cut)
    values = plan.input("above:values", (heads, TOKENS, SIZE), cut)
    turned = plan.input("above:turned", (heads, TOKENS, ROPE), cut)
    return [
        plan.op("einsum", values, up, equation="hts,hsl->tl", out="grad:latent"),
        plan.op("sum", turned, axes=(0,), out="grad:rope"),
    ]


def _weight(plan: Sketch, latent: str, rope: str, out: str) -> str:
    both = plan.op("cat", latent, rope, axis=1)
    return str(plan.op("einsum", both, "x", equation="to,ti->oi", out=out))


def parallel(ranks: int, wrong: bool) -> Plan:
    plan = Sketch("latent-tp", {"tp": ranks})
    latent, rope = _above(plan, HEADS // ranks, {0: "tp"})
    latent = plan.op("all_reduce", latent, out="grad:latent:all", group="tp")
    if wrong:
        own = _weight(plan, latent, rope, "grad:kv_a:own")
        whole = plan.op("all_reduce", own, out="grad:kv_a", group="tp")
    else:
        rope = plan.op("all_reduce", rope, out="grad:rope:all", group="tp")
        whole = _weight(plan, latent, rope, "grad:kv_a")
    plan.gradient(whole, "kv_a")
    return plan.plan()


BUG = Bug(
    where="AReno PR 496",
    thread="https://github.com/inclusionAI/AReno/pull/496",
    should="what went through the column-parallel layer is summed over tp once, in its backward",
    was="the whole gradient is summed again: [2 (c0 + c1), r0 + r1] on two ranks",
    codes=("PIT105", "PIT103", "PIT108"),
    says=("grad:latent",),
    shows=written(reference, parallel, two_ranks=(2,), four_ranks=(4,)),
    silent=written(reference, parallel, one_rank=(1,)),
)
