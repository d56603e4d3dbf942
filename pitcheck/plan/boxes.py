"""Masks over coordinates as few boxes: the ``where`` of a folded record."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import MICROBATCH_AXIS, Box


def boxes_of(mask: NDArray[np.bool_], coordinates: Coordinates) -> tuple[Box, ...]:
    """Return disjoint boxes whose union is exactly ``mask``; none if the mask is all true.

    ``mask`` has shape (ranks, microbatches), or (ranks,) if it holds for every micro-batch. A mask
    without a true element gives one box that holds no coordinate. The cover is greedy: equal slices
    along an axis share their boxes, and the axis with the fewest different slices comes first. The
    number of boxes is not always least.
    """
    if mask.all():
        return ()
    names = [axis.name for axis in coordinates.mesh]
    sizes = [axis.size for axis in coordinates.mesh]
    if mask.ndim == 2 and not (mask == mask[:, :1]).all():
        names.append(MICROBATCH_AXIS)
        sizes.append(coordinates.microbatches)
    elif mask.ndim == 2:
        mask = mask[:, 0]
    if not mask.any():
        return ({names[0]: ()},) if names else ({MICROBATCH_AXIS: ()},)
    return tuple(_cover(mask.reshape(sizes), names))


def _cover(grid: NDArray[np.bool_], names: list[str]) -> list[Box]:
    if grid.all():
        return [{}]
    best: tuple[int, dict[bytes, list[int]]] | None = None
    for axis in range(grid.ndim):
        slices = _equal_slices(grid, axis)
        if best is None or len(slices) < len(best[1]):
            best = (axis, slices)
    if best is None:
        return []
    axis, slices = best
    rest = names[:axis] + names[axis + 1 :]
    boxes: list[Box] = []
    for positions in slices.values():
        whole = len(positions) == grid.shape[axis]
        for box in _cover(np.asarray(grid.take(positions[0], axis=axis)), rest):
            boxes.append(box if whole else {names[axis]: tuple(positions), **box})
    return boxes


def _equal_slices(grid: NDArray[np.bool_], axis: int) -> dict[bytes, list[int]]:
    """Return the positions along ``axis`` by the contents of their slices.

    Empty slices are left out.
    """
    slices: dict[bytes, list[int]] = {}
    for position, part in enumerate(np.ascontiguousarray(np.moveaxis(grid, axis, 0))):
        if part.any():
            slices.setdefault(part.tobytes(), []).append(position)
    return slices
