"""An auxiliary loss enters the backward pass through a function that gives back the router's
weights; if what it gives back is dropped, the loss has no gradient.
"""

from __future__ import annotations

from functools import partial

from bugs.record import Bug, Written
from bugs.sketch import Sketch

from pitcheck.plan.model import Number, Plan

TOKENS, WIDTH, EXPERTS = 4, 3, 2


def reference(extra: bool) -> Plan:
    """``extra``: the auxiliary loss is asked for."""
    plan = Sketch("balanced")
    main, other = _gradients(plan, TOKENS, {})
    total = plan.op("add", main, other) if extra else main
    plan.gradient(plan.op("identity", total, out="grad:router"), "router")
    return plan.plan()


def _gradients(plan: Sketch, tokens: int, cut: dict[int, str]) -> list[str]:
    """The gradient of the tokens' losses, and that of the sum of squares of the weights."""
    weight = plan.parameter("router", (EXPERTS, WIDTH), {})
    x, above = plan.input("x", (tokens, WIDTH), cut), plan.input("above", (tokens, EXPERTS), cut)
    weights = plan.op("softmax", plan.op("linear", x, weight, out="scores"), axis=1, out="weights")
    slope = plan.op("mul", weights, Number("1/50"), out="grad:extra")
    found = []
    for name, gradient in (("main", above), ("extra", slope)):
        back = plan.back("softmax", ["scores"], weights, gradient, [f"grad:scores:{name}"], axis=1)
        found.append(plan.op("einsum", back[0], x, equation="te,td->ed", out=f"grad:{name}:router"))
    return found


def parallel(ranks: int, extra: bool, wrong: bool) -> Plan:
    plan = Sketch("balanced-dp", {"dp": ranks})
    main, other = _gradients(plan, TOKENS // ranks, {0: "dp"})
    own = plan.op("add", main, other, out="grad:router:own") if extra and not wrong else main
    plan.gradient(plan.op("all_reduce", own, out="grad:router", group="dp"), "router")
    return plan.plan()


def setting(ranks: int, extra: bool) -> Written:
    return Written(partial(reference, extra), partial(parallel, ranks, extra))


BUG = Bug(
    where="NeMo Automodel PR 1412, #1408",
    thread="https://github.com/NVIDIA-NeMo/Automodel/pull/1412",
    should="the gradient of the auxiliary loss is added to that of the router",
    was="the result of the function that attaches it is dropped: it has none",
    codes=("PIT108",),
    says=("router",),
    shows={"two ranks": setting(2, True), "one rank": setting(1, True)},
    silent={"no auxiliary loss": setting(2, False)},
)
