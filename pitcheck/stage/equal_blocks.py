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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from pitcheck.algebra.dimensions.axes import AxisAlgebra
from pitcheck.algebra.dimensions.axis_classes import AxisSystem, Dimension
from pitcheck.algebra.dimensions.axis_values import AxisValue
from pitcheck.algebra.dimensions.size_choice import Sizes
from pitcheck.algebra.interface import Kind
from pitcheck.errors import UnsupportedError
from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import GraphValue
from pitcheck.graph.grids import Codes, Grid
from pitcheck.graph.parts import Interval, Parts, distinct_rows
from pitcheck.ops.axis_attributes import reduced_dimensions
from pitcheck.ops.axis_templates import Templates
from pitcheck.ops.registry import BACKWARD, divided, forward_attributes, has_trait, kinds_with
from pitcheck.ops.traits import Trait
from pitcheck.plan.model import Tensor
from pitcheck.stage.batch import Argument, Batch, Step
from pitcheck.stage.run_batch import literal
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


@dataclass(frozen=True)
class Weight:
    """What terms of a sum over the batch are multiplied by: how often every place along dimension
    ``dim`` of ``rank`` is there, or nothing (None).

    Of a mean it is multiplied by the share of the blocks that are kept, because it is divided by
    their number alone. ``kind``: of what is multiplied.
    """

    rank: int
    dim: int | None
    mean: bool
    kind: Kind


@dataclass
class Weighted:
    """A batch of the reference in which what is added up over the batch is multiplied by weights
    first.

    ``weights``: inputs to fill with weights. ``dims``: for every value that has the batch
    dimension, where. ``scaled``: the values that were multiplied by weights, and what was.
    """

    batch: Batch
    weights: dict[int, Weight]
    dims: dict[int, int]
    scaled: dict[int, int]


def weighted(batch: Batch, total: int, dims: Mapping[int, int], templates: Templates) -> Weighted:
    """Make a reference batch fit for equal blocks. ``dims``: where its inputs have the batch
    dimension.

    Raises UnsupportedError for an operator that does anything along the batch but add up what it
    computes for every place by itself.
    """
    return _Weighting(batch, total, dict(dims), templates).run()


@dataclass
class _Effect:
    """What a step does for an output: where that has the batch dimension (None: nowhere), and the
    operands to be weighted where it is a sum over the batch, or with ``mean`` a mean."""

    dim: int | None
    weigh: tuple[int, ...] = ()
    mean: bool = False


@dataclass
class _Weighting:
    batch: Batch
    total: int
    dims: dict[int, int]
    templates: Templates
    steps: list[Step] = field(default_factory=list)
    known: dict[object, tuple[_Effect | None, ...]] = field(default_factory=dict)
    scaled: dict[tuple[int, bool], int] = field(default_factory=dict)
    weights: dict[Weight, int] = field(default_factory=dict)
    values: list[GraphValue] = field(default_factory=list)

    def run(self) -> Weighted:
        graph = self.batch.graph
        self.values = list(graph.values)
        for step in self.batch.steps:
            effects = self._effects(step)
            for output, effect in zip(step.outputs, effects, strict=True):
                if output is not None and effect is not None and effect.dim is not None:
                    self.dims[output] = effect.dim
            self._append(step, effects)
        grown = graph.with_values(self.values)
        first = next(iter(self.batch.inputs), None)
        more = tuple(self.weights.values())
        inputs = {**self.batch.inputs, **{v: np.zeros(1, dtype=np.int64) for v in more}}
        batch = Batch(
            grown,
            inputs,
            self.steps,
            dict(self.batch.grids),
            dict(self.batch.held),
            dict(self.batch.counts),
        )
        for value in (*more, *self.scaled.values()):
            batch.counts[value] = 1
            if first is not None:
                batch.grids[value] = np.zeros(graph.anywhere, dtype=np.int64)
                batch.held[value] = np.ones(graph.anywhere, dtype=np.bool_)
        weights = {value: weight for weight, value in self.weights.items()}
        return Weighted(
            batch, weights, self.dims, {scaled: value for (value, _), scaled in self.scaled.items()}
        )

    def _append(self, step: Step, effects: Sequence[_Effect | None]) -> None:
        """The step, once for each set of operands that are weighted for some of its outputs."""
        groups: dict[tuple[tuple[int, ...], bool], list[bool]] = {}
        for place, effect in enumerate(effects):
            if effect is not None:
                groups.setdefault((effect.weigh, effect.mean), [False] * len(effects))[place] = True
        for (weigh, mean), own in groups.items():
            outputs = tuple(
                output if chosen else None for output, chosen in zip(step.outputs, own, strict=True)
            )
            inputs = tuple(
                self._weighed(step, operand, mean) if place in weigh else operand
                for place, operand in enumerate(step.inputs)
            )
            self.steps.append(replace(step, inputs=inputs, outputs=outputs))

    def _weighed(self, step: Step, operand: Any, mean: bool) -> Argument:
        """An operand times its weight."""
        if not isinstance(operand, Argument) or (operand.value not in self.dims and not mean):
            raise UnsupportedError(f"{step.kind} adds up over the batch what does not depend on it")
        value = operand.value
        if (value, mean) not in self.scaled:
            info = self.values[value]
            if info.kind == "bool":
                raise UnsupportedError(f"{step.kind} adds up {info.kind} values over the batch")
            weights = self._weights(Weight(len(info.shape), self.dims.get(value), mean, info.kind))
            scaled = self.scaled[value, mean] = self._new(
                f"{info.name}, as often as its block", info.shape, info.kind
            )
            if value in self.dims:
                self.dims[scaled] = self.dims[value]
            rows = np.zeros(1, dtype=np.int64)
            self.steps.append(
                Step(
                    step.node,
                    "mul",
                    {},
                    (Argument(value, rows), Argument(weights, rows)),
                    (scaled,),
                    1,
                )
            )
        return Argument(self.scaled[value, mean], operand.rows)

    def _weights(self, weight: Weight) -> int:
        if weight not in self.weights:
            shape = tuple(self.total if d == weight.dim else 1 for d in range(weight.rank))
            self.weights[weight] = self._new(
                f"weight of blocks {len(self.weights)}", shape, weight.kind
            )
            if weight.dim is not None:
                self.dims[self.weights[weight]] = weight.dim
        return self.weights[weight]

    def _new(self, name: str, shape: tuple[int, ...], kind: Kind) -> int:
        lattice = next(iter(self.values)).lattice
        self.values.append(
            GraphValue(
                name,
                shape,
                kind,
                Tensor(name, shape, "float32" if kind == "field" else "int64"),
                lattice,
            )
        )
        return len(self.values) - 1

    # --- what a step does

    def _effects(self, step: Step) -> tuple[_Effect | None, ...]:
        if not any(a.value in self.dims for a in step.arguments):
            return tuple(None if output is None else _Effect(None) for output in step.outputs)
        said = tuple(
            (self.values[o.value].shape, self.values[o.value].kind, self.dims.get(o.value))
            if isinstance(o, Argument)
            else repr(o)
            for o in step.inputs
        )
        key = (
            step.kind,
            repr(sorted(step.attributes.items())),
            said,
            tuple(o is None for o in step.outputs),
        )
        if key not in self.known:
            self.known[key] = tuple(
                None if output is None else self._effect(step, place)
                for place, output in enumerate(step.outputs)
            )
        return self.known[key]

    def _effect(self, step: Step, place: int) -> _Effect:
        """What a step does for one of its outputs."""
        found = self._alone(step, place)
        if found is not None:
            return found
        if step.kind.endswith(BACKWARD):
            weigh = self._gradients_to_weigh(step, place)
            if weigh:
                return _Effect(None, weigh)
            if step.kind.removesuffix(BACKWARD) in kinds_with(Trait.AVERAGES) and self._over_batch(
                step
            ):
                # A derivative of a mean divides what it is given, which no place has to itself, by
                # the number of elements.
                return _Effect(
                    self.dims[step.arguments[0].value], (len(step.inputs) - 1,), mean=True
                )
        elif has_trait(step.kind, Trait.ADDS_ALONG, step.attributes) and self._gone(step):
            return _Effect(None, (0,), has_trait(step.kind, Trait.AVERAGES, step.attributes))
        raise UnsupportedError(
            f"the reference's operator {self.batch.graph.nodes[step.node].operator!r} "
            f"({step.kind}) combines what belongs to different ranks"
        )

    def _alone(self, step: Step, place: int) -> _Effect | None:
        """Where an output has the batch dimension if every place along it is computed by itself,
        else None.
        """
        system = AxisSystem()
        algebra = AxisAlgebra(system)
        given, node = self._given(step, algebra, range(len(step.inputs)))
        results = self.templates.run(
            algebra,
            step.kind,
            given,
            step.attributes,
            [n == place for n in range(len(step.outputs))],
        )
        result = results[place]
        operand = given[place] if step.kind.endswith(BACKWARD) else None
        if operand is not None:
            for own, other in zip(result.dims, operand.dims, strict=False):
                if own.size == other.size:
                    system.tie(own, other)
        return self._place(system, node, [result])

    def _given(
        self, step: Step, algebra: AxisAlgebra, places: Sequence[int]
    ) -> tuple[list[AxisValue], Dimension]:
        """Operands of a step as dimensions of their own, but for the batch dimension,
        which is one.
        """
        node = algebra.system.dimension(self.total)
        given = []
        for operand in (step.inputs[place] for place in places):
            if isinstance(operand, tuple) or (
                isinstance(operand, Argument) and operand.rows.ndim > 1
            ):
                raise UnsupportedError(f"{step.kind} stacks its operands")
            if not isinstance(operand, Argument):
                given.append(literal(algebra, operand))
                continue
            info = self.values[operand.value]
            value = algebra.tensor(info.shape, info.kind)
            if operand.value in self.dims:
                algebra.system.tie(value.dims[self.dims[operand.value]], node)
            given.append(value)
        return given, node

    def _over_batch(self, step: Step) -> bool:
        """Whether the mean that a step is the derivative of is taken over the batch dimension of
        its operand.
        """
        dims = [self.dims.get(argument.value) for argument in step.arguments]
        rank = len(self.values[step.arguments[0].value].shape)
        over = reduced_dimensions(step.attributes, rank)
        return (
            len(dims) == len(step.inputs) == 3
            and dims[0] is not None
            and dims[0] in over
            and dims[1:] == [None, None]
        )

    def _gone(self, step: Step) -> bool:
        """Whether the results of a step have no batch dimension."""
        system = AxisSystem()
        given, node = self._given(step, AxisAlgebra(system), range(len(step.inputs)))
        results = self.templates.run(AxisAlgebra(system), step.kind, given, step.attributes, None)
        return all(
            own.size != self.total and system.number_of(own) != system.number_of(node)
            for result in results
            for own in result.dims
        )

    def _place(
        self, system: AxisSystem, node: Dimension, results: Sequence[AxisValue]
    ) -> _Effect | None:
        root = system.number_of(node)
        where = {
            tuple(dim for dim, own in enumerate(result.dims) if system.number_of(own) == root)
            for result in results
        }
        if not system.is_batch(node) or len(where) != 1:
            return None
        dims = where.pop()
        return _Effect(dims[0] if dims else None) if len(dims) < 2 else None

    def _gradients_to_weigh(self, step: Step, place: int) -> tuple[int, ...]:
        """Of a derivative with respect to an operand that all places share: the gradients in which
        it is linear; none where places are not alone.
        """
        inputs, outputs, _ = divided(step.attributes, len(step.inputs))
        operand = step.inputs[place]
        if not isinstance(operand, Argument) or operand.value in self.dims:
            return ()
        system = AxisSystem()
        algebra = AxisAlgebra(system)
        given, node = self._given(step, algebra, range(inputs))
        plain = forward_attributes(step.attributes)
        forward = self._place(
            system,
            node,
            self.templates.run(algebra, step.kind.removesuffix(BACKWARD), given, plain, None),
        )
        if forward is None or forward.dim is None:
            return ()
        return tuple(range(inputs + outputs, len(step.inputs)))
