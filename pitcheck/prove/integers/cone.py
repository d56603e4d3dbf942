"""The part of a stage that is computed from integers and booleans alone.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shaped_stage import shape_reduced
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> discrete_cone(shape_reduced(Problem.of(plan, plan).whole_stage())) is None
True
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from pitcheck.algebra.interface import Kind
from pitcheck.ops.registry import BACKWARD, has_trait, random_kinds
from pitcheck.ops.traits import Trait
from pitcheck.prove.integers.sourced import SourcedAlgebra
from pitcheck.stage.batch import Batch, Step
from pitcheck.stage.drawn_inputs import derive_all
from pitcheck.stage.evaluate import constant_value
from pitcheck.stage.literals import integers_named
from pitcheck.stage.run_batch import operator_at, run_batch, step_at
from pitcheck.stage.shaped_stage import ShapedStage

SIDES = ("reference ", "parallel ")
"""The beginnings of the sites of both sides."""

Attributes = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Reached:
    """Steps that show which places integers reach, where anything may be written.

    They add numbers that are no integers at drawn indices, or move the sums. Numbers that they read
    and that are not computed here are 1: so a sum shows how often its place was an index. ``ones``
    are the shapes and kinds of such values; those of other kinds than numbers are 0.
    """

    batch: Batch
    attributes: Attributes
    ones: Mapping[int, tuple[tuple[int, ...], Kind]]

    def run(self, algebra: SourcedAlgebra, known: Mapping[int, Any], side: str) -> dict[int, Any]:
        """Return the sums, from the discrete values of a side. Raises StepError."""
        ones = {
            value: algebra.expand(algebra.constant(Fraction(int(kind == "field")), kind), shape)
            for value, (shape, kind) in self.ones.items()
        }
        events, algebra.events = algebra.events, None
        try:
            return run_batch(
                self.batch,
                algebra,
                {**ones, **known},
                self.attributes,
                side=f"{side}reached ",
                rows=_rows(known),
            )
        finally:
            algebra.events = events

    def leading_to(self, values: Collection[int]) -> tuple[Reached, set[int]]:
        """Return the steps that some values need, and what these need of others."""
        needed, kept = _leading_to(self.batch.steps, values)
        reached = replace(
            self,
            batch=replace(self.batch, steps=[self.batch.steps[n] for n in kept]),
            attributes=[self.attributes[n] for n in kept],
            ones={value: one for value, one in self.ones.items() if value in needed},
        )
        return reached, needed


@dataclass(frozen=True)
class Side:
    """The steps of one side that are computed from discrete data alone.

    ``sinks`` are the values that anything else reads, or that are compared, each with the integers
    that its readers name. ``stubs`` are the values of which only the shape is read. ``divisors``
    are values of steps that divide by such a value.
    """

    name: str
    batch: Batch
    attributes: Attributes
    given: frozenset[int]
    sinks: Mapping[int, frozenset[int]]
    stubs: Mapping[int, tuple[tuple[int, ...], Kind]]
    divisors: frozenset[int] = frozenset()
    reached: Reached | None = None
    """None: where integers reach is not looked at."""
    decided: frozenset[int] = frozenset()
    """The integers and booleans that are taken as given because real numbers decide them."""

    @cached_property
    def made(self) -> frozenset[int]:
        """Return the values that the steps of this side make."""
        outputs = (output for step in self.batch.steps for output in step.outputs)
        return frozenset(output for output in outputs if output is not None)

    def makes(self, step: Step) -> bool:
        """Return True if a step of the whole side is one of these."""
        return not self.made.isdisjoint(step.outputs)

    def operator(self, site: str) -> str:
        """Return the operator of a site of this side, or a divisor, in words."""
        return operator_at(site, self.name, self.batch)

    def described(self, value: int) -> str:
        """Return a value of this side, in words."""
        return f"{self.name}{self.batch.graph.values[value].name!r}"

    def run(self, algebra: Any, inputs: Mapping[int, Any]) -> dict[int, Any]:
        """Return all values from the discrete inputs. Raises StepError."""
        values = run_batch(
            self.batch,
            algebra,
            {**self._stubbed(algebra), **inputs},
            self.attributes,
            side=self.name,
            rows=_rows(inputs),
        )
        if isinstance(algebra, SourcedAlgebra):
            for value in sorted(self.divisors):
                algebra.site = f"{self.name}divisor {self.batch.graph.values[value].name!r}"
                algebra.note_divisor(values[value])
            if self.reached is not None:
                values = {**values, **self.reached.run(algebra, values, self.name)}
        return values

    def _stubbed(self, algebra: Any) -> dict[int, Any]:
        return {
            value: algebra.expand(algebra.constant(Fraction(0), kind), shape)
            for value, (shape, kind) in self.stubs.items()
        }

    def with_sinks(self, values: Iterable[int]) -> Side:
        """Return the side with further values among its sinks."""
        more = {value: frozenset[int]() for value in values}
        return replace(self, sinks={**more, **self.sinks})

    def leading_to(self, values: Collection[int]) -> Side:
        """Return the steps that some sinks need, with these sinks alone."""
        reached, further = (
            (None, set(values)) if self.reached is None else self.reached.leading_to(values)
        )
        needed, kept = _leading_to(self.batch.steps, further)
        return replace(
            self,
            reached=reached,
            batch=replace(self.batch, steps=[self.batch.steps[n] for n in kept]),
            attributes=[self.attributes[n] for n in kept],
            sinks={value: named for value, named in self.sinks.items() if value in values},
            stubs={value: stub for value, stub in self.stubs.items() if value in needed},
            divisors=self.divisors.intersection(values),
        )


@dataclass(frozen=True)
class Cone:
    """Both sides, and the discrete reference values that are drawn."""

    shaped: ShapedStage
    sides: tuple[Side, Side]
    drawn: tuple[int, ...]

    def run(
        self,
        algebra: Any,
        drawn: Mapping[int, Any],
        decided: tuple[Mapping[int, Any], Mapping[int, Any]] = ({}, {}),
    ) -> tuple[dict[int, Any], dict[int, Any]]:
        """Return all values of both sides in an algebra, from what is given. Raises StepError."""
        constants = [
            {v: constant_value(algebra, *known) for v, known in side.items() if v in own.given}
            for side, own in zip(self.shaped.constants, self.sides, strict=True)
        ]
        first, second = self.sides
        given = {value: drawn[value] for value in first.given if value in drawn}
        derived = {
            value: rows
            for value, rows in self.shaped.derived.items()
            if value in second.given and rows.source in drawn
        }
        if isinstance(algebra, SourcedAlgebra):
            with algebra.free_numbers():
                held = derive_all(algebra, drawn, derived)
        else:
            held = derive_all(algebra, drawn, derived)
        return (
            first.run(algebra, {**constants[0], **given, **decided[0]}),
            second.run(algebra, {**constants[1], **held, **decided[1]}),
        )

    def without_places(self) -> Cone:
        """Return the cone without the places that integers reach."""
        first, second = (replace(side, reached=None) for side in self.sides)
        return replace(self, sides=(first, second))

    def leading_to(self, values: tuple[Collection[int], Collection[int]]) -> Cone:
        """Return the steps that some sinks of either side need."""
        first, second = (side.leading_to(v) for side, v in zip(self.sides, values, strict=True))
        return replace(self, sides=(first, second))


def _rows(values: Mapping[int, Any]) -> dict[int, int]:
    """Return the numbers of rows of values that hold several. One row may stand for all."""
    held = {value: int(a.data.shape[2]) for value, a in values.items()}
    return {value: rows for value, rows in held.items() if rows > 1}


def discrete_cone(
    shaped: ShapedStage, divided: Mapping[str, bool] | None = None, *, decided: bool = False
) -> Cone | None:
    """Return what is computed from the discrete inputs; None if none are drawn.

    ``divided`` are the sites of steps that divide by what may be such a value: True if by 0. With
    ``decided`` what real numbers decide is given as well.
    """
    drawn = tuple(
        value
        for value, fresh in shaped.fresh.items()
        if fresh.kind != "field" and not fresh.unread and not fresh.numbers and 0 not in fresh.shape
    )
    if not drawn and not decided:
        return None
    discrete = {
        value for value, fresh in shaped.fresh.items() if fresh.kind != "field" or fresh.numbers
    }
    given = (
        frozenset(discrete | set(shaped.constants[0])),
        frozenset(
            {value for value, rows in shaped.derived.items() if rows.source in discrete}
            | set(shaped.constants[1])
        ),
    )
    stage = shaped.stage
    targets = (
        {target.cut.reference for target in stage.targets},
        {target.cut.value for target in stage.targets},
    )
    first, second = (
        _side(shaped, number, batch, given[number], targets[number], divided or {}, decided)
        for number, batch in enumerate((stage.reference, stage.parallel))
    )
    if not (drawn or first.decided or second.decided):
        return None
    return Cone(shaped, (first, second), drawn)


def _side(
    shaped: ShapedStage,
    number: int,
    batch: Batch,
    given: frozenset[int],
    targets: set[int],
    divided: Mapping[str, bool],
    with_decided: bool,
) -> Side:
    """Return the discrete steps of a side."""
    free = set(shaped.free) if number else set()
    mixed = {value for value in batch.inputs if value not in given}
    kinds, before = random_kinds(), -1
    decided: set[int] = set()
    while len(mixed) != before:
        before = len(mixed)
        for place, step in enumerate(batch.steps):
            drawn = place in free or step.kind in kinds
            if drawn or _reads(step, mixed):
                made = {output for output in step.outputs if output is not None}
                if with_decided and not drawn:
                    found = {v for v in made if batch.graph.values[v].kind != "field"}
                    decided |= found
                    made -= found
                mixed.update(made)
    inside = [
        place
        for place, step in enumerate(batch.steps)
        if place not in free
        and step.kind not in kinds
        and not _reads(step, mixed)
        and not any(o in mixed or o in decided for o in step.outputs)
    ]
    sinks: dict[int, frozenset[int]] = {
        value: frozenset() for value in targets if value not in mixed
    }
    for place in sorted(set(range(len(batch.steps))) - set(inside)):
        step = batch.steps[place]
        named = integers_named(step)
        for argument in step.looked_into:
            if argument.value not in mixed:
                sinks[argument.value] = sinks.get(argument.value, frozenset()) | named
    divisors = {
        argument.value
        for site, zero in divided.items()
        if (zero or not number) and (number_of_step := step_at(site, SIDES[number])) is not None
        for argument in batch.steps[number_of_step].looked_into
        if argument.value not in mixed and batch.graph.values[argument.value].kind == "field"
    }
    sinks = {**{value: frozenset[int]() for value in sorted(divisors)}, **sinks}
    steps = [batch.steps[place] for place in inside]
    read = {argument.value for step in steps for argument in step.arguments}
    outside = [place for place in range(len(batch.steps)) if place not in inside]
    return Side(
        SIDES[number],
        replace(batch, steps=steps),
        [shaped.attributes[number][place] for place in inside],
        given,
        sinks,
        {
            value: (shaped.shapes[number][value], batch.graph.values[value].kind)
            for value in read & mixed
        },
        frozenset(divisors),
        None
        if with_decided
        else _reached(shaped, number, batch, [p for p in outside if p not in free], mixed),
        frozenset(decided),
    )


def _reached(
    shaped: ShapedStage, number: int, batch: Batch, outside: Sequence[int], mixed: Collection[int]
) -> Reached | None:
    """Return the steps that show which places drawn integers reach; None if there are none."""
    found: list[int] = []
    made: set[int] = set()
    for place in outside:
        step, attributes = batch.steps[place], shaped.attributes[number][place]
        read = [argument.value for argument in step.looked_into]
        chosen = any(v in mixed and batch.graph.values[v].kind != "field" for v in read)
        if not chosen and (
            (any(v not in mixed for v in read) and _adds_at(step, attributes))
            or (made.intersection(read) and _moves(step, attributes))
        ):
            found.append(place)
            made.update(output for output in step.outputs if output is not None)
    if not found:
        return None
    found = _with_other_writers(batch, outside, found)
    steps = [batch.steps[place] for place in found]
    made = {output for step in steps for output in step.outputs if output is not None}
    read_here = {argument.value for step in steps for argument in step.arguments}
    return Reached(
        replace(batch, steps=steps),
        [shaped.attributes[number][place] for place in found],
        {
            value: (shaped.shapes[number][value], batch.graph.values[value].kind)
            for value in (read_here & set(mixed)) - made
        },
    )


def _with_other_writers(batch: Batch, outside: Sequence[int], found: Sequence[int]) -> list[int]:
    """Return steps with those that write other rows of the same values, in order.

    Devices that a permutation sends nothing to have zeros from a step of their own.
    """
    chosen = set(found)
    while True:
        made = {output for place in chosen for output in batch.steps[place].outputs}
        more = {
            p for p in outside if not made.difference({None}).isdisjoint(batch.steps[p].outputs)
        }
        if more <= chosen:
            return sorted(chosen)
        chosen |= more


def _adds_at(step: Step, attributes: Mapping[str, Any]) -> bool:
    """Return True if a step adds at indices: itself, or the gradient of what is read at them."""
    if step.kind.endswith(BACKWARD):
        return picks(step, attributes)
    return has_trait(step.kind, Trait.ADDS_WITHIN, attributes)


def _moves(step: Step, attributes: Mapping[str, Any]) -> bool:
    """Return True if a step moves numbers, or adds some of them up where they stand."""
    kind = step.kind.removesuffix(BACKWARD)
    adds = (Trait.TOTAL, Trait.ADDS_WITHIN)
    return picks(step, attributes) or all(has_trait(kind, trait, attributes) for trait in adds)


def picks(step: Step, attributes: Mapping[str, Any]) -> bool:
    """Return True if a step hands numbers on as they are, or is the derivative of one that does."""
    kind = step.kind.removesuffix(BACKWARD)
    hands_on = (Trait.TOTAL, Trait.ROUNDS_NOTHING)
    return all(has_trait(kind, trait, attributes) for trait in hands_on)


def _leading_to(steps: Sequence[Step], values: Collection[int]) -> tuple[set[int], list[int]]:
    """Return the values that some steps need for others, and which steps these are, in order."""
    needed, kept = set(values), []
    for number in reversed(range(len(steps))):
        if any(output in needed for output in steps[number].outputs):
            kept.append(number)
            needed.update(argument.value for argument in steps[number].arguments)
    return needed, kept[::-1]


def _reads(step: Step, values: set[int]) -> bool:
    """Return True if a step looks into one of some values."""
    return any(argument.value in values for argument in step.looked_into)
