"""The part of the keys that all heads share in multi-latent attention, and its gradient."""

from __future__ import annotations

from bugs.sketch import Sketch

from pitcheck.plan.model import Plan

TOKENS, INTO, SIZE, HEADS = 4, 3, 2, 4


def shared_keys() -> Plan:
    """One device: the gradient of the projection is a sum over all heads."""
    plan = Sketch("shared-keys")
    given(plan, TOKENS, {}, HEADS, {})
    projected(plan, above_keys(plan, "keys", "grad:keys"), "grad:k_pos")
    plan.gradient("grad:k_pos", "k_pos")
    return plan.plan()


def given(
    plan: Sketch, tokens: int, sequence: dict[int, str], heads: int, cut: dict[int, str]
) -> None:
    """Add inputs and the keys of the rank's tokens."""
    x, weight = plan.input("x", (tokens, INTO), sequence), plan.parameter("k_pos", (SIZE, INTO), {})
    plan.input("q", (heads, TOKENS, SIZE), cut)
    plan.input("above", (heads, TOKENS, TOKENS), cut)
    plan.op("linear", x, weight, out="keys")


def above_keys(plan: Sketch, keys: str, out: str) -> str:
    """Record scores, and the gradient of the keys as a sum over the rank's heads."""
    plan.op("einsum", "q", keys, equation="his,js->hij", out="scores")
    slope = plan.op("mul", "scores", "above")
    return str(plan.op("einsum", slope, "q", equation="hij,his->js", out=out))


def projected(plan: Sketch, gradient: str, out: str) -> str:
    """Record the gradient of the projection."""
    return str(plan.op("einsum", gradient, "x", equation="ts,ti->si", out=out))
