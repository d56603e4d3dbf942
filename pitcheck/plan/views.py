"""Views: operators whose output may lie in the places of its input, so that nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from pitcheck.plan.model import Operator

WHOLE = frozenset({"identity", "wait", "detach", "multiref", "contiguous", "reshape", "view", "unsqueeze", "squeeze"})
"""Operators whose outputs are all elements of their input, in the same order."""

Shape = tuple[int, ...]


def displacement(operator: Operator, inputs: Sequence[Shape], outputs: Sequence[Shape], source: int, result: int) -> int | None:
    """Return at which element of input ``source`` output ``result`` begins, if it is a contiguous part of it or contains all of it.

    Negative for an output that begins before the input. None if the elements do not lie in one stretch, or are not those of the input.
    """
    if operator.kind in WHOLE:
        return 0 if len(inputs) == 1 else None
    axis = operator.attributes.get("axis")
    shape = inputs[source]
    if not isinstance(axis, int) or isinstance(axis, bool) or not -len(shape) <= axis < len(shape):
        return None
    axis %= len(shape)
    rows = _rows_before(operator, inputs, outputs, source, result, axis)
    return None if rows is None or prod(shape[:axis]) != 1 else rows * prod(shape[axis + 1 :])


def _rows_before(operator: Operator, inputs: Sequence[Shape], outputs: Sequence[Shape], source: int, result: int, axis: int) -> int | None:
    said = operator.attributes
    if operator.kind == "cat":
        return -sum(shape[axis] for shape in inputs[:source])
    if operator.kind == "split":
        return sum(shape[axis] for shape in outputs[:result])
    if operator.kind == "slice":
        start = said.get("start", 0)
        return start if isinstance(start, int) and said.get("step", 1) == 1 else None
    if operator.kind == "select":
        index = said.get("index")
        return index % inputs[source][axis] if isinstance(index, int) and inputs[source][axis] else None
    if operator.kind == "chunk":
        position = said.get("position")
        return position * outputs[result][axis] if isinstance(position, int) else None
    return None
