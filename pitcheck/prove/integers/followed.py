"""Choices followed through all steps of a stage, to what is compared.

Draws show a polynomial in the outcomes of choices if few choices meet in each of its terms. Other
functions of several choices are believed if they are integers that both sides make by the same
steps, or if they are functions of real numbers of which different ones never meet.

>>> rarity(np.array([[1, 0], [0, 0], [0, 0], [0, 0]])).tolist()
[2.0, 0.0]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.structure import aligned
from pitcheck.algebra.value import Value
from pitcheck.ops.registry import evaluate, has_trait
from pitcheck.ops.traits import Trait
from pitcheck.prove.integers.choices import ENDLESS, ChoiceAlgebra, degree, degrees_of, met
from pitcheck.prove.integers.cone import SIDES, Cone
from pitcheck.prove.integers.shared import Shared
from pitcheck.stage.batch import Argument, Batch, Step
from pitcheck.stage.drawn_inputs import derive_all, draw
from pitcheck.stage.evaluate import constant_value
from pitcheck.stage.run_batch import run_batch, step_at

MOST_DEGREE = 2
"""The most choices that meet in a term whose outcomes draws are believed to show."""
DRAWS = 4
"""The draws in which arguments of functions are told apart."""
MOST_BITS = 8.0
"""The bits of the rarest joint outcome that is believed to be among the draws of a stage."""

Data = NDArray[Any]
"""Numbers of shape (draws, instances, *shape)."""
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Shown:
    """What draws have shown of a stage.

    ``drawn`` are the discrete inputs. ``decided`` is, for either side, what real numbers decided,
    and ``lacking`` says which of its elements lacked some number that others had. ``values`` are
    those of the discrete part in some draws; ``alike`` says which of them both sides make by the
    same steps, and ``strictly`` does if what was the same in draws does not count for the same.
    ``settled`` are the numbers of the steps of either side whose decisions both sides make. All but
    draws have the shape (instances, *shape).
    """

    drawn: Mapping[int, Data]
    decided: tuple[Mapping[int, Data], Mapping[int, Data]]
    lacking: tuple[Mapping[int, Bools], Mapping[int, Bools]]
    values: tuple[Mapping[int, Value], Mapping[int, Value]]
    alike: Sequence[Shared]
    strictly: Sequence[Shared]
    settled: tuple[set[int], set[int]]


@dataclass
class Followed:
    """The choices that decide about the values of a stage, along one run of all its steps.

    ``masks`` are outcomes of comparisons on either side that are proven for all inputs together.
    """

    cone: Cone
    masks: tuple[set[int], set[int]]
    shown: Shown
    seed: int
    first: str = ""
    """The first step whose result is believed on neither ground, in words."""
    _rows: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._algebra = ChoiceAlgebra(range(DRAWS), self.seed)
        self._places = [
            {id(step): place for place, step in enumerate(side.batch.steps)}
            for side in self.cone.sides
        ]

    def untold(self) -> str:
        """Return what is compared although draws do not show it, in words, or "".

        Raises StepError.
        """
        with np.errstate(all="ignore"):
            values = self._run()
        stage = self.cone.shaped.stage
        for number in (1, 0):
            for target in stage.targets:
                value = target.cut.value if number else target.cut.reference
                found = values[number][value]
                degrees, bits = degrees_of(found), self._algebra.bits(found)
                if (degrees > MOST_DEGREE).any():
                    return self.first or f"{SIDES[number]}results, which many of them decide"
                if ((degrees > 1) & (bits > MOST_BITS)).any():
                    return f"{SIDES[number]}results, which need rare ones at once"
        for name, arguments in self._algebra.arguments.items():
            site = met(name, arguments)
            if site is not None:
                number = int(site.startswith(SIDES[1]))
                place = step_at(site, SIDES[number])
                step = self._batch(number).steps[0 if place is None else place]
                return f"{self._described(number, step)}, which is a function of them"
        return ""

    def _run(self) -> tuple[dict[int, Any], dict[int, Any]]:
        """Return all values of both sides."""
        shaped, algebra = self.cone.shaped, self._algebra
        stage = shaped.stage
        drawn = {value: draw(algebra, fresh) for value, fresh in shaped.fresh.items()}
        for value in self.cone.drawn:
            bits = self._bits(self.shown.drawn[value])
            drawn[value] = algebra.chosen(drawn[value], bits)
        constants = [
            {v: constant_value(algebra, *known) for v, known in side.items()}
            for side in shaped.constants
        ]
        given = {value: drawn[value] for value in stage.reference.inputs if value in drawn}
        reference = run_batch(
            stage.reference,
            algebra,
            {**constants[0], **given},
            shaped.attributes[0],
            side=SIDES[0],
            evaluator=partial(self._evaluated, 0),
        )
        with algebra.free_numbers():
            held = derive_all(algebra, drawn, shaped.derived)
        free = {
            number: algebra.fresh(key, shape, stage.parallel.steps[number].count)
            for number, (key, shape) in shaped.free.items()
        }
        parallel = run_batch(
            stage.parallel,
            algebra,
            {**constants[1], **held},
            shaped.attributes[1],
            side=SIDES[1],
            evaluator=partial(self._evaluated, 1),
            free=free,
        )
        return reference, parallel

    def _evaluated(
        self,
        number: int,
        algebra: ChoiceAlgebra,
        kind: str,
        given: Sequence[Value],
        attributes: Mapping[str, Any],
        wanted: Sequence[bool] | None,
    ) -> list[Value]:
        """Return the results of a step of a side, with the choices that decide about them."""
        batch = self._batch(number)
        place = step_at(algebra.site, SIDES[number])
        step = batch.steps[0 if place is None else place]
        operands = self._as_same_arguments(number, step, given, attributes)
        results = list(evaluate(algebra, kind, operands, attributes, wanted))
        known = max(map(degree, given), default=0)
        decided = None
        for at, output in enumerate(step.outputs):
            if output is not None and output in self.cone.sides[number].decided:
                results[at] = decided = self._chosen(number, output, step, results[at], known)
        for at, output in enumerate(step.outputs):
            if output is None or output in self.cone.sides[number].decided:
                continue
            if decided is not None and _same_shape(results[at], decided):
                # A number that was chosen by its place is chosen with it.
                results[at] = replace(results[at], special=decided.special)
            elif self.cone.sides[number].makes(step):
                results[at] = self._of_integers(number, output, step, results[at], known)
            if known <= MOST_DEGREE < degree(results[at]):
                self._name(number, step)
        for output in step.outputs:
            if output is not None:
                self._rows[number, output] = self._rows.get((number, output), 0) + step.count
        return results

    def _as_same_arguments(
        self, number: int, step: Step, given: Sequence[Value], attributes: Mapping[str, Any]
    ) -> list[Value]:
        """Return operands of a step; divisors that both sides have are choices of their own.

        So are arguments of logarithms and roots.
        """
        found = list(given)
        divides = has_trait(step.kind, Trait.DIVIDES, attributes)
        if not divides and not has_trait(step.kind, Trait.DEFINED_FOR_POSITIVE, attributes):
            return found
        for at, operand in enumerate(step.inputs):
            if (divides and not at) or not isinstance(operand, Argument):
                continue
            if not self._is_same(number, operand.value).all():
                continue
            degrees = degrees_of(found[at])
            if found[at].special is not None and (degrees <= 1).all():
                bits = self._algebra.bits(found[at])
                found[at] = self._algebra.chosen_anew(found[at], degrees == 1, bits)
        return found

    def _is_same(self, number: int, value: int) -> Bools:
        """Return which rows of a discrete value both sides make by the same steps."""
        if value not in {*self.cone.sides[number].made, *self.cone.sides[number].decided}:
            return np.zeros(1, dtype=np.bool_)
        return self.shown.alike[number].values.get(value, np.zeros(1, dtype=np.bool_))

    def _chosen(self, number: int, output: int, step: Step, result: Value, known: int) -> Value:
        """Return what real numbers decided, each element of it a choice, unless all is proven.

        What several choices decide through real numbers is not shown if these are not.
        """
        own = self._of_step(number, output, step, self.shown.decided[number][output])
        if output in self.masks[number] and not known:
            return result
        lacking = self._of_step(number, output, step, self.shown.lacking[number][output][None])[0]
        result = self._algebra.chosen(result, self._bits(own), lacking)
        if known <= MOST_DEGREE:
            return result
        self._name(number, step)
        return self._algebra.known_as(result, degrees_of(result) > 0, ENDLESS)

    def _of_integers(
        self, number: int, output: int, step: Step, result: Value, known: int
    ) -> Value:
        """Return what is made of integers alone.

        A condition of several choices is a choice again if both sides make it by the same steps,
        and a number of them has degree 1. More factors than one are believed on that ground alone,
        and so is a function of one choice that lacked some outcome.
        """
        if result.special is None:
            return result
        degrees = degrees_of(result)
        as_seen, by_steps = (
            np.broadcast_to(aligned(rows[None, None], result.rank), degrees.shape)
            for rows in self._same_steps(number, step)
        )
        if self._places[number][id(step)] in self.shown.settled[number]:
            as_seen = np.ones_like(as_seen)
        seen = self.shown.values[number][output].data[0]
        bits = self._bits(self._of_step(number, output, step, seen))
        anew = as_seen & (degrees >= ENDLESS) & (known < ENDLESS)
        lacks = self._algebra.lacks(result)
        apart = ~by_steps & ((degrees > 1) | lacks) & ~anew
        if apart.any():
            self._name(number, step)
        result = self._algebra.known_as(result, apart, ENDLESS)
        if result.kind == "bool":
            return self._algebra.chosen_anew(result, anew, bits)
        return self._algebra.known_as(result, anew, 1)  # draws do not show all that it may be

    def _name(self, number: int, step: Step) -> None:
        """Note a step whose result is believed on no ground."""
        if not self.first:
            self.first = f"{self._described(number, step)}, which is made of them"

    def _described(self, number: int, step: Step) -> str:
        operator = self._batch(number).graph.nodes[step.node].operator
        return f"{SIDES[number]}{step.kind} {operator!r}"

    def _batch(self, number: int) -> Batch:
        stage = self.cone.shaped.stage
        return stage.parallel if number else stage.reference

    def _of_step(self, number: int, output: int, step: Step, data: Data) -> Data:
        """Return what a step added to the rows of a value, from (draws, rows or 1, *shape)."""
        first = self._rows.get((number, output), 0)
        return data if data.shape[1] == 1 else data[:, first : first + step.count]

    def _same_steps(self, number: int, step: Step) -> tuple[Bools, Bools]:
        """Return which rows of a step the other side makes by the same step.

        That is from what was the same in draws, and from what is made by the same steps all the
        way.
        """
        place = self._places[number][id(step)]
        return self.shown.alike[number].steps[place], self.shown.strictly[number].steps[place]

    def _bits(self, data: Data) -> NDArray[np.float64]:
        """Return the bits of the rarest number of each element, shape (instances, *shape)."""
        return rarity(data.reshape(len(data), -1)).reshape(data.shape[1:])


def rarity(data: Data) -> NDArray[np.float64]:
    """Return the bits of the rarest number of every element in draws, from (draws, elements).

    They are log2 of the inverse of its share.
    """
    draws = len(data)
    ordered = np.sort(data, axis=0)
    starts = np.ones(data.shape, dtype=np.bool_)
    starts[1:] = ordered[1:] != ordered[:-1]
    places = np.where(starts, np.arange(draws)[:, None], 0)
    begun = np.maximum.accumulate(places, axis=0)
    ends = np.ones(data.shape, dtype=np.bool_)
    ends[:-1] = starts[1:]
    counts = np.where(ends, np.arange(draws)[:, None] - begun + 1, draws)
    found: NDArray[np.float64] = np.log2(draws / counts.min(axis=0))
    return found


def _same_shape(a: Value, b: Value) -> bool:
    return bool(a.data.shape[2:] == b.data.shape[2:])
