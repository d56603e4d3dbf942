"""A rank while its program is written.

It has the tape, local sizes, the axes of every kind of parallelism, and knows which part of a
tensor it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from pitcheck.models.config import Batch, Model
from pitcheck.models.records import Spread, held
from pitcheck.models.tape import Tape
from pitcheck.plan.model import MICROBATCH_AXIS, Lineage, Table
from pitcheck.programs.groups import atoms, ends
from pitcheck.programs.layout import Layout

Names = tuple[str, ...]


@dataclass(frozen=True)
class Axes:
    """Mesh axes by their use, outermost first; those of size 1 are left out.

    With more tensor-parallel ranks than key-value heads ``tensor`` is a product: ``heads``, by
    which keys and values are cut, times ``copies``, whose ranks hold the same keys and values.
    ``shards``: the part of ``data`` over which ZeRO shards. ``experts``: the axes over which
    experts are spread; ``expert_tensor``: those over which an expert's width is cut;
    ``expert_data``: all others of a stage. Where such a group ends within the ranks of one kind of
    parallelism, these are products of two or three axes.
    """

    sizes: Mapping[str, int]
    pipeline: Names
    data: Names
    shards: Names
    context: Names
    tensor: Names
    heads: Names
    copies: Names
    experts: Names
    expert_tensor: Names
    expert_data: Names

    @classmethod
    def of(cls, model: Model, layout: Layout) -> Axes:
        """Return the axes of a layout that was checked."""
        parts = atoms(model, layout)
        width, spread = ends(layout)
        tensor = ("tp", "tp_copy")

        def those(*kinds: str) -> Names:
            return tuple(name for kind in kinds for name, size, _ in parts[kind] if size > 1)

        def between(low: int, high: int) -> Names:
            return tuple(
                name
                for kind in parts
                for name, size, stride in parts[kind]
                if size > 1 and low <= stride < high
            )

        inside = {name: size for kind in parts.values() for name, size, _ in kind if size > 1}
        return cls(
            sizes={"pp": layout.pp, **inside} if layout.pp > 1 else inside,
            pipeline=("pp",) if layout.pp > 1 else (),
            data=those("replica", "dp"),
            shards=those("dp"),
            context=those("cp"),
            tensor=those(*tensor),
            heads=those("tp"),
            copies=those("tp_copy"),
            experts=between(width, spread),
            expert_tensor=between(1, width),
            expert_data=between(spread, layout.ranks),
        )

    def size(self, axes: Names) -> int:
        """Return the number of positions along ``axes``."""
        return prod(self.sizes[axis] for axis in axes)


@dataclass(frozen=True)
class Sharing:
    """The ranks that hold the same part of a parameter.

    ``sums``: groups of axes over which its gradients are summed, in this order. ``shards``: the
    axes among them over which ZeRO shards it.
    """

    sums: tuple[Names, ...]
    shards: Names

    @property
    def axes(self) -> Names:
        """All axes over whose ranks gradients are terms of a sum."""
        return tuple(axis for group in self.sums for axis in group)

    @property
    def unsharded(self) -> tuple[Names, ...]:
        """The groups of axes without those over which the parameter is sharded."""
        left = (tuple(axis for axis in group if axis not in self.shards) for group in self.sums)
        return tuple(group for group in left if group)


@dataclass(frozen=True)
class Rank:
    """The program of a rank while it is written."""

    tape: Tape
    model: Model
    batch: Batch
    layout: Layout
    axes: Axes
    sharing: dict[str, Sharing] = field(default_factory=dict)
    """Parameter -> the ranks that hold the same part of it."""
    homes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Parameter -> the stages that use it."""
    losses: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """Loss of a router -> (a micro-batch's term of it on one rank, the stages that compute it)."""
    loads: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """Router with a bias that its load moves -> (load, stages).

    The load is the number of tokens of a micro-batch on one rank that chose each expert; the stages
    are those that count them.
    """
    now: list[tuple[int, ...]] = field(default_factory=lambda: [(0,)])
    """The stages that are being recorded, innermost last."""

    @property
    def rows(self) -> int:
        """The sequences of a micro-batch on one rank."""
        return self.batch.sequences // (self.layout.dp * self.layout.microbatches)

    @property
    def length(self) -> int:
        """The tokens of a sequence on one rank, before sequence parallelism cuts them further."""
        return self.batch.length // self.layout.cp

    @property
    def ring(self) -> bool:
        """True if keys and values go round the context-parallel ranks."""
        return self.layout.context == "ring" and self.layout.cp > 1

    @property
    def zigzag(self) -> bool:
        """True if a rank has one early and one late part of each sequence.

        All ranks then have equal work under a causal mask.
        """
        return self.layout.both_ends

    # --- which part of a tensor a rank holds

    @property
    def by_batch(self) -> Names:
        """The axes that cut a dimension of sequences."""
        return (*self.axes.data, MICROBATCH_AXIS)

    @property
    def tokens(self) -> Spread:
        """The spread of (sequences, length, ...), the same on all tensor-parallel ranks."""
        return self.spread({0: self.by_batch, 1: self.sequence()})

    @property
    def residual(self) -> Spread:
        """The spread of (sequences, length, hidden) between tensor-parallel regions."""
        return self.spread({0: self.by_batch, 1: self.sequence(self.layout.sequence_parallel)})

    @property
    def wide(self) -> Spread:
        """The spread of (sequences, length, features), features cut over tensor-parallel ranks."""
        return self.spread({0: self.by_batch, 1: self.sequence(), 2: self.axes.tensor})

    def heads(self, axes: Names) -> Spread:
        """Return the spread of (sequences, heads, length, size), heads cut over ``axes``."""
        return self.spread({0: self.by_batch, 1: axes, 2: self.sequence()})

    def sequence(self, parallel: bool = False) -> Names | Table:
        """Return how a dimension of tokens is cut.

        With ``parallel`` it is cut over tensor-parallel ranks, too.
        """
        inner = self.axes.tensor if parallel else ()
        if not self.zigzag:
            return (*self.axes.context, *inner)
        parts = self.axes.size(inner)
        size = self.length // parts
        ends = [
            _both_ends(rank, self.layout.cp, self.batch.length) for rank in range(self.layout.cp)
        ]
        values = [
            portion(both, size * part, size * (part + 1)) for both in ends for part in range(parts)
        ]
        return Table((*self.axes.context, *inner), tuple(values))

    @property
    def sequence_terms(self) -> Names:
        """The tensor-parallel axes over which gradients of the residual stream's parameters add."""
        return self.axes.tensor if self.layout.sequence_parallel else ()

    @property
    def together(self) -> Names:
        """The axes over whose ranks the tokens of a sequence are spread."""
        return (*self.axes.context, *self.sequence_terms)

    @property
    def own_tokens(self) -> bool:
        """True if no other rank has the same tokens between tensor-parallel regions."""
        return self.layout.sequence_parallel or not self.axes.tensor

    def dense(self, terms: Names) -> Sharing:
        """Return the sharing of a parameter that data- and context-parallel ranks hold equally.

        ``terms``: the tensor-parallel axes over which its gradients are to be summed as well.
        """
        data = (*self.axes.data, *self.axes.context)
        return Sharing(
            tuple(group for group in (data, terms) if group),
            self.axes.shards if self.layout.zero else (),
        )

    def expert(self) -> Sharing:
        """Return the sharing of an expert's parameter.

        It is summed over the ranks with the same experts, unless their tokens are the same.
        """
        same = () if self.own_tokens else self.axes.tensor
        data = tuple(axis for axis in self.axes.expert_data if axis not in same)
        shards = tuple(axis for axis in data if axis in self.axes.shards)
        return Sharing((data,) if data else (), shards if self.layout.zero else ())

    def term(self, name: str, spread: Lineage, axes: Names) -> Lineage | None:
        """Return the lineage of a gradient that is still to be summed over ``axes``.

        Return None for an embedding whose terms lie at both ends of the pipeline.
        """
        model = self.model
        at_ends = self.layout.pp > 1 and (
            (model.tied and name == "embedding.weight")
            or (model.predicted > 0 and name.startswith("embedding."))
        )
        return None if at_ends else Lineage(f"grad:{name}", spread.shards, partial=axes)

    def runs(self) -> list[tuple[int | Table, int | Table]]:
        """Return (begin, end) of the runs of consecutive places of a sequence that a rank has."""
        if not self.axes.context:
            return [(0, self.length)]
        if not self.zigzag:
            return [
                (
                    self._by_context([i * self.length for i in range(self.layout.cp)]),
                    self._by_context([(i + 1) * self.length for i in range(self.layout.cp)]),
                )
            ]
        ends = [_both_ends(i, self.layout.cp, self.batch.length) for i in range(self.layout.cp)]
        return [
            (
                self._by_context([e[part][0] for e in ends]),
                self._by_context([e[part][1] for e in ends]),
            )
            for part in range(2)
        ]

    def _by_context(self, values: Sequence[int]) -> Table:
        return Table(self.axes.context, tuple(values))

    def position(self, axes: Names) -> Table:
        """Return a rank's place along ``axes``."""
        return Table(axes, tuple(range(self.axes.size(axes))))

    def like(self, reference: str, parameter: str) -> Lineage:
        """Return the lineage of the part of ``reference`` that the rank holds of a parameter."""
        lineage = self.tape.tensors[parameter].lineage
        return Lineage(reference, lineage.shards if lineage is not None else ())

    def parted(self, lineage: Lineage | None) -> Names:
        """Return the axes that cut a tensor of this lineage."""
        found = (
            {
                axis
                for shard in lineage.shards
                for axis in shard.by or (shard.intervals.over if shard.intervals else ())
            }
            if lineage is not None
            else set()
        )
        return tuple(axis for axis in self.axes.sizes if axis in found)

    @staticmethod
    def hint(reference: str, spread: Spread) -> Lineage:
        """Return the lineage of a tensor that holds a part of ``reference``."""
        return held(reference, spread)

    @staticmethod
    def spread(dims: Mapping[int, Names | Table]) -> Spread:
        """Return a spread without the dimensions that nothing cuts."""
        return {dim: how for dim, how in dims.items() if how}

    # --- where

    def pipeline_rank(self, stage: int) -> int:
        """Return the pipeline coordinate of the ranks that run a (virtual) stage."""
        return stage % self.layout.pp

    @cached_property
    def following(self) -> Table:
        """The rank in the same place of the next pipeline rank's stage, cyclically."""
        return self._neighbour(self.axes.pipeline, 1)

    @cached_property
    def before(self) -> Table:
        """The rank in the same place of the previous pipeline rank's stage, cyclically."""
        return self._neighbour(self.axes.pipeline, -1)

    @cached_property
    def after(self) -> Table:
        """The next rank of the ring of context-parallel ranks."""
        return self._neighbour(self.axes.context, 1)

    @cached_property
    def behind(self) -> Table:
        """The previous rank of the ring of context-parallel ranks."""
        return self._neighbour(self.axes.context, -1)

    def _neighbour(self, axes: Names, distance: int) -> Table:
        """Return the rank that is ``distance`` further along neighbouring axes, cyclically."""
        names = tuple(self.axes.sizes)
        size, stride = self.axes.size(axes), self.axes.size(names[names.index(axes[-1]) + 1 :])
        places = range(self.axes.size(names))
        return Table(
            names,
            tuple(
                number + ((number // stride + distance) % size - number // stride % size) * stride
                for number in places
            ),
        )

    @property
    def last(self) -> int:
        """The number of the last stage."""
        return self.layout.stages - 1

    @contextmanager
    def at(self, *stages: int) -> Iterator[None]:
        """Run what is recorded within on the ranks of these stages."""
        self.now.append(stages)
        try:
            if self.layout.pp == 1:
                yield
                return
            with self.tape.at(pp=sorted({self.pipeline_rank(stage) for stage in stages})):
                yield
        finally:
            self.now.pop()

    @contextmanager
    def stage(self, number: int) -> Iterator[None]:
        """Record the forward pass of a stage within."""
        with self.at(number), self.tape.block(f"forward.{number}"):
            yield


Intervals = tuple[tuple[int, int], ...]


def _both_ends(rank: int, ranks: int, length: int) -> Intervals:
    """Return the runs of a rank in zig-zag order.

    They are part number ``rank`` from the front and from the back of 2 * ``ranks`` equal parts.
    """
    size = length // (2 * ranks)
    late = 2 * ranks - 1 - rank
    return ((rank * size, (rank + 1) * size), (late * size, (late + 1) * size))


def portion(intervals: Intervals, low: int, high: int) -> Intervals:
    """Return the part from ``low`` to ``high`` of the concatenation of ``intervals``.

    Places beyond the end are left out.
    """
    begun, found = 0, []
    for start, stop in intervals:
        first, last = max(low - begun, 0), min(high - begun, stop - start)
        if first < last:
            found.append((start + first, start + last))
        begun += stop - start
    return tuple(found)
