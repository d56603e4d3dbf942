"""An adapter of low rank at a row-parallel layer: its second factor is whole on every
tensor-parallel rank, and sees a part of the tokens there under sequence parallelism.
"""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Plan

TOKENS, INTO, RANK, OUT = 4, 4, 2, 3


def reference() -> Plan:
    plan = Sketch("adapter")
    x, gradient = plan.input("x", (TOKENS, INTO)), plan.input("grad:y", (TOKENS, OUT))
    first, second = plan.parameter("lora_a", (RANK, INTO)), plan.parameter("lora_b", (OUT, RANK))
    inner = plan.op("linear", x, first, out="inner")
    plan.output(plan.op("linear", inner, second, out="y"))
    plan.back("linear", [inner, second], "y", gradient, ["grad:inner", "grad:lora_b"])
    plan.back("linear", [x, first], inner, "grad:inner", ["", "grad:lora_a"])
    plan.gradient("grad:lora_a", first)
    plan.gradient("grad:lora_b", second)
    return plan.plan()


def parallel(ranks: int, sequence: bool, wrong: bool) -> Plan:
    """``sequence``: what lies between the factors is cut over tokens, and so is the output."""
    plan = Sketch("adapter-tp", {"tp": ranks})
    tokens, cut = (TOKENS // ranks, {0: "tp"}) if sequence else (TOKENS, {})
    x = plan.input("x", (TOKENS, INTO // ranks), {1: "tp"})
    gradient = plan.input("grad:y", (tokens, OUT), cut)
    first = plan.parameter("lora_a", (RANK, INTO // ranks), {1: "tp"})
    second = plan.parameter("lora_b", (OUT, RANK), {})
    term = plan.op("linear", x, first)
    if sequence:
        inner = plan.op("reduce_scatter", term, out="inner", group="tp", axis=0)
        own = plan.op("linear", inner, second, out="y:own")
        plan.output(plan.op("all_gather", own, out="y", group="tp", axis=0))
    else:
        inner = plan.op("all_reduce", term, out="inner", group="tp")
        own = plan.op("linear", inner, second, out="y")
        plan.output(own)
    summed = sequence and not wrong
    name = "grad:lora_b:own" if summed else "grad:lora_b"
    back, _ = plan.back("linear", [inner, second], own, gradient, ["grad:inner", name])
    if sequence:
        back = plan.op("all_gather", back, out="grad:inner:all", group="tp", axis=0)
    if summed:
        plan.op("all_reduce", name, out="grad:lora_b", group="tp")
    plan.back("linear", [x, first], term, back, ["", "grad:lora_a"])
    plan.gradient("grad:lora_a", first)
    plan.gradient("grad:lora_b", second)
    return plan.plan()


BUG = Bug(
    where="mcore-bridge PR 173",
    thread="https://github.com/modelscope/mcore-bridge/pull/173",
    should="under sequence parallelism the gradient of the factor of an adapter that every rank "
    "has is summed over tp",
    was="each rank trains its copy on its part of the tokens",
    codes=("PIT104",),
    says=("lora_b", "tp"),
    shows=written(reference, parallel, two_ranks=(2, True), four_ranks=(4, True)),
    silent=written(
        reference, parallel, without_sequence_parallelism=(2, False), one_rank=(1, True)
    ),
)
