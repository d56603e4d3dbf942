"""The loss of multi-token prediction beside that of the next token: losses are added up over
tokens, and gradients are divided by the number of tokens at the end.
"""

from __future__ import annotations

from functools import partial

from bugs.record import Bug, Written
from bugs.sketch import Sketch

from pitcheck.plan.model import Plan

ROWS, LENGTH, WIDTH = 4, 3, 2


def reference(masked: bool) -> Plan:
    plan = Sketch("further-tokens")
    next_, further, tokens, later = _sums(plan, ROWS, {}, masked)
    scaled = plan.op("mul", plan.op("div", further, later), tokens, out="further")
    plan.gradient(_divided(plan, next_, scaled, tokens), "weight")
    return plan.plan()


def _divided(plan: Sketch, next_: str, further: str, tokens: str) -> str:
    return str(plan.op("div", plan.op("add", next_, further), tokens, out="grad:weight"))


def _sums(plan: Sketch, rows: int, cut: dict[int, str], masked: bool) -> list[str]:
    """Gradients of both losses, and how many tokens count in each; ``masked``: not all do."""
    plan.parameter("weight", (WIDTH,), {})
    found = []
    for name in ("next", "further"):
        x = plan.input(f"x:{name}", (rows, LENGTH, WIDTH), cut)
        mask = (
            plan.input(f"mask:{name}", (rows, LENGTH), cut)
            if masked
            else plan.op("full", out=f"mask:{name}", sizes=(rows, LENGTH), value=1)
        )
        gradient = plan.op("einsum", x, mask, equation="bld,bl->d", out=f"grad:{name}")
        found.append((gradient, plan.op("sum", mask, out=f"tokens:{name}")))
    return [found[0][0], found[1][0], found[0][1], found[1][1]]


def parallel(ranks: int, masked: bool, wrong: bool) -> Plan:
    plan = Sketch("further-tokens-dp", {"dp": ranks})
    next_, further, tokens, later = _sums(plan, ROWS // ranks, {0: "dp"}, masked)
    everywhere = plan.op("all_reduce", tokens, out="tokens:next:all", group="dp")
    if not wrong:
        tokens = everywhere
        later = plan.op("all_reduce", later, out="tokens:further:all", group="dp")
    scaled = plan.op("mul", plan.op("div", further, later), tokens, out="further")
    next_, further = (
        plan.op("all_reduce", term, out=f"{term}:all", group="dp") for term in (next_, scaled)
    )
    plan.gradient(_divided(plan, next_, further, everywhere), "weight")
    return plan.plan()


def setting(ranks: int, masked: bool = True) -> Written:
    return Written(partial(reference, masked), partial(parallel, ranks, masked))


BUG = Bug(
    where="Megatron-LM #7452, multi-token prediction",
    thread="https://github.com/NVIDIA/Megatron-LM/issues/7452",
    should="the loss of further tokens is divided by how many of these all ranks have",
    was="by how many the rank has, times its number of next tokens",
    codes=("PIT104", "PIT112"),
    says=("dp",),
    shows={"two ranks": setting(2), "four ranks": setting(4)},
    silent={"all tokens count": setting(2, masked=False), "one rank": setting(1)},
)
