"""Weights of the reference's blocks, for inputs of which most blocks are equal.

The reference computes every block by itself until it adds them up. There a block that stands for
others counts as often as they do: a sum over the batch of equal terms is that many times one of
them. A derivative is linear in the gradients that it is given, and adds up what it gives for
operands that all blocks share. So these gradients are multiplied by the number of times that each
block is there. A mean over the batch is one over the blocks that are kept, each weighted by its
share of all. An operator that does anything else along the batch is refused.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.ops.registry import evaluate
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("sum", [(8, 3)], (3,), axes=(0,))
>>> found = weighted(Problem.of(plan, plan).whole_stage().reference, 8, {0: 0}, Templates(evaluate))
>>> [step.kind for step in found.batch.steps]  # every block counts as often as it is there
['mul', 'sum']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pitcheck.algebra.dimensions.axes import AxisAlgebra
from pitcheck.algebra.dimensions.axis_classes import AxisSystem
from pitcheck.algebra.dimensions.axis_values import AxisValue
from pitcheck.algebra.dimensions.scaling_class import Dimension
from pitcheck.algebra.interface import Kind
from pitcheck.errors import UnsupportedError
from pitcheck.graph.graph import GraphValue
from pitcheck.ops.axis_attributes import reduced_dimensions
from pitcheck.ops.axis_templates import Templates
from pitcheck.ops.registry import BACKWARD, divided, forward_attributes, has_trait, kinds_with
from pitcheck.ops.traits import Trait
from pitcheck.plan.model import Tensor
from pitcheck.stage.batch import Argument, Batch, Step
from pitcheck.stage.run_batch import literal


@dataclass(frozen=True)
class Weight:
    """A factor of the terms of a sum over the batch.

    It says how often every place along dimension ``dim`` of ``rank`` is there, or nothing (None).
    For a mean it has the share of the blocks that are kept as a factor, because the mean divides by
    their number alone. ``kind``: that of what is multiplied.
    """

    rank: int
    dim: int | None
    mean: bool
    kind: Kind


@dataclass
class Weighted:
    """A batch of the reference in which what is added up over the batch has weights.

    ``weights``: the inputs to fill with weights. ``dims``: the batch dimension of every value that
    has it. ``scaled``: the values that were multiplied by weights, and those they were made of.
    """

    batch: Batch
    weights: dict[int, Weight]
    dims: dict[int, int]
    scaled: dict[int, int]


def weighted(batch: Batch, total: int, dims: Mapping[int, int], templates: Templates) -> Weighted:
    """Make a reference batch fit for equal blocks.

    ``total``: the size of the batch dimension. ``dims``: where its inputs have it.

    Raises:
        UnsupportedError: an operator does anything along the batch but add up what it computes for
        every place by itself.
    """
    return _Weighting(batch, total, dict(dims), templates).run()


@dataclass
class _Effect:
    """The effect of a step on one output.

    ``dim``: where the output has the batch dimension, or None. ``weigh``: the operands to be
    weighted if it is a sum over the batch, or with ``mean`` a mean.
    """

    dim: int | None
    weigh: tuple[int, ...] = ()
    mean: bool = False


@dataclass
class _Weighting:
    """The reference while weights are put into it."""

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
        """Return the weighted batch."""
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
        """Append the step, once for each set of operands that some of its outputs weigh."""
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
        """Return an operand times its weight."""
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
        """Return the input that has a weight."""
        if weight not in self.weights:
            shape = tuple(self.total if d == weight.dim else 1 for d in range(weight.rank))
            self.weights[weight] = self._new(
                f"weight of blocks {len(self.weights)}", shape, weight.kind
            )
            if weight.dim is not None:
                self.dims[self.weights[weight]] = weight.dim
        return self.weights[weight]

    def _new(self, name: str, shape: tuple[int, ...], kind: Kind) -> int:
        """Return the number of a new value."""
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
        """Return the effects of a step on its outputs, None for one that is not wanted."""
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
        """Return the effect of a step on one of its outputs."""
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
                # The derivative of a mean divides the gradient, which lacks the batch dimension,
                # by the number of elements.
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
        """Return where an output has the batch dimension.

        Return None if some place along it is not computed by itself.
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
        """Return a step's operands with separate dimensions, except for one batch dimension."""
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
        """Return True if a step is the derivative of a mean over the batch dimension."""
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
        """Return True if the results of a step have no batch dimension."""
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
        """Return where results have a dimension; None if they differ, or mix its places."""
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
        """Return the gradients in which a derivative by an operand that all places share is linear.

        Return none if places are not computed by themselves.
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
