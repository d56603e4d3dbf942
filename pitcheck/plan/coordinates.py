"""Coordinates of a mesh as arrays.

Ranks are numbered row-major over the mesh axes; micro-batches stand beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.errors import PlanError
from pitcheck.plan.model import MICROBATCH_AXIS, Axis, Box, Group, Plan, Table


class Coordinates:
    """The coordinates of one plan: ``ranks`` ranks times ``microbatches`` micro-batches."""

    def __init__(self, mesh: tuple[Axis, ...], microbatches: int) -> None:
        self.mesh = mesh
        self.microbatches = microbatches
        self.sizes = {axis.name: axis.size for axis in mesh}
        self.ranks = prod(self.sizes.values())

    @classmethod
    def of(cls, plan: Plan) -> Coordinates:
        """Return the coordinates of a plan."""
        return cls(plan.mesh, plan.microbatches)

    @cached_property
    def _of_rank(self) -> dict[str, NDArray[np.int64]]:
        grid = np.indices(tuple(self.sizes.values())).reshape(len(self.mesh), self.ranks)
        return {axis.name: grid[i] for i, axis in enumerate(self.mesh)}

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the mesh axes, in order, and the number of micro-batches."""
        return (*self.sizes.values(), self.microbatches)

    @property
    def extents(self) -> dict[str, int]:
        """The sizes of ``shape`` by name: the mesh axes, in order, and ``mb``."""
        return {**self.sizes, MICROBATCH_AXIS: self.microbatches}

    def dimension(self, axis: str, place: str) -> int:
        """Return the dimension of an axis; ``mb`` is the last.

        Raises:
            PlanError: if the axis is unknown.
        """
        if axis == MICROBATCH_AXIS:
            return len(self.sizes)
        if axis not in self.sizes:
            raise PlanError(
                f"unknown axis {axis!r}; the mesh has {', '.join(self.sizes)} and mb", place
            )
        return list(self.sizes).index(axis)

    def mask_grid(self, where: tuple[Box, ...], place: str = "where") -> NDArray[np.bool_]:
        """Return the union of boxes as a boolean array that broadcasts to ``shape``.

        It has size 1 along axes that no box names.

        Raises:
            PlanError: if an axis is unknown or a value out of range.
        """
        result: NDArray[np.bool_] | None = None
        for number, box in enumerate(where):
            mask = np.ones((1,) * len(self.shape), dtype=np.bool_)
            for axis, values in box.items():
                dimension = self.dimension(axis, f"{place}[{number}]")
                size = self.shape[dimension]
                wrong = [v for v in values if not 0 <= v < size]
                if wrong:
                    raise PlanError(
                        f"value {wrong[0]} is outside axis {axis!r} of size {size}",
                        f"{place}[{number}].{axis}",
                    )
                mask = mask & self._column(dimension, np.isin(np.arange(size), values))
            result = mask if result is None else result | mask
        return np.ones((1,) * len(self.shape), dtype=np.bool_) if result is None else result

    def row_major_grid(self, over: tuple[str, ...], place: str = "over") -> NDArray[np.int64]:
        """Return the row-major position of every coordinate within the axes ``over``.

        The array broadcasts to ``shape`` and has size 1 along all other axes.
        """
        position = np.zeros((1,) * len(self.shape), dtype=np.int64)
        for axis in over:
            dimension = self.dimension(axis, place)
            size = self.shape[dimension]
            position = position * size + self._column(dimension, np.arange(size, dtype=np.int64))
        return position

    def _column(self, dimension: int, values: NDArray[Any]) -> NDArray[Any]:
        return values.reshape([-1 if d == dimension else 1 for d in range(len(self.shape))])

    def of_rank(self, axis: str) -> NDArray[np.int64]:
        """Return the coordinate of every rank along mesh axis ``axis``, shape (ranks,)."""
        return self._of_rank[axis]

    def describe(self, rank: int) -> dict[str, int]:
        """Return the coordinate of one rank by axis name."""
        return {name: int(column[rank]) for name, column in self._of_rank.items()}

    def mask(self, where: tuple[Box, ...], place: str = "where") -> NDArray[np.bool_]:
        """Return the union of boxes as a mask of shape (ranks, microbatches).

        No box at all stands for all coordinates.

        Raises:
            PlanError: if an axis is unknown or a value out of range.
        """
        return self._spread(self.mask_grid(where, place))

    def row_major(self, over: tuple[str, ...], place: str = "over") -> NDArray[np.int64]:
        """Return the row-major position of every coordinate within the axes ``over``.

        The shape is (ranks, microbatches).
        """
        return self._spread(self.row_major_grid(over, place))

    def _spread(self, grid: NDArray[Any]) -> NDArray[Any]:
        """Return an array that broadcasts to ``shape`` as one of (ranks, microbatches)."""
        return np.array(np.broadcast_to(grid, self.shape).reshape(self.ranks, self.microbatches))

    def count(self, over: tuple[str, ...]) -> int:
        """Return the number of positions of the axes ``over``."""
        return prod(self.extents[axis] for axis in over)

    def table(
        self, table: Table, place: str = "table"
    ) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
        """Return a table as an index and its values.

        Returns:
            The index of each coordinate's value, shape (ranks, microbatches), and the values.

        Raises:
            PlanError: if the number of values is not the number of positions.
        """
        positions = self.row_major(table.over, f"{place}.over")
        expected = self.count(table.over)
        if len(table.values) != expected:
            raise PlanError(
                f"{len(table.values)} values for {expected} positions over {', '.join(table.over)}",
                f"{place}.values",
            )
        return positions, table.values

    def groups(self, group: Group, place: str = "group") -> list[tuple[int, ...]]:
        """Return the rank lists of a group, each in gathering order.

        Raises:
            PlanError: if an axis is unknown, a rank is out of range or stands twice.
        """
        if group.axes and group.ranks:
            raise PlanError("a group has either axes or ranks, not both", place)
        if group.ranks:
            flat = [rank for ranks in group.ranks for rank in ranks]
            wrong = [rank for rank in flat if not 0 <= rank < self.ranks]
            if wrong:
                raise PlanError(
                    f"rank {wrong[0]} is not among the {self.ranks} ranks of the mesh", place
                )
            if len(set(flat)) != len(flat):
                twice = next(rank for rank in flat if flat.count(rank) > 1)
                raise PlanError(f"rank {twice} stands twice in the group's rank lists", place)
            return [tuple(ranks) for ranks in group.ranks]
        unknown = [axis for axis in group.axes if axis not in self.sizes]
        if unknown:
            raise PlanError(
                f"unknown axis {unknown[0]!r}; the mesh has {', '.join(self.sizes)}",
                f"{place}.axes",
            )
        return self._along(group)

    def group_sizes(self, group: Group) -> list[int]:
        """Return the different sizes of the rank lists of a group, ascending.

        Raises:
            PlanError: as ``groups``.
        """
        if not group.ranks and set(group.axes) <= set(self.sizes):
            return [prod(self.sizes[axis] for axis in set(group.axes))]
        return sorted({len(members) for members in self.groups(group)})

    def _along(self, group: Group) -> list[tuple[int, ...]]:
        others = tuple(axis.name for axis in self.mesh if axis.name not in group.axes)
        inside = tuple(axis.name for axis in self.mesh if axis.name in group.axes)
        outer = self.row_major(others)[:, 0]
        inner = self.row_major(inside)[:, 0]
        order = np.lexsort((inner, outer))
        size = self.count(inside)
        return list(map(tuple, order.reshape(-1, size).tolist()))


def places_of(ranks: NDArray[np.int64], sizes: Sequence[int]) -> tuple[NDArray[np.int64], ...]:
    """Return the coordinate of every rank along every axis, each of the shape of ``ranks``.

    This is ``np.unravel_index``, which NumPy 2.4 gets wrong for large arrays whose last dimension
    has size 1.
    """
    found = []
    for size in reversed(sizes):
        ranks, own = np.divmod(ranks, size)
        found.append(own)
    return tuple(reversed(found))
