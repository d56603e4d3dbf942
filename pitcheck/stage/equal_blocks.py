"""Equal blocks: inputs of which most ranks and micro-batches hold the same numbers.

A batch that 64 data-parallel ranks share in 16 micro-batches each is cut into 1,024 blocks. On an
input with only a few different blocks, the parallel plan computes a few rows of everything, because
coordinates that compute the same thing from the same inputs share a row. The plan is evaluated as
it is. The reference counts a block as often as it stands for others
(:mod:`pitcheck.stage.block_weights`).

>>> batched = Batched(total=64, segment=4, dims={0: 0})
>>> batched.count, Blocks(batched, np.arange(16) % 2).often.tolist()
(16, [8, 8])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from pitcheck.algebra.dimensions.scaling_class import Dimension
from pitcheck.algebra.dimensions.size_choice import Sizes
from pitcheck.errors import UnsupportedError
from pitcheck.graph.cuts import Cut
from pitcheck.graph.grids import Codes, Grid
from pitcheck.graph.parts import Interval, Parts, distinct_rows
from pitcheck.stage.block_weights import Weight
from pitcheck.stage.shapes import SymbolicPair


@dataclass(frozen=True)
class Batched:
    """The batch dimension of a pair: ``total`` places in blocks of ``segment``.

    ``dims``: the dimension of each reference value that has it. ``scaled``: the values that are
    others times how often their blocks are there, and those others.
    """

    total: int
    segment: int
    dims: Mapping[int, int]
    scaled: Mapping[int, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Return the number of blocks."""
        return self.total // self.segment

    def block_of(self, cut: Cut) -> Grid | None:
        """Return the block that is held at every coordinate of a cut (-1: none), as a grid.

        Return None for a value without the batch dimension.
        """
        dim = self.dims.get(cut.reference)
        if dim is None:
            return None
        return np.where(
            cut.grid >= 0,
            self.blocks(cut, dim)[cut.parts.which[:, dim]][np.maximum(cut.grid, 0)],
            -1,
        )

    def blocks(self, cut: Cut, dim: int) -> Codes:
        """Return the block of every list of intervals that a cut has along a dimension.

        Raises:
            UnsupportedError: one of them is no single block.
        """
        return np.array(
            [self._block(intervals) for intervals in cut.parts.intervals[dim]], dtype=np.int64
        )

    def _block(self, intervals: tuple[Interval, ...]) -> int:
        """Return the block that a list of intervals is."""
        start, stop = intervals[0]
        if len(intervals) != 1 or start < 0 or stop - start != self.segment or start % self.segment:
            raise UnsupportedError(
                f"a part of a batch of {self.total} is {intervals}, which is not one of "
                f"{self.count} even blocks"
            )
        return start // self.segment


@dataclass(frozen=True)
class Blocks:
    """The equal blocks of a batch: block i holds the numbers of block ``same[i]``.

    ``same`` has shape (blocks,).
    """

    batched: Batched
    same: Codes

    @property
    def kept(self) -> Codes:
        """Return the blocks that are evaluated, in ascending order."""
        return np.unique(self.same)

    @property
    def often(self) -> Codes:
        """Return how many blocks hold the numbers of each block that is kept."""
        return np.unique(self.same, return_counts=True)[1].astype(np.int64)

    def of(self, cut: Cut) -> Cut:
        """Return what a cut says on such inputs: every block is the one whose numbers it holds."""
        dim = self.batched.dims.get(cut.reference)
        if dim is None:
            return cut
        old, size = cut.parts, self.batched.segment
        kept, place = np.unique(self.same[self.batched.blocks(cut, dim)], return_inverse=True)
        which = old.which.copy()
        which[:, dim] = place.reshape(-1)[which[:, dim]]
        first, number = distinct_rows([*which.T, old.term, old.terms, old.owner])
        intervals = [
            *old.intervals[:dim],
            tuple(((start, start + size),) for start in (kept * size).tolist()),
            *old.intervals[dim + 1 :],
        ]
        parts = Parts.of(intervals, which[first], old.term[first], 1, old.owner[first])
        parts.terms = old.terms[first]
        return replace(
            cut, parts=parts, grid=np.where(cut.grid >= 0, number[np.maximum(cut.grid, 0)], -1)
        )


class BlockSizes(Sizes):
    """Sizes at which the batch dimension has the kept blocks alone."""

    def __init__(self, base: Sizes, blocks: Blocks, root: int, node: Dimension) -> None:
        super().__init__(base._system, base._scales)
        self._root = root
        self._blocks = blocks
        self._small = base.size(node) * blocks.batched.segment // blocks.batched.total

    def size(self, node: Dimension) -> int:
        """Return the reduced size of a dimension."""
        return len(self._blocks.kept) * self._small if self._is_batch(node) else super().size(node)

    def position(self, node: Dimension, offset: int) -> int:
        """Return the reduced place of a boundary."""
        if not self._is_batch(node):
            return super().position(node, offset)
        return (
            int(np.searchsorted(self._blocks.kept, offset // self._blocks.batched.segment))
            * self._small
        )

    def full_position(self, node: Dimension, offset: int) -> int | None:
        """Return the full place of a reduced one, or None.

        Along the batch dimension there is none: blocks are left out.
        """
        return None if self._is_batch(node) else super().full_position(node, offset)

    @property
    def identity(self) -> bool:
        """Return False: blocks are left out."""
        return False

    def _is_batch(self, node: Dimension) -> bool:
        """Return True if a dimension is the batch dimension."""
        return (
            node.size == self._blocks.batched.total and self._system.number_of(node) == self._root
        )

    def weights(self, weight: Weight) -> tuple[Fraction, ...]:
        """Return the numbers that a weight is filled with."""
        share = (
            Fraction(len(self._blocks.kept), self._blocks.batched.count)
            if weight.mean
            else Fraction(1)
        )
        often = (
            np.repeat(self._blocks.often, self._small).tolist() if weight.dim is not None else [1]
        )
        return tuple(share * n for n in often)


def block_sizes(
    symbolic: SymbolicPair, blocks: Blocks, least: int | None = None
) -> BlockSizes | None:
    """Return reduced sizes of a stage on equal blocks; None if it has no batch dimension.

    With ``least`` elements of a unit, sizes need not differ from one another.

    Raises:
        UnsupportedError: a rank holds anything but single blocks.
    """
    batched = blocks.batched
    nodes = [
        symbolic.reference.values[v].dims[dim]
        for v, dim in batched.dims.items()
        if v in symbolic.reference.values
    ]
    if not nodes:
        return None
    system = symbolic.system
    for node in nodes[1:]:  # what only one side reads is tied to nothing
        system.tie(node, nodes[0])
    root = system.number_of(nodes[0])
    if system.class_of(nodes[0]).inner is not None:
        raise UnsupportedError("the batch dimension is split")
    sizes = {
        node.size
        for value in symbolic.parallel.values.values()
        for node in value.dims
        if system.number_of(node) == root
    }
    sizes |= {
        node.size
        for value in symbolic.reference.values.values()
        for node in value.dims
        if system.number_of(node) == root
    } - {batched.total}
    if batched.total == batched.segment or sizes - {batched.segment}:
        raise UnsupportedError(
            f"dimensions of {sorted(sizes)} are cut from a batch of {batched.total}, which are "
            f"not single blocks"
        )
    return BlockSizes(
        system.solve(0) if least is None else system.shrink(least), blocks, root, nodes[0]
    )
