"""Integers that may point before or behind the part of an array that a device holds.

A device that holds some rows of a table subtracts the first of them from its integers, and what
then lies outside is dropped, or clamped and masked. The numbers in this are places along the table,
and a plan can say so: the table then becomes smaller together with its integers. The first row of
a device is an operator ``boundary``, and its last one is that before the boundary behind it.
"""

from __future__ import annotations

from pitcheck.frontends.xla.lowering.arrays import Array, Span
from pitcheck.frontends.xla.lowering.building import Building
from pitcheck.frontends.xla.lowering.indexed.boundaries import boundary
from pitcheck.frontends.xla.lowering.reductions import of_two
from pitcheck.frontends.xla.lowering.structure import reshaped
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.plan.model import Number


def places_in_part(b: Building, x: Array, axis: int, index: Array) -> tuple[Array, Array] | None:
    """Return for each integer if it is a place along an axis of ``x``, and this place, else 0.

    Return None for integers that are known, that all are places, or from which no number was
    subtracted that is one place on each device.
    """
    found = _places(b, x, axis, index)
    if found is None:
        return None
    moved, (low, high) = found
    size = x.sizes[axis]
    truths = ArrayShape(ElementType.PRED, index.sizes)
    tests = []
    if low < 0:
        tests.append(b.array("ge", (moved, Number(0)), truths))
    if high > size:
        end = boundary(b, x, axis, (size,), index.shape.element)
        tests.append(b.array("lt", (moved, end), truths))
    inside = tests[0] if len(tests) == 1 else of_two(b, "and", *tests)
    place = (inside.name, moved, Number(0))
    return inside, b.array("where", place, index.shape, span=(0, size))


def clamped_in_part(b: Building, x: Array, axis: int, index: Array) -> Array | None:
    """Return each integer as a place along an axis of ``x``: if outside, the first or last one.

    Return None where :func:`places_in_part` does.
    """
    found = _places(b, x, axis, index)
    if found is None:
        return None
    moved, (low, high) = found
    size, one = x.sizes[axis], ArrayShape(index.shape.element, ())
    if low < 0:
        moved = b.emit("maximum", (moved, Number(0)), index.shape)
    if high > size:
        end = boundary(b, x, axis, (size,), index.shape.element)
        last = b.emit("sub", (end, Number(1)), one)
        moved = b.emit("minimum", (moved, last), index.shape)
    span = max(0, min(low, size - 1)), min(size, max(high, 1))
    return Array(index.shape, lambda: moved, span=span)


def _places(b: Building, x: Array, axis: int, index: Array) -> tuple[str, Span] | None:
    """Return the integers with the first place of each device subtracted, and their span.

    The array of which they are is one of places along the axis of ``x`` from here on.
    """
    size, origin = x.sizes[axis], index.shown or index
    if origin.moved is None or index.known is not None or index.within(0, size):
        return None
    source, begins = origin.moved
    if min(begins) < 0 or index.span is None:
        return None
    _note_places(source, x, axis)
    begin = boundary(b, x, axis, begins, index.shape.element)
    given = reshaped(b, source, index.sizes).name
    return b.emit("sub", (given, begin), index.shape), index.span


def _note_places(source: Array, x: Array, axis: int) -> None:
    """Note that integers are places along an axis of ``x``, and those that they were made of."""
    origin: Array | None = source
    while origin is not None:
        shown = origin.shown or origin
        shown.places = x, axis
        origin = shown.gathered
