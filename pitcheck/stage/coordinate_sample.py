"""Samples of coordinates: a plan seen at a few coordinates of its uniform axes.

Along a *uniform* axis all ranks, or all micro-batches, do the same with different rows. It has
these properties:

- No operator is left out, or has other attributes, at some of its coordinates.
- Every collective has all of its coordinates in a group, or each in a separate group.
- Nothing else is exchanged along it, and no parameter depends on it.

Cutting out a stage for a few of its coordinates takes as long for 16 as for 16,384. What is proven
of them holds for all only if the stage itself shows it. Its coordinates must be renamings of each
other along a pure batch dimension, or the terms of one sum, or not differ at all. That is checked
on the stage; without it, the stage is cut out at all coordinates.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> problem = Problem.of(plan, plan)
>>> sample_of(problem.parallel, problem.specification.initial.values()) is None  # one device
True
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import Graph, Node, Operand, Source, Stacked, sources_of
from pitcheck.graph.grids import Grid, Lattice, Mask, Shape
from pitcheck.graph.parts import Parts
from pitcheck.graph.reads import (
    FromPlaces,
    OfMicrobatch,
    Once,
    OverGroup,
    OverListed,
    OverMicrobatches,
    Read,
    Through,
)
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Axis
from pitcheck.stage.sample_conditions import Sampling, extended
from pitcheck.stage.stage import Target

MOST = 8
"""The size of axes up to which they are seen whole."""
KEPT = 3
"""The coordinates of an axis that are seen, if there are several uniform axes."""
KEPT_ALONE = 6
"""The coordinates of the only uniform axis that are seen: enough to show how they differ."""
HELD = frozenset({"parameter", "optimizer_state"})
"""The roles of tensors that no uniform axis may divide."""


class Sample:
    """The graph of a plan at a few coordinates of its uniform axes, with cuts and masks."""

    def __init__(self, graph: Graph, kept: Mapping[int, tuple[int, ...]]) -> None:
        self._full = graph
        self.kept = kept
        self._shape: Shape = tuple(
            len(kept[axis]) if axis in kept else size
            for axis, size in enumerate(graph.coordinates.shape)
        )
        self._lattices = {
            microbatched: Lattice(self._shape, microbatched) for microbatched in (False, True)
        }
        self._reads: dict[int, tuple[Read, Read]] = {}
        self._cuts: dict[int, tuple[Cut, Cut | None]] = {}
        self._placed: dict[tuple[int, int], tuple[Cut, tuple[Parts, Grid] | None]] = {}
        self.graph = self._small_graph()

    @property
    def sampling(self) -> Sampling:
        """Return how many coordinates are seen of how many, by axis."""
        return Sampling(
            {
                axis: (len(places), self._full.coordinates.shape[axis])
                for axis, places in self.kept.items()
            }
        )

    def _small_graph(self) -> Graph:
        """Return the graph at the coordinates that are seen."""
        full = self._full
        mesh = tuple(
            Axis(axis.name, size)
            for axis, size in zip(full.coordinates.mesh, self._shape, strict=False)
        )
        values = [
            replace(value, lattice=self._lattices[value.lattice.microbatched])
            for value in full.values
        ]
        nodes = [self._node(node) for node in full.nodes]
        return Graph(
            Coordinates(mesh, self._shape[-1]), values, nodes, full.number, full.order, full.rank
        )

    def _node(self, node: Node) -> Node:
        """Return a node at the coordinates that are seen."""
        return replace(
            node,
            inputs=tuple(self._operand(operand) for operand in node.inputs),
            lattice=self._lattices[node.lattice.microbatched],
        )

    def _operand(self, operand: Operand) -> Operand:
        """Return an operand as it is read there."""
        if isinstance(operand, Source):
            return self._source(operand)
        if isinstance(operand, Stacked):
            return Stacked(tuple(self._source(member) for member in operand.members))
        return operand

    def _source(self, source: Source) -> Source:
        """Return a source as it is read there."""
        return source if source.read is None else Source(source.value, self._read(source.read))

    def _read(self, read: Read) -> Read:
        """Return a read among the coordinates that are seen."""
        if id(read) not in self._reads:
            self._reads[id(read)] = read, _reshaped(read, self._shape)
        return self._reads[id(read)][1]

    def cut(self, cut: Cut) -> Cut | None:
        """Return the cut at the coordinates that are seen.

        Return None if it does not move along one dimension as they do.
        """
        if id(cut) not in self._cuts:
            self._cuts[id(cut)] = cut, self._small_cut(cut)
        return self._cuts[id(cut)][1]

    def _small_cut(self, cut: Cut) -> Cut | None:
        """Compute what ``cut`` returns."""
        lattice = self._lattices[cut.lattice.microbatched]
        if cut.groups is not None:
            return (
                replace(cut, lattice=lattice)
                if not extended(cut.grid, self.kept) and not extended(cut.groups, self.kept)
                else None
            )
        key = id(cut.parts), id(cut.grid)
        if key not in self._placed:
            self._placed[key] = cut, _seen(cut, self.kept)
        found = self._placed[key][1]
        return (
            None if found is None else replace(cut, parts=found[0], grid=found[1], lattice=lattice)
        )

    def target(self, target: Target) -> Target | None:
        """Return the target at the coordinates that are seen; None if it is not the same at all."""
        cut, where = self.cut(target.cut), self.mask(target.where)
        return (
            None if cut is None or where is None else Target(cut, where, target.home, target.name)
        )

    def mask(self, mask: Mask) -> Mask | None:
        """Return a mask without extent along the uniform axes; None if it differs along one."""
        for axis in self.kept:
            if mask.shape[axis] > 1:
                first = np.take(mask, [0], axis=axis)
                if (mask != first).any():
                    return None
                mask = first
        return mask


def sample_of(graph: Graph, cuts: Iterable[Cut]) -> Sample | None:
    """Return a few coordinates of the uniform axes of a graph whose tensors are given by ``cuts``.

    Return None if it has no uniform axis that is long enough.
    """
    shape = graph.coordinates.shape
    axes = {axis for axis, size in enumerate(shape) if size > MOST}
    for cut in cuts:
        if graph.values[cut.value].tensor.role in HELD:
            axes -= {axis for axis in axes if cut.grid.shape[axis] > 1}
    for node in graph.nodes if axes else ():
        axes -= {axis for axis in axes if node.where.shape[axis] > 1}
    reads = {
        id(source.read): source.read
        for node in (graph.nodes if axes else ())
        for operand in node.inputs
        for source in sources_of(operand)
        if source.read
    }
    axes = {axis for axis in axes if all(_is_uniform(read, axis) for read in reads.values())}
    if not axes:
        return None
    count = KEPT if len(axes) > 1 or max(shape[:-1], default=1) > 1 else KEPT_ALONE
    return Sample(graph, {axis: (*range(count - 1), shape[axis] - 1) for axis in sorted(axes)})


def _is_uniform(read: Read, axis: int) -> bool:
    """Return True if a read is the same at all coordinates of an axis.

    It takes all of the axis, or only the reader's place.
    """
    if isinstance(read, Through):
        return _is_uniform(read.outer, axis) and _is_uniform(read.inner, axis)
    if isinstance(read, (Once, OverGroup)):
        return True
    if isinstance(read, OverMicrobatches):
        return axis != len(read.shape) - 1 or read.chosen == tuple(range(read.shape[-1]))
    return isinstance(read, (OfMicrobatch, FromPlaces, OverListed)) and axis not in read.axes


def _reshaped(read: Read, shape: Shape) -> Read:
    """Return a uniform read among fewer coordinates."""
    if isinstance(read, Through):
        return Through(shape, _reshaped(read.outer, shape), _reshaped(read.inner, shape))
    if isinstance(read, OverMicrobatches) and read.shape[-1] != shape[-1]:
        return OverMicrobatches(shape, tuple(range(shape[-1])))
    return replace(read, shape=shape)


def _seen(cut: Cut, kept: Mapping[int, tuple[int, ...]]) -> tuple[Parts, Grid] | None:
    """Return (the parts that are seen, which one every coordinate has).

    Return None if the parts do not divide one dimension among the coordinates in equal steps.
    """
    axes = extended(cut.grid, kept)
    if not axes:
        return cut.parts, cut.grid
    if (cut.grid < 0).any() or not _moves(cut, axes):
        return None
    grid = cut.grid
    for axis in axes:
        grid = np.take(grid, kept[axis], axis=axis)
    used, which = np.unique(grid, return_inverse=True)
    return cut.parts.owned(used, cut.parts.owner[used]), which.reshape(grid.shape).astype(np.int64)


def _moves(cut: Cut, axes: list[int]) -> bool:
    """Return True if the parts along ``axes`` differ by equal steps along one dimension alone.

    All together they divide that dimension from its beginning. Along other dimensions they may have
    any intervals, such as an early and a late part of a sequence.
    """
    held = cut.parts.which
    pairs = {
        axis: [
            np.take(cut.grid, range(*bounds), axis=axis)
            for bounds in ((0, cut.grid.shape[axis] - 1), (1, cut.grid.shape[axis]))
        ]
        for axis in axes
    }
    moving = {
        dim
        for own, following in pairs.values()
        for dim in range(held.shape[1])
        if (held[own, dim] != held[following, dim]).any()
    }
    starts = cut.parts.begins(min(moving)) if len(moving) == 1 else None
    if starts is None:
        return False
    (dim,) = moving
    lengths, others = cut.parts.shapes[:, dim], cut.parts.others(dim)
    for axis, (own, following) in pairs.items():
        steps = starts[following] - starts[own]
        first = np.take(cut.grid, [0], axis=axis)
        if not steps.any() or (steps != steps.reshape(-1)[0]).any():
            return False
        if (others[cut.grid] != others[first]).any() or (lengths[cut.grid] != lengths[first]).any():
            return False
    along = [
        axis
        for axis in range(cut.grid.ndim)
        if (starts[cut.grid] != starts[np.take(cut.grid, [0], axis=axis)]).any()
    ]
    one = cut.grid[
        tuple(slice(None) if axis in along else slice(0, 1) for axis in range(cut.grid.ndim))
    ].reshape(-1)
    return bool((np.sort(starts[one]) == np.arange(len(one)) * lengths[one[0]]).all())
