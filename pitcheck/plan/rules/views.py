"""Views: operators whose output may lie in the places of its input, so that nothing is written."""

from __future__ import annotations

from math import prod

from pitcheck.ops.declaration import Pair, Shapes
from pitcheck.ops.registry import kinds_with, offset_of
from pitcheck.ops.traits import Trait
from pitcheck.plan.model import Operator


def displacement(
    operator: Operator, inputs: Shapes, outputs: Shapes, source: int, result: int
) -> int | None:
    """Return the element of input ``source`` at which output ``result`` begins.

    One must be a contiguous part of the other. The result is negative for an output that begins
    before the input. It is None if the elements do not lie in one stretch, or are not those of the
    input.
    """
    if operator.kind in kinds_with(Trait.KEEPS_ORDER):
        return 0 if len(inputs) == 1 else None
    axis = operator.attributes.get("axis")
    shape = inputs[source]
    if (
        shape is None
        or not isinstance(axis, int)
        or isinstance(axis, bool)
        or not -len(shape) <= axis < len(shape)
    ):
        return None
    axis %= len(shape)
    if outputs[result] is None:
        return None
    offset = offset_of(operator.kind)
    rows = (
        None
        if offset is None
        else offset(Pair(operator.attributes, inputs, outputs, source, result, axis))
    )
    return (
        rows * prod(shape[axis + 1 :])
        if isinstance(rows, int) and prod(shape[:axis]) == 1
        else None
    )
