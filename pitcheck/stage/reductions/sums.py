"""Reduction of sums over symmetric coordinates to a few of their terms.

Let both sides be sums over the segments of one reference dimension, each segment entering once: the
parallel side through accumulation, all-reduce or reduce-scatter over terms whose cones are the same
but for the segment, the reference through one contraction. Then the claim is

    sum over i of f(x_i) = sum over i of g(x_i)    for all x,

with f and g that do not depend on the number of segments. If it holds for some number n >= 1 of
segments, then f - g does not depend on x and n (f - g) = 0. Hence f = g, since n is below every
prime in use, and the claim holds for every number. Anything that is not of this form is evaluated
with all its terms. Of a gradient that 1,024 coordinates add up, a few terms are evaluated.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shapes import symbolic_pair
>>> plan = one_operator("sum", [(64, 3)], (3,), axes=(0,))
>>> stage = Problem.of(plan, plan).whole_stage()
>>> symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts())
>>> find_sum(stage, symbolic, None, keep=1, seed=1) is None  # one device adds up no members
True
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pitcheck.algebra.dimensions.axis_values import AxisValue
from pitcheck.graph.grids import Codes
from pitcheck.ops.axis_attributes import reduced_dimensions
from pitcheck.ops.axis_templates import Templates
from pitcheck.ops.registry import (
    divided,
    has_trait,
    inner_dimensions,
    operator_kind,
    shared_operands,
)
from pitcheck.ops.traits import Trait
from pitcheck.stage.batch import Argument, Batch, Step
from pitcheck.stage.reductions.reference_alone import ReferenceAlone
from pitcheck.stage.reductions.spans import carriers
from pitcheck.stage.reductions.symmetry import WORTHWHILE, Symmetry, common_segment
from pitcheck.stage.reductions.terms import is_linear, sum_steps, terms_of, with_members
from pitcheck.stage.shapes import SymbolicPair
from pitcheck.stage.stage import Stage


@dataclass(frozen=True)
class Sum:
    """The rest of a sum over the segments of a dimension."""

    members: Mapping[int, Codes]
    """The rows of the members that are kept, by step."""
    symmetry: Symmetry


def find_sum(
    stage: Stage,
    symbolic: SymbolicPair,
    templates: Templates | None,
    keep: int,
    seed: int,
    done: Collection[int] = (),
) -> Sum | None:
    """Return a sum of which ``keep`` members are kept at every level.

    Return None if none is worthwhile and proven to be a sum, over a dimension of a class that is
    not in ``done``.
    """
    if len(stage.targets) != 1 or stage.targets[0].cut.groups is not None:
        return None
    steps, _ = sum_steps(stage.parallel, stage.targets[0].cut.value)
    members = [
        a.rows.shape[1]
        for n in steps
        for a in stage.parallel.steps[n].looked_into
        if a.rows.ndim == 2
    ]
    if not members or (stage.sampling is None and max(members) <= WORTHWHILE):
        return None
    dimensions = {
        root: own for root, own in _dimensions(stage, symbolic).items() if root not in done
    }
    summed = _Summed.of(stage, templates) if dimensions else None
    if summed is None:
        return None
    for root, own in dimensions.items():
        value, dim = own[0]
        total = stage.reference.graph.values[value].shape[dim]
        segment = common_segment(stage, symbolic, root, total)
        if segment is None or not summed.over(own):
            continue
        count = _segments(stage, total // segment)
        terms = terms_of(stage, symbolic, root, count, segment, seed) if count else None
        found = (
            None
            if terms is None
            else terms.chosen(stage.parallel, stage.targets[0].cut.value, keep)
        )
        if found is not None:
            tables, kept = found
            if stage.sampling is not None and stage.sampling.crossed(stage.parallel, tables):
                continue
            return Sum(
                tables,
                Symmetry(
                    own[0],
                    total,
                    segment,
                    stage.targets[0].where,
                    kept,
                    1,
                    total // segment,
                    "each segment enters once",
                    "terms of a sum",
                ),
            )
    return None


def _segments(stage: Stage, segments: int) -> int:
    """Return how many segments of the dimension the stage shows.

    Return 0 if those that it does not show are not all the others.
    """
    if stage.sampling is None:
        return segments
    seen, full = stage.sampling.counts(
        stage.sampling.differing(cut.grid for cut in stage.all_cuts())
    )
    return 0 if segments % full else segments // full * seen


def with_fewer_terms(stage: Stage, found: Sum) -> Stage:
    """Return the stage with the kept terms alone."""
    parallel = with_members(stage.parallel, found.members, stage.targets[0].cut.value)
    return stage.with_parallel(parallel, sampling=None)


def _dimensions(stage: Stage, symbolic: SymbolicPair) -> dict[int, list[tuple[int, int]]]:
    """Return the (reference input, dimension) pairs of every class that cuts divide."""
    divided_by: dict[int, None] = {}
    for cut in stage.cuts.values():
        for dim, node in enumerate(symbolic.reference.values[cut.reference].dims):
            if len(cut.parts.intervals[dim]) > WORTHWHILE:
                divided_by[symbolic.system.number_of(node)] = None
    return {root: carriers(stage, symbolic, root) for root in divided_by}


# --- the reference


@dataclass(frozen=True)
class _Summed:
    """The contractions at the end of the reference, and the dimensions of what comes before.

    These are each by themselves as far as operators say.
    """

    contractions: list[Step]
    before: ReferenceAlone

    @classmethod
    def of(cls, stage: Stage, templates: Templates | None) -> _Summed | None:
        """Return them; None if the reference's target does not come from contractions alone."""
        batch, target = stage.reference, stage.targets[0].cut.reference
        tail = _contractions(batch, target)
        if tail is None:
            return None
        return cls(
            [batch.steps[n] for n in tail if _contracted(batch.steps[n])],
            ReferenceAlone.of(batch, templates, {target}, tail),
        )

    def over(self, carriers: Sequence[tuple[int, int]]) -> bool:
        """Return True if the target is a sum over the dimension of separate results.

        What is added up is computed for each place along it alone.
        """
        values, system = self.before.values, self.before.system
        nodes = [values[value].dims[dim] for value, dim in carriers if value in values]
        if not nodes or not all(system.is_batch(node) for node in nodes):
            return False
        roots = {system.number_of(node) for node in nodes}

        def places(value: int) -> list[int]:
            return [
                dim
                for dim, node in enumerate(values[value].dims)
                if system.number_of(node) in roots
            ]

        return all(_contracts(step, values, places) for step in self.contractions)


def _contractions(batch: Batch, target: int) -> frozenset[int] | None:
    """Return the steps from contractions to the target; None if anything else lies in between."""
    found: set[int] = set()
    waiting = [target]
    while waiting:
        value = waiting.pop()
        writers = [n for n, step in enumerate(batch.steps) if value in step.outputs]
        if len(writers) != 1 or value in batch.inputs:
            return None
        step = batch.steps[writers[0]]
        found.add(writers[0])
        arguments = [argument.value for argument in step.looked_into]
        if is_linear(step) or (
            len(arguments) == 2 and has_trait(step.kind, Trait.ADDS_PLAINLY, step.attributes)
        ):
            waiting.extend(arguments)
        elif step.outputs.index(value) not in _contracted(step):
            return None
    # Nothing but the way to the target may read what is summed.
    inside = {output for n in found for output in batch.steps[n].outputs if output is not None}
    others = (step for n, step in enumerate(batch.steps) if n not in found)
    return (
        None
        if any(a.value in inside for step in others for a in step.arguments)
        else frozenset(found)
    )


def _contracted(step: Step) -> Collection[int]:
    """Return the outputs of a step that are sums over dimensions of its operands.

    These are sums, and gradients of weights and biases: a weight's is a sum over the leading
    dimensions of the first operand that the weight lacks.
    """
    return (0,) if is_sum(step) else shared_operands(step.kind)


def is_sum(step: Step) -> bool:
    """Return True if a step adds up over dimensions."""
    return has_trait(step.kind, Trait.ADDS_ALONG, step.attributes) and not has_trait(
        step.kind, Trait.AVERAGES, step.attributes
    )


def _contracts(
    step: Step, values: Mapping[int, AxisValue], places: Callable[[int], list[int]]
) -> bool:
    """Return True if a sum goes over the dimension.

    A derivative must have it at one and the same leading place of the first operand and of the
    gradient that is given, and nowhere else.
    """
    arguments = [operand for operand in step.inputs if isinstance(operand, Argument)]
    if len(arguments) != len(step.inputs) or any(a.value not in values for a in arguments):
        return False
    given = arguments[-1].value
    first = arguments[0].value
    where = places(first)
    if is_sum(step):
        over = reduced_dimensions(step.attributes, len(values[first].dims))
        return len(where) == 1 and where[0] in over
    last = inner_dimensions(operator_kind(step.kind), step.attributes)
    inputs, outputs, gradients = divided(step.attributes, len(arguments))
    if (
        len(where) != 1
        or places(given) != where
        or where[0] >= len(values[first].dims) - last
        or gradients != (0,)
        or outputs not in (0, 1)
    ):
        return False
    return all(not places(a.value) for a in arguments[1:inputs])
