"""A loss of the router's scores beside that of the tokens. Gradients are divided by the number of
all tokens at the end, so this loss is multiplied by it.
"""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Number, Plan

TOKENS, WIDTH, EXPERTS = 4, 3, 2
SHARE = "1/100"


def reference() -> Plan:
    plan = Sketch("router-loss")
    main, extra = _gradients(plan, TOKENS, {})
    extra = plan.op("mul", extra, Number(SHARE), out="extra")
    plan.gradient(_divided(plan, main, extra), "router")
    return plan.plan()


def _divided(plan: Sketch, main: str, extra: str) -> str:
    total = plan.op("add", main, extra)
    return str(plan.op("mul", total, Number(f"1/{TOKENS}"), out="grad:router"))


def _gradients(plan: Sketch, tokens: int, cut: dict[int, str]) -> list[str]:
    """The gradient of the tokens' losses, and that of their squared logarithms of sums, summed."""
    weight = plan.parameter("router", (EXPERTS, WIDTH), {})
    x, above = plan.input("x", (tokens, WIDTH), cut), plan.input("above", (tokens, EXPERTS), cut)
    scores = plan.op("linear", x, weight, out="scores")
    logarithm = plan.op("logsumexp", scores, axis=1, keepdim=True)
    shares = plan.op("mul", plan.op("softmax", scores, axis=1), logarithm)
    slope = plan.op("mul", shares, Number(2), out="grad:extra")
    return [plan.op("einsum", g, x, equation="te,td->ed") for g in (above, slope)]


def parallel(ranks: int, wrong: bool) -> Plan:
    plan = Sketch("router-loss-tp", {"tp": ranks})
    own = TOKENS // ranks
    main, extra = _gradients(plan, own, {0: "tp"})
    mean = plan.op("mul", extra, Number(f"1/{own}"))
    of_all = plan.op("mul", mean, Number(f"1/{100 * ranks}"), out="extra:mean")
    times = own if wrong else TOKENS
    scaled = plan.op("mul", of_all, Number(times), out="extra")
    main, extra = (
        plan.op("all_reduce", x, out=f"{name}:all", group="tp")
        for x, name in ((main, "main"), (scaled, "extra"))
    )
    plan.gradient(_divided(plan, main, extra), "router")
    return plan.plan()


BUG = Bug(
    where="Megatron-LM PR 5047",
    thread="https://github.com/NVIDIA/Megatron-LM/pull/5047",
    should="with a loss per token the router's losses are multiplied by the number of all tokens",
    was="by that of the rank's: they are tp times too small",
    codes=("PIT101", "PIT102"),
    says=("extra",),
    shows=written(reference, parallel, two_ranks=(2,), four_ranks=(4,)),
    silent=written(reference, parallel, one_rank=(1,)),
)
