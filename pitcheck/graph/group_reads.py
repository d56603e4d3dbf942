"""Reads of the members of groups of ranks, as collectives make them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from math import prod

import numpy as np
from numpy.typing import NDArray

from pitcheck.graph.grids import Grid
from pitcheck.graph.reads import FromCodes, OverGroup, OverListed, OverRoot, Read
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Group


class Reads:
    """A table of reads in which equal reads are one object."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Read] = {}

    def shared(self, read: Read) -> Read:
        """Return the one object for all reads that equal this one."""
        return self._known.setdefault(read.key, read)


class GroupReads:
    """The reads of the members of groups, found once for every group."""

    def __init__(self, coordinates: Coordinates, reads: Reads) -> None:
        self._coordinates = coordinates
        self._reads = reads
        self._shape = coordinates.shape
        self._known: dict[tuple[Group, int | None], list[tuple[Read, Grid]]] = {}

    def of(self, group: Group, root: int | None = None) -> list[tuple[Read, Grid]]:
        """Return for every size of groups the read of all members, and every coordinate's place.

        The place is that in its group, or -1. With a ``root`` every member stands for the root: a
        stack of what the root holds, because nobody reads what the others do.
        """
        if (group, root) not in self._known:
            self._known[group, root] = (
                [self._over_axes(group, root)]
                if group.axes and not group.ranks
                else list(self._by_lists(group, root))
            )
        return self._known[group, root]

    def _over_axes(self, group: Group, root: int | None) -> tuple[Read, Grid]:
        """Return the read of groups along mesh axes, and every coordinate's place."""
        inside = tuple(axis for axis in self._coordinates.sizes if axis in group.axes)
        dimensions = tuple(self._coordinates.dimension(axis, "group.axes") for axis in inside)
        read: Read = OverGroup(self._shape, dimensions)
        if root is not None:
            read = OverRoot(
                self._shape,
                dimensions,
                tuple(
                    int(place)
                    for place in np.unravel_index(root, [self._shape[d] for d in dimensions])
                ),
            )
        return self._reads.shared(read), self._coordinates.row_major_grid(inside)

    def _by_lists(self, group: Group, root: int | None) -> Iterator[tuple[Read, Grid]]:
        """Yield the read of listed groups of every size, and every coordinate's place."""
        groups = self._coordinates.groups(group)
        count = self._coordinates.microbatches
        microbatches = np.arange(count)
        for size in sorted({len(ranks) for ranks in groups}):
            table = np.full((prod(self._shape), size), -1, dtype=np.int64)
            place = np.full((self._coordinates.ranks, 1), -1, dtype=np.int64)
            for ranks in (ranks for ranks in groups if len(ranks) == size):
                read = ranks if root is None else (ranks[root],) * size
                for own, rank in enumerate(ranks):
                    table[rank * count + microbatches] = (
                        np.array(read)[None, :] * count + microbatches[:, None]
                    )
                    place[rank] = own
            yield self._reads.shared(self._listed(table)), place.reshape((*self._shape[:-1], 1))

    def _listed(self, table: NDArray[np.int64]) -> Read:
        """Return the read of the members by code.

        It goes along only those mesh axes along which groups go, if groups are the same at all
        places along the others.
        """
        known = table[:, 0] >= 0
        own = np.array(np.unravel_index(np.arange(len(table)), self._shape))
        theirs = np.array(np.unravel_index(np.maximum(table, 0), self._shape))
        over = tuple(
            axis
            for axis in range(len(self._shape) - 1)
            if (theirs[axis][known] != own[axis][known, None]).any()
        )
        sizes = [self._shape[axis] for axis in over]
        if not over or len(over) == len(self._shape) - 1:
            return FromCodes(self._shape, table)
        places = np.ravel_multi_index(tuple(own[axis] for axis in over), sizes)
        members = np.where(
            known[:, None], np.ravel_multi_index(tuple(theirs[axis] for axis in over), sizes), -1
        )
        listed = np.full((prod(sizes), table.shape[1]), -1, dtype=np.int64)
        listed[places] = members
        return (
            OverListed(self._shape, over, listed)
            if (listed[places] == members).all()
            else FromCodes(self._shape, table)
        )
