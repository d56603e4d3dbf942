"""Integers that may point before or behind the part of an array that a device holds.

A device that holds some rows of a table subtracts the first of them from its integers, and what
then lies outside is dropped. The numbers in this are places along the table, and a plan can say so:
the table then becomes smaller together with its integers.
"""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.frontends.xla.lowering.arrays import Array
from pitcheck.frontends.xla.lowering.building import Building
from pitcheck.frontends.xla.lowering.reductions import of_two
from pitcheck.frontends.xla.lowering.structure import reshaped
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.plan.model import Number


def places_in_part(b: Building, x: Array, axis: int, index: Array) -> tuple[Array, Array] | None:
    """Return for each integer if it is a place along an axis of ``x``, and this place, else 0.

    Return None for integers that are known, that all are places, or from which no number was
    subtracted that is one place on each device.
    """
    size, origin = x.sizes[axis], index.shown or index
    if origin.moved is None or index.known is not None or index.within(0, size):
        return None
    source, begins = origin.moved
    if min(begins) < 0 or index.span is None:
        return None
    begin = _boundary(b, x, axis, begins, index)
    given = reshaped(b, source, index.sizes).name
    moved = b.array("sub", (given, begin), index.shape, span=index.span)
    truths = ArrayShape(ElementType.PRED, index.sizes)
    low, high = index.span
    tests = []
    if low < 0:
        tests.append(b.array("ge", (moved.name, Number(0)), truths))
    if high > size:
        end = _boundary(b, x, axis, (size,), index)
        tests.append(b.array("lt", (moved.name, end), truths))
    inside = tests[0] if len(tests) == 1 else of_two(b, "and", *tests)
    place = (inside.name, moved.name, Number(0))
    return inside, b.array("where", place, index.shape, span=(0, size))


def _boundary(b: Building, x: Array, axis: int, offsets: Sequence[int], like: Array) -> str:
    """Return a place along an axis of what ``x`` is a part of, as an integer of a type."""
    attributes = {"axis": axis, "offset": b.table(offsets)}
    return b.emit("boundary", (x.name,), ArrayShape(like.shape.element, ()), attributes)
