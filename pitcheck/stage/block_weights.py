"""Weights of blocks in the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pitcheck.algebra.dimensions.axes import AxisAlgebra
from pitcheck.algebra.dimensions.axis_classes import AxisSystem, Dimension
from pitcheck.algebra.dimensions.axis_values import AxisValue
from pitcheck.algebra.interface import Kind
from pitcheck.errors import UnsupportedError
from pitcheck.graph.graph import GraphValue
from pitcheck.ops.axis_templates import Templates
from pitcheck.ops.registry import BACKWARD, divided, forward_attributes, has_trait, kinds_with
from pitcheck.ops.traits import Trait
from pitcheck.plan.model import Tensor
from pitcheck.stage.batch import Argument, Batch, Step
from pitcheck.stage.run_batch import literal


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
        axes = step.attributes.get("axes")
        over = range(rank) if axes is None else {axis % rank for axis in axes}
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
