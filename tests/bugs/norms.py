"""The norm of gradients, and a step by the gradient that is divided by it."""

from __future__ import annotations

from bugs.sketch import Sketch


def squares(plan: Sketch, gradient: str) -> str:
    """Record the sum of the squares of a tensor's elements; return it."""
    return str(plan.op("sum", plan.op("square", gradient)))


def step(plan: Sketch, weight: str, gradient: str, norm: str) -> None:
    """Record the weight less the gradient divided by the norm, as its new value and an output."""
    clipped = plan.op("div", gradient, norm, out=f"clipped:{weight}")
    plan.update(plan.op("sub", weight, clipped, out=f"{weight}:new"), weight, f"{weight}:new")
