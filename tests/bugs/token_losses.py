"""The mean of masked losses of tokens, and its gradient, for bugs of how these are scaled.

A token's loss is the product of its features and one weight vector.
"""

from __future__ import annotations

from bugs.sketch import Sketch

from pitcheck.plan.model import Operand, Plan

ROWS, LENGTH, WIDTH = 4, 4, 3


def mean_over_tokens(masked: bool = True) -> Plan:
    """One device: the sum of the losses of tokens that count, by their number."""
    plan = Sketch("token-mean")
    given(plan, ROWS, LENGTH, {}, masked)
    total, count, gradient = sums(plan, "x", "mask")
    plan.output(plan.op("div", total, count, out="loss"))
    plan.gradient(plan.op("div", gradient, count, out="grad:weight"), "weight")
    return plan.plan()


def given(plan: Sketch, rows: int, length: int, cut: dict[int, str], masked: bool = True) -> None:
    """Add the features ``x``, the ``mask`` (ones if all tokens count) and the ``weight``."""
    x = plan.input("x", (rows, length, WIDTH), cut)
    plan.parameter("weight", (WIDTH,), {})
    if masked:
        plan.input("mask", (rows, length), cut)
    else:
        plan.op("full", out="mask", sizes=(rows, length), value=1)
    plan.op("einsum", x, "weight", equation="bld,d->bl", out="losses")


def sums(plan: Sketch, x: Operand, mask: Operand, losses: Operand = "losses") -> list[str]:
    """Sum the losses, the mask, and the gradients of the weight, over a rank's tokens."""
    return [
        plan.op("sum", plan.op("mul", losses, mask)),
        plan.op("sum", mask),
        plan.op("einsum", x, mask, equation="bld,bl->d"),
    ]
