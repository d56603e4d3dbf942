"""Numbers that are places between the shards of an array, as operators of a plan."""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.frontends.xla.lowering.arrays import Array
from pitcheck.frontends.xla.lowering.building import Building
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType


def boundary(b: Building, x: Array, axis: int, offsets: Sequence[int], element: ElementType) -> str:
    """Return a place along an axis of what ``x`` is a part of, as an integer of a type.

    ``offsets``: that of each device, or the one of all.
    """
    attributes = {"axis": axis, "offset": b.table(offsets)}
    return b.emit("boundary", (x.name,), ArrayShape(element, ()), attributes)
