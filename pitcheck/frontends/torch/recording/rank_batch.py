"""The part of the batch that a rank reads."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from pitcheck.errors import PlanError
from pitcheck.frontends.torch.program import Input
from pitcheck.frontends.torch.routing import Axes
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
        parts, place = place_among(over, mesh, coordinate, f"batch[{name!r}]")
        if not 0 <= dim < len(given.shape):
            raise PlanError(
                f"batch[{name!r}] is split in dimension {dim}, but its shape is {given.shape}"
            )
        if given.shape[dim] % parts:
            axes = over if isinstance(over, str) else ", ".join(over)
            raise PlanError(
                f"batch[{name!r}]: dimension {dim} of size {given.shape[dim]} is split into "
                f"{parts} parts over {axes}; they must be even"
            )
        size = given.shape[dim] // parts
        box[dim] = ((place * size, (place + 1) * size),)
    return tuple(box)


def place_among(
    over: Axes, mesh: Mapping[str, int], coordinate: Mapping[str, int], said: str
) -> tuple[int, int]:
    """Return the number of parts into which axes divide a dimension, and the place of this rank.

    Places are row-major. Raises PlanError for an unknown axis; ``said`` is where it is named.
    """
    axes = (over,) if isinstance(over, str) else tuple(over)
    place = 0
    for axis in axes:
        if axis not in mesh:
            raise PlanError(
                f"{said} is split over {axis!r}, which is no axis of the mesh ({', '.join(mesh)})"
            )
        place = place * mesh[axis] + coordinate[axis]
    return prod(mesh[axis] for axis in axes), place


def coordinate_of(rank: int, mesh: Mapping[str, int]) -> dict[str, int]:
    """Return the coordinate of a rank by axis. Ranks are numbered row-major."""
    found: dict[str, int] = {}
    for axis in reversed(tuple(mesh)):
        rank, found[axis] = divmod(rank, mesh[axis])
    return {axis: found[axis] for axis in mesh}
