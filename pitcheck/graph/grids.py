"""Arrays over coordinates that store nothing along the axes on which they do not depend.

A *grid* has one dimension per mesh axis, in mesh order, and a last one for micro-batches. A
dimension has the axis's size, or size 1 if all its coordinates have the same entry. Grids of one
plan broadcast against each other, so that what 8,192 ranks have in common is computed once.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Grid = NDArray[np.int64]
Mask = NDArray[np.bool_]
Codes = NDArray[np.int64]
Shape = tuple[int, ...]


class Lattice(NamedTuple):
    """The coordinates of a tensor family: ``shape`` is that of all coordinates of the plan.

    A family that is not ``microbatched`` exists at micro-batch 0 alone.
    """

    shape: Shape
    microbatched: bool

    def flat(self, grid: NDArray[Any], absent: Any) -> NDArray[Any]:
        """Return a grid by coordinate code (rank * micro-batches + micro-batch), shape (codes,)."""
        dense = np.broadcast_to(grid, self.shape)
        if self.microbatched or self.shape[-1] == 1:
            return dense.reshape(-1)
        result = np.full(self.shape, absent, dtype=grid.dtype)
        result[..., 0] = dense[..., 0]
        return result.reshape(-1)

    def grid(self, flat: NDArray[Any]) -> NDArray[Any]:
        """Return the grid of an array by coordinate code."""
        dense = flat.reshape(self.shape)
        return dense if self.microbatched else dense[..., :1]

    def mask(self, codes: Codes) -> Mask:
        """Return the mask of some coordinate codes."""
        flat = np.zeros(prod(self.shape), dtype=np.bool_)
        flat[codes] = True
        return self.grid(flat)

    def codes(self, mask: Mask) -> Codes:
        """Return the coordinate codes of a mask, ascending."""
        return np.flatnonzero(self.flat(mask, False))

    def first(self, mask: Mask) -> int:
        """Return one code of a mask that is not empty."""
        return int(np.argmax(self.flat(mask, False)))


def either(a: Mask | None, b: Mask) -> Mask:
    """Return the union of two masks, of which the first may be absent."""
    return b if a is None or a is b else a | b


def along(mask: Mask, axis: int) -> Codes:
    """Return the coordinates along one dimension at which a mask holds anywhere."""
    others = tuple(d for d in range(mask.ndim) if d != axis)
    return np.flatnonzero(mask.any(axis=others))


Home = tuple[tuple[int, int], ...]
"""The dimensions along which something is at one coordinate only, each with that coordinate. What
is *near* a home has size 1 along those dimensions.
"""


def focus(mask: Mask) -> Home:
    """Return the dimensions along which a mask holds at one coordinate only, with it."""
    found = []
    for axis, size in enumerate(mask.shape):
        if size > 1:
            where = along(mask, axis)
            if len(where) == 1:
                found.append((axis, int(where[0])))
    return tuple(found)


def near(grid: NDArray[Any], home: Home) -> NDArray[Any]:
    """Return a grid at its home alone."""
    for axis, place in home:
        if grid.shape[axis] > 1:
            grid = np.take(grid, [place], axis=axis)
    return grid


def far(grid: NDArray[Any], home: Home, shape: Shape, absent: Any) -> NDArray[Any]:
    """Return a grid that is near its home, over all coordinates, with ``absent`` elsewhere."""
    if not home:
        return grid
    places = dict(home)
    result = np.full(
        [shape[d] if d in places else size for d, size in enumerate(grid.shape)],
        absent,
        dtype=grid.dtype,
    )
    result[
        tuple(
            slice(places[d], places[d] + 1) if d in places else slice(None)
            for d in range(grid.ndim)
        )
    ] = grid
    return result
