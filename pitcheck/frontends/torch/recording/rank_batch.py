"""The part of the batch that a rank reads."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from pitcheck.errors import PlanError
from pitcheck.frontends.torch.program import Input
from pitcheck.frontends.torch.trace import Intervals


def box_of(
    name: str, given: Input, mesh: Mapping[str, int], coordinate: Mapping[str, int]
) -> tuple[Intervals, ...]:
    """Return for each dimension the interval that is read at a coordinate of the mesh.

    Parts are even, and row-major over the axes that split the dimension.

    Raises PlanError for a split over an unknown axis, of a dimension that does not exist, or into
    parts that are not even.
    """
    box: list[Intervals] = [((0, size),) for size in given.shape]
    for dim, over in given.split.items():
        axes = (over,) if isinstance(over, str) else tuple(over)
        missing = [axis for axis in axes if axis not in mesh]
        if missing:
            raise PlanError(
                f"batch[{name!r}] is split over {missing[0]!r}, which is no axis of the mesh "
                f"({', '.join(mesh)})"
            )
        if not 0 <= dim < len(given.shape):
            raise PlanError(
                f"batch[{name!r}] is split in dimension {dim}, but its shape is {given.shape}"
            )
        parts = prod(mesh[axis] for axis in axes)
        if given.shape[dim] % parts:
            raise PlanError(
                f"batch[{name!r}]: dimension {dim} of size {given.shape[dim]} is split into "
                f"{parts} parts over {', '.join(axes)}; they must be even"
            )
        place = 0
        for axis in axes:
            place = place * mesh[axis] + coordinate[axis]
        size = given.shape[dim] // parts
        box[dim] = ((place * size, (place + 1) * size),)
    return tuple(box)


def coordinate_of(rank: int, mesh: Mapping[str, int]) -> dict[str, int]:
    """Return the coordinate of a rank by axis. Ranks are numbered row-major."""
    found: dict[str, int] = {}
    for axis in reversed(tuple(mesh)):
        rank, found[axis] = divmod(rank, mesh[axis])
    return {axis: found[axis] for axis in mesh}
