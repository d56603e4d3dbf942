"""Equal blocks: inputs of a whole pair of plans of which most ranks and micro-batches hold the same
numbers.

A batch that 64 data-parallel ranks share in 16 micro-batches each is cut into 1,024 blocks. On an
input in which only a few of them are different, the parallel plan computes a few rows of
everything, because coordinates that compute the same thing from the same inputs share a row; it is
evaluated as it is.

The reference computes every block by itself until it adds them up. There a block that stands for
others counts as often as they do: a sum over the batch of equal terms is that many times one of
them, and a derivative is linear in the gradients that it is given, and adds up what it gives for
operands that all blocks share. So these gradients are multiplied by how often each block is there.
A mean over the batch is one over the blocks that are kept, each weighted by its share of all. An
operator that does anything else along the batch is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from pitcheck.algebra.dimensions.axis_classes import Dimension
from pitcheck.algebra.dimensions.size_choice import Sizes
from pitcheck.errors import UnsupportedError
from pitcheck.graph.cuts import Cut
from pitcheck.graph.grids import Codes, Grid
from pitcheck.graph.parts import Interval, Parts, distinct_rows
from pitcheck.stage.block_weights import Weight
from pitcheck.stage.shapes import SymbolicPair


@dataclass(frozen=True)
class Batched:
    """The batch dimension of a pair: ``total`` places in blocks of ``segment``. ``dims``: for
    reference values that have it, where.

    ``scaled``: values that are others times how often their blocks are there, and of what.
    """

    total: int
    segment: int
    dims: Mapping[int, int]
    scaled: Mapping[int, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Number of blocks."""
        return self.total // self.segment

    def block_of(self, cut: Cut) -> Grid | None:
        """The block that is held at every coordinate of a cut (-1: none), a grid; None of a value
        without the dimension.
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
        """The block of every list of intervals that a cut has along a dimension. Raises
        UnsupportedError for one that is no single block.
        """
        return np.array(
            [self._block(intervals) for intervals in cut.parts.intervals[dim]], dtype=np.int64
        )

    def _block(self, intervals: tuple[Interval, ...]) -> int:
        start, stop = intervals[0]
        if len(intervals) != 1 or start < 0 or stop - start != self.segment or start % self.segment:
            raise UnsupportedError(
                f"a part of a batch of {self.total} is {intervals}, which is not one of "
                f"{self.count} even blocks"
            )
        return start // self.segment


@dataclass(frozen=True)
class Blocks:
    """Which blocks hold the same numbers: block i holds those of block ``same[i]``, shape
    (blocks,).
    """

    batched: Batched
    same: Codes

    @property
    def kept(self) -> Codes:
        """The blocks that are evaluated, in ascending order."""
        return np.unique(self.same)

    @property
    def often(self) -> Codes:
        """How many blocks hold the numbers of each block that is kept."""
        return np.unique(self.same, return_counts=True)[1].astype(np.int64)

    def of(self, cut: Cut) -> Cut:
        """What a cut says on such inputs: every block is the one whose numbers it holds."""
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
    """Sizes at which the batch dimension has the blocks alone that are kept."""

    def __init__(self, base: Sizes, blocks: Blocks, root: int, node: Dimension) -> None:
        super().__init__(base._system, base._scales)
        self._root = root
        self._blocks = blocks
        self._small = base.size(node) * blocks.batched.segment // blocks.batched.total

    def size(self, node: Dimension) -> int:
        """Reduced size of a dimension."""
        return len(self._blocks.kept) * self._small if self._is_batch(node) else super().size(node)

    def position(self, node: Dimension, offset: int) -> int:
        """Reduced place of a boundary."""
        if not self._is_batch(node):
            return super().position(node, offset)
        return (
            int(np.searchsorted(self._blocks.kept, offset // self._blocks.batched.segment))
            * self._small
        )

    def full_position(self, node: Dimension, offset: int) -> int | None:
        """Places along the batch dimension are not those of the whole plan; others are as they
        were.
        """
        return None if self._is_batch(node) else super().full_position(node, offset)

    @property
    def identity(self) -> bool:
        """Never: blocks are left out."""
        return False

    def _is_batch(self, node: Dimension) -> bool:
        return (
            node.size == self._blocks.batched.total and self._system.number_of(node) == self._root
        )

    def weights(self, weight: Weight) -> tuple[Fraction, ...]:
        """The numbers that a weight is filled with."""
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
    """Reduced sizes of a stage on equal blocks; None where it has no batch dimension. With
    ``least`` they need not be different from one another.

    Raises UnsupportedError where a rank holds anything but single blocks.
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


# --- the reference
