"""The conditions under which a stage seen at a few coordinates stands for all of them.

>>> Sampling({0: (3, 64), 1: (3, 16)}).counts([0, 1])
(9, 1024)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from pitcheck.graph.graph import sources_of
from pitcheck.graph.grids import Codes, Grid, Lattice
from pitcheck.graph.reads import Once, Read, Through
from pitcheck.ops.registry import collective_kinds, kinds_with
from pitcheck.ops.traits import Trait
from pitcheck.stage.batch import Batch


@dataclass(frozen=True)
class Sampling:
    """The axes of which a stage was cut out at some coordinates only.

    ``axes`` has (how many, of how many), by dimension of the coordinates.
    """

    axes: Mapping[int, tuple[int, int]]

    def counts(self, axes: Iterable[int]) -> tuple[int, int]:
        """Return (coordinates seen, all coordinates) along some of the axes."""
        pairs = [self.axes[axis] for axis in axes]
        return prod(seen for seen, _ in pairs), prod(full for _, full in pairs)

    def differing(self, grids: Iterable[Grid]) -> frozenset[int]:
        """Return the axes along which some of the grids of a stage's cuts have an extent."""
        return frozenset(axis for grid in grids for axis in extended(grid, self.axes))

    def crossed(self, batch: Batch, but: Collection[int] = ()) -> bool:
        """Return True if a step reads along one of the axes; those numbered ``but`` do not count.

        What it computes may then depend on how many coordinates there are.
        """
        nodes = (
            batch.graph.nodes[step.node]
            for number, step in enumerate(batch.steps)
            if number not in but
        )
        sources = (
            source for node in nodes for operand in node.inputs for source in sources_of(operand)
        )
        return any(
            axis in self.axes
            for source in sources
            if source.read is not None
            for axis in _left(source.read)
        )

    def resized(self, batch: Batch) -> bool:
        """Return True if the size of a result tells how many members a step joins along an axis.

        The same holds for a step that cuts its operand for the members.
        """
        resizing = collective_kinds() - kinds_with(Trait.KEEPS_SIZES)
        nodes = [batch.graph.nodes[step.node] for step in batch.steps if step.kind in resizing]
        reads = (
            source.read
            for node in nodes
            for operand in node.inputs
            for source in sources_of(operand)
        )
        return any(axis in self.axes for read in reads if read is not None for axis in _left(read))

    def in_one_class(
        self, classes: Codes, codes: Codes, lattice: Lattice, axes: Collection[int]
    ) -> bool:
        """Return True if coordinates that differ along ``axes`` alone are there and of one class.

        ``classes`` and ``codes`` have shape (coordinates,).
        """
        seen, _ = self.counts(axes)
        places = [np.zeros(len(codes), dtype=np.int64)]
        places += [
            column
            for axis, column in enumerate(np.unravel_index(codes, lattice.shape))
            if axis not in axes
        ]
        _, groups = np.unique(np.stack(places, axis=1), axis=0, return_inverse=True)
        groups = groups.reshape(-1)
        order = np.argsort(groups, kind="stable")
        if len(codes) % seen or (np.bincount(groups) != seen).any():
            return False
        found = classes[order].reshape(-1, seen)
        return bool((found == found[:, :1]).all())


def extended(grid: Grid, axes: Iterable[int]) -> list[int]:
    """Return the axes along which a grid has an extent."""
    return [axis for axis in axes if grid.shape[axis] > 1]


def _left(read: Read) -> tuple[int, ...]:
    """Return the dimensions along which a read leaves its own coordinate.

    A tensor that exists once per step is the same for every micro-batch.
    """
    if isinstance(read, Through):
        return (*_left(read.outer), *_left(read.inner))
    return () if isinstance(read, Once) else read.axes
