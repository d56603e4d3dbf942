"""Reduced shapes of a pair of batches.

Dimensions are tied by running both batches on axes, and by the lineage between them.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(64, 512)], (64, 512))
>>> stage = Problem.of(plan, plan).whole_stage()
>>> pair = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts())
>>> pair.parallel.largest(pair.system.full()), pair.parallel.largest(pair.system.solve(0)) < 64
(32768, True)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeVar

from pitcheck.algebra.dimensions.axes import AxisAlgebra
from pitcheck.algebra.dimensions.axis_classes import AxisSystem
from pitcheck.algebra.dimensions.axis_values import AxisValue
from pitcheck.algebra.dimensions.scaling_class import Dimension, Use
from pitcheck.algebra.dimensions.size_choice import Sizes, leaves
from pitcheck.base.numbers import parse_number
from pitcheck.errors import PlanError
from pitcheck.graph.cuts import Box, Cut, Interval, length
from pitcheck.ops.axis_attributes import reduce_attributes
from pitcheck.ops.axis_templates import Templates
from pitcheck.ops.registry import BACKWARD, divided, evaluate, forward_attributes
from pitcheck.stage.batch import Batch, Step
from pitcheck.stage.run_batch import literal, run_batch
from pitcheck.stage.shape_only import describing

T = TypeVar("T")


@dataclass
class SymbolicBatch:
    """A batch run on axes: the dimensions of all values, and of all operands and results."""

    batch: Batch
    values: dict[int, AxisValue]
    steps: list[tuple[Sequence[AxisValue], Sequence[AxisValue | None]]]

    def shape(self, value: int, sizes: Sizes) -> tuple[int, ...]:
        """Return the reduced shape of a value."""
        return tuple(sizes.size(d) for d in self.values[value].dims)

    def largest(self, sizes: Sizes) -> int:
        """Return the number of elements of the largest value, over all its rows."""
        return max(
            (self.batch.counts[value] * prod(self.shape(value, sizes)) for value in self.values),
            default=0,
        )

    def held(self, sizes: Sizes) -> int:
        """Return the number of elements of all values together, over all their rows."""
        return sum(
            self.batch.counts[value] * prod(self.shape(value, sizes)) for value in self.values
        )

    def largest_read(self, sizes: Sizes) -> int:
        """Return the number of elements of the largest operand, over all rows of its step."""
        known = {value: prod(self.shape(value, sizes)) for value in self.values}
        return max(
            (a.rows.size * known[a.value] for step in self.batch.steps for a in step.arguments),
            default=0,
        )

    def attributes(self, sizes: Sizes) -> list[Mapping[str, Any]]:
        """Return every step's attributes at reduced sizes."""
        return [
            reduce_attributes(step.kind, step.attributes, inputs, outputs, sizes)
            for step, (inputs, outputs) in zip(self.batch.steps, self.steps, strict=True)
        ]


@dataclass
class SymbolicPair:
    """Both batches over one system of axes, tied by their cuts."""

    system: AxisSystem
    reference: SymbolicBatch
    parallel: SymbolicBatch
    cuts: tuple[Cut, ...]
    known: dict[Hashable, Any] = field(default_factory=dict)
    """The facts that were found out about the stage, by the question."""

    def remembered(self, key: Hashable, find: Callable[[], T]) -> T:
        """Return what ``find`` gives, computed once for a key."""
        if key not in self.known:
            self.known[key] = find()
        found: T = self.known[key]
        return found

    def axes_together(self) -> Mapping[int, int]:
        """Return the most axes of one class that a value has, by the number of the class.

        An element of the value is computed of as many places along that class, which may all
        differ. So there must be as many of them in every unit.
        """
        return self.remembered("axes together", self._axes_together)

    def _axes_together(self) -> dict[int, int]:
        most: dict[int, int] = {}
        for side in (self.reference, self.parallel):
            for value in side.values.values():
                axes = Counter(n for node in value.dims for n in leaves(self.system, node))
                most.update({n: max(count, most.get(n, 0)) for n, count in axes.items()})
        return most

    def box(self, cut: Cut, box: Box, sizes: Sizes) -> Box:
        """Return a box of the cut's reference value at reduced sizes."""
        return self.boxes(cut, sizes)(box)

    def boxes(self, cut: Cut, sizes: Sizes) -> Callable[[Box], Box]:
        """Return a function that gives boxes of the cut's reference value at reduced sizes.

        Few intervals along each dimension make many boxes.
        """
        local = self.parallel.values[cut.value].dims
        nodes = self.reference.values[cut.reference].dims
        known: list[dict[tuple[Interval, ...], tuple[Interval, ...]]] = [{} for _ in nodes]

        def reduced(dim: int, intervals: tuple[Interval, ...]) -> tuple[Interval, ...]:
            if len(intervals) == 1 and intervals[0][0] < 0:
                return ((intervals[0][0], sizes.size(local[dim])),)
            return tuple(
                i
                if i[0] < 0
                else (sizes.position(nodes[dim], i[0]), sizes.position(nodes[dim], i[1]))
                for i in intervals
            )

        def of(box: Box) -> Box:
            result = []
            for dim, intervals in enumerate(box):
                found = known[dim].get(intervals)
                if found is None:
                    found = known[dim][intervals] = reduced(dim, intervals)
                result.append(found)
            return tuple(result)

        return of


def symbolic_pair(
    reference: Batch, parallel: Batch, cuts: Sequence[Cut], templates: Templates | None = None
) -> SymbolicPair:
    """Run both batches on axes.

    ``cuts`` are all cuts at the batches' boundaries and targets; ``templates`` are shared between
    stages.

    Raises:
        StepError, PlanError: shapes do not fit.
    """
    system = AxisSystem()
    algebra = AxisAlgebra(system)
    shared = templates or Templates(evaluate)
    ranges = {value: system.places() for value in reference.inputs if _has_range(reference, value)}
    first = _run(reference, algebra, shared, ranges, {cut.reference for cut in cuts})
    second = _run(
        parallel,
        algebra,
        shared,
        {cut.value: ranges[cut.reference] for cut in cuts if cut.reference in ranges},
        {cut.value for cut in cuts},
    )
    for cut in cuts:
        if cut.reference in first.values and cut.value in second.values:
            _tie(system, first.values[cut.reference], second.values[cut.value], cut)
            _tie_places(system, first.values[cut.reference], second.values[cut.value])
    _keep_counts(
        system,
        _given(first, {cut.reference for cut in cuts})
        + _given(second, {cut.value for cut in cuts}),
    )
    return SymbolicPair(system, first, second, tuple(cuts))


def _given(side: SymbolicBatch, compared: Collection[int]) -> list[Dimension]:
    """Return the dimensions of the inputs of a side, without constants, and of compared values."""
    drawn = [
        value
        for value in side.batch.inputs
        if side.batch.graph.values[value].tensor.value is None
        or side.batch.graph.values[value].writers
    ]
    return [
        node
        for value in (*drawn, *compared)
        if value in side.values
        for node in side.values[value].dims
    ]


def _keep_counts(system: AxisSystem, given: Sequence[Dimension]) -> None:
    """Keep every dimension whole that none of ``given`` has.

    What is made along such a dimension (a sum of ones) is a number, which the other side may get
    from other numbers, or along a dimension of that size: that is kept whole, too.
    """
    queue, seen = list(given), set()
    while queue:
        node = queue.pop()
        number = system.number_of(node)
        if number not in seen:
            seen.add(number)
            queue.extend(system.class_of(node).factors())
    for number, own in system.classes():
        if number not in seen and own.inner is None and own.total > 1:
            system.fix(own.members[0], "its size is a number: nothing that is given has it")
    counts = {
        node.size
        for node in system.repeated
        if system.number_of(node) not in seen and system.class_of(node).mixed
    }
    for _, own in system.classes():
        hit = next((member.size for member in own.members if member.size in counts), None)
        if own.mixed and hit is not None:
            system.fix(own.members[0], f"{hit} numbers may be counted along it")


def _has_range(batch: Batch, value: int) -> bool:
    """Return True if a drawn input holds integers from 0 on, which may be places."""
    tensor = batch.graph.values[value].tensor
    return (
        tensor.bounds is not None
        and tensor.bounds[0] == 0
        and (tensor.value is None or bool(batch.graph.values[value].writers))
    )


def _run(
    batch: Batch,
    algebra: AxisAlgebra,
    templates: Templates,
    ranges: Mapping[int, Dimension],
    kept: Collection[int],
) -> SymbolicBatch:
    """Run one batch on axes.

    ``ranges``: the dimensions along which integer inputs are places. ``kept``: the values at cuts.
    """
    graph = batch.graph
    inputs = {
        value: replace(
            algebra.tensor(graph.values[value].shape, graph.values[value].kind),
            places=ranges.get(value),
        )
        for value in batch.inputs
    }
    for value in batch.inputs:
        filled = graph.values[value].tensor.value
        if filled is None and graph.values[value].kind != "field":
            for node in inputs[value].dims:
                algebra.system.use(node, Use.LABELLED)
        if filled is not None and not graph.values[value].writers:
            literal(algebra, parse_number(filled, f"tensors[{graph.values[value].name}].value"))
    steps: list[tuple[Sequence[AxisValue], Sequence[AxisValue | None]]] = []

    def observe(
        _: int, step: Step, given: Sequence[AxisValue], results: Sequence[AxisValue | None]
    ) -> None:
        steps.append((given, results))
        tie_derivative(algebra, step, given, results, templates, graph.nodes[step.node].operator)
        for output, result in zip(step.outputs, results, strict=True):
            if output is None or result is None:
                continue
            if algebra.shape(result) != batch.shape(output):
                raise PlanError(
                    f"{step.kind} gives a tensor of shape {algebra.shape(result)}, but "
                    f"{graph.values[output].name!r} is declared as {batch.shape(output)}",
                    f"operators[{graph.nodes[step.node].operator}]",
                )

    values = run_batch(
        batch, algebra, inputs, observe=observe, evaluator=describing(templates, batch, kept)
    )
    return SymbolicBatch(batch, values, steps)


def tie_derivative(
    algebra: AxisAlgebra,
    step: Step,
    given: Sequence[AxisValue],
    results: Sequence[AxisValue | None],
    templates: Templates,
    operator: str,
) -> None:
    """Tie the dimensions of a derivative to those of its operator.

    A gradient has the dimensions of what it is the gradient of. What the operator ties is tied for
    its derivative, also if its formulas do not use it.

    Raises:
        PlanError: at ``operator``, if a forward output that is given has another shape than the
        operator gives with these attributes. It is none of its outputs then.
    """
    if not step.kind.endswith(BACKWARD):
        return
    inputs, outputs, gradients = divided(step.attributes, len(given))
    plain = forward_attributes(step.attributes)
    with algebra.system.described():
        computed = templates.run(
            algebra, step.kind.removesuffix(BACKWARD), given[:inputs], plain, None
        )
    pairs = [
        (computed[output], given[inputs + outputs + place])
        for place, output in enumerate(gradients)
    ]
    for number, (value, output) in enumerate(
        zip(computed, given[inputs : inputs + outputs], strict=False)
    ):
        if algebra.shape(value) != algebra.shape(output):
            raise PlanError(
                f"{step.kind}: with these operands and attributes the operator gives a tensor of "
                f"shape {algebra.shape(value)} as output {number}, but what is "
                f"given as that output has shape {algebra.shape(output)}",
                f"operators[{operator}]",
            )
        pairs.append((value, output))
    pairs += [
        (value, result)
        for value, result in zip(given[:inputs], results, strict=False)
        if result is not None
    ]
    for value, gradient in pairs:
        for node, other in zip(value.dims, gradient.dims, strict=False):
            if node.size == other.size:
                algebra.system.tie(other, node)


def _tie_places(system: AxisSystem, whole: AxisValue, local: AxisValue) -> None:
    """Tie integers that are compared: they are places along one dimension, or numbers."""
    if whole.places is not None and local.places is not None:
        system.share(whole.places, local.places)
        return
    for node in (whole.places, local.places):
        if node is not None:
            system.fix(node, "places along it are compared with other integers")


def _tie(system: AxisSystem, whole: AxisValue, local: AxisValue, cut: Cut) -> None:
    """Tie every local dimension to the reference dimension whose intervals it holds."""
    for dim, different in enumerate(cut.parts.intervals):
        single = [
            intervals[0][0]
            for intervals in different
            if len(intervals) == 1 and intervals[0][0] >= 0
        ]
        if single:
            system.tie_segments(local.dims[dim], whole.dims[dim], single)
        for intervals in different:
            if len(intervals) == 1 and intervals[0][0] >= 0:
                continue
            position = 0
            for interval in intervals:
                piece = system.dimension(length(interval))
                if interval[0] < 0:
                    system.fix(piece)
                else:
                    system.tie(piece, whole.dims[dim], interval[0])
                system.tie(piece, local.dims[dim], position)
                position += length(interval)
