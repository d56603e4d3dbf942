"""Tensors that a plan is given."""

from __future__ import annotations

from pitcheck.frontends.xla.lowering.arrays import Array, Span, dtype_of
from pitcheck.frontends.xla.lowering.building import Building
from pitcheck.frontends.xla.lowering.placement import lineage_of
from pitcheck.frontends.xla.text.shapes import ArrayShape
from pitcheck.frontends.xla.text.sharding import Sharding
from pitcheck.plan.model import Tensor


def given(
    b: Building,
    stem: str,
    whole: ArrayShape,
    sharding: Sharding | None,
    place: str,
    bounds: Span | None = None,
    *,
    bounded: bool = True,
) -> Array:
    """Return an array that the plan is given: all of it, or on each device the part it holds.

    ``stem`` is its name if no other has it. ``bounds``: the half-open range of its integers.
    ``bounded``: False if they lie there only where the plan has a tensor of them, which is made
    when it is asked for.

    Raises:
        UnsupportedError: for a sharding that plans cannot state.
        PlanError: for one that does not fit the array.
    """
    name = b.unused(stem)
    lineage, sizes = None, whole.dimensions
    if b.devices > 1:
        lineage, sizes = lineage_of(name, sizes, sharding, b.devices, place)
    shape = ArrayShape(whole.element, sizes)

    def made() -> str:
        dtype, stated = dtype_of(shape.element), b.stated(shape)
        b.tensors[name] = Tensor(name, stated, dtype, "input", lineage=lineage, bounds=bounds)
        return name

    found = Array(shape, made, span=bounds if bounded else None)
    if bounded:
        found.made()
    return found
