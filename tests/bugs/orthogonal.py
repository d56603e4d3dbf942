"""A step of Newton and Schulz towards an orthogonal matrix, as the optimizer Muon takes them."""

from __future__ import annotations

from collections.abc import Sequence

from bugs.sketch import Sketch

from pitcheck.plan.model import Number


def orthogonal(plan: Sketch, x: str, out: str = "") -> str:
    """Record 3/2 x - 1/2 x x^T x of a matrix that is divided by its norm; return the result."""
    norm = plan.op("sqrt", plan.op("sum", plan.op("square", x)))
    unit = plan.op("div", x, norm)
    cube = plan.op("einsum", unit, unit, unit, equation="ab,cb,cd->ad")
    larger = plan.op("mul", unit, Number("3/2"))
    return str(plan.op("sub", larger, plan.op("mul", cube, Number("1/2")), out=out))


def orthogonal_parts(plan: Sketch, x: str, rows: Sequence[int], out: str) -> str:
    """Record the same for each part of the rows of a matrix, and join the results."""
    parts, start = [], 0
    for size in rows:
        part = plan.op("slice", x, axis=0, start=start, stop=start + size)
        parts.append(orthogonal(plan, part))
        start += size
    return str(plan.op("cat", *parts, out=out, axis=0))


def moved(plan: Sketch, weight: str, step: str) -> None:
    """Record the weight less a tenth of the step, as its new value and an output."""
    less = plan.op("mul", step, Number("1/10"))
    plan.update(plan.op("sub", weight, less, out=f"{weight}:new"), weight, f"{weight}:new")
