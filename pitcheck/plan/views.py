"""Views: operators whose output may lie in the places of its input, so that nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from pitcheck.ops.registry import kinds_with
from pitcheck.ops.traits import Trait
from pitcheck.plan.model import Attribute, Operator

Shape = tuple[int, ...]
Shapes = Sequence[Shape | None]
"""Shapes of operands or results, None for a result that is not wanted."""


def displacement(operator: Operator, inputs: Shapes, outputs: Shapes, source: int, result: int) -> int | None:
    """Return at which element of input ``source`` output ``result`` begins, if it is a contiguous part of it or contains all of it.

    Negative for an output that begins before the input. None if the elements do not lie in one stretch, or are not those of the input.
    """
    if operator.kind in kinds_with(Trait.KEEPS_ORDER):
        return 0 if len(inputs) == 1 else None
    axis = operator.attributes.get("axis")
    shape = inputs[source]
    if shape is None or not isinstance(axis, int) or isinstance(axis, bool) or not -len(shape) <= axis < len(shape):
        return None
    axis %= len(shape)
    rows = _rows_before(operator, inputs, outputs, source, result, axis)
    return None if rows is None or prod(shape[:axis]) != 1 else rows * prod(shape[axis + 1 :])


def _rows_before(operator: Operator, inputs: Shapes, outputs: Shapes, source: int, result: int, axis: int) -> int | None:
    whole, part = inputs[source], outputs[result]
    if whole is None or part is None:
        return None
    kind, said = operator.kind, operator.attributes
    rows: Attribute = None
    if kind == "cat":
        rows = -sum(shape[axis] for shape in inputs[:source] if shape is not None)
    elif kind == "split" and isinstance(sizes := said.get("sizes"), tuple):
        rows = sum(size for size in sizes[:result] if isinstance(size, int))
    elif kind == "slice" and said.get("step", 1) == 1:
        rows = said.get("start", 0)
    elif kind == "select" and isinstance(index := said.get("index"), int) and whole[axis]:
        rows = index % whole[axis]
    elif kind == "chunk" and isinstance(position := said.get("position"), int):
        rows = position * part[axis]
    return rows if isinstance(rows, int) else None
