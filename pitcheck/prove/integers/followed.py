"""Choices followed through all steps of a stage, to what is compared.

Draws show a polynomial in the outcomes of choices if few choices meet in each of its terms. Other
functions of several choices may be otherwise where no draw comes.

>>> rarity(np.array([[1, 0], [0, 0], [0, 0], [0, 0]])).tolist()
[2.0, 0.0]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.structure import aligned
from pitcheck.algebra.value import Value
from pitcheck.ops.registry import evaluate
from pitcheck.prove.integers.choices import ENDLESS, ChoiceAlgebra, degree, degrees_of
from pitcheck.prove.integers.cone import SIDES, Cone
from pitcheck.prove.integers.shared import Shared
from pitcheck.stage.batch import Batch, Step
from pitcheck.stage.drawn_inputs import draw
from pitcheck.stage.evaluate import evaluate_stage
from pitcheck.stage.run_batch import step_at

MOST_DEGREE = 2
"""The most choices that meet in a term whose outcomes draws are believed to show."""
DRAWS = 4
"""The draws in which the stage is followed: they tell what is drawn from what is fixed."""
SEEN_LOG2 = 3.0
"""The log2 of the times that the rarest joint outcome is among the draws of a stage, on average."""

Data = NDArray[Any]
"""Numbers of shape (draws, instances, *shape)."""
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Shown:
    """The evidence that draws have given about a stage.

    ``drawn`` are the discrete inputs. ``decided`` is, for either side, what real numbers decided,
    and ``lacking`` says which of its elements lacked some number that others had. ``strictly`` has
    the steps that both sides make of the same values. ``draws`` is the number of draws. All but
    draws have the shape (instances, *shape).
    """

    drawn: Mapping[int, Data]
    decided: tuple[Mapping[int, Data], Mapping[int, Data]]
    lacking: tuple[Mapping[int, Bools], Mapping[int, Bools]]
    strictly: Sequence[Shared]
    draws: int

    @property
    def most_bits(self) -> float:
        """Return the bits of the rarest joint outcome that is believed to be among the draws."""
        return math.log2(max(self.draws, 1)) - SEEN_LOG2


@dataclass
class Followed:
    """The choices that decide about the values of a stage, along one run of all its steps.

    ``masks`` are outcomes of comparisons on either side that are proven for all inputs together.
    """

    cone: Cone
    masks: tuple[set[int], set[int]]
    shown: Shown
    seed: int
    _first: dict[int, str] = field(default_factory=dict)
    """The first step of either side whose result is believed on no ground, in words."""
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
        divides = [any(s.startswith(name) for s in self._algebra.divides) for name in SIDES]
        if divides[0] != divides[1]:
            return f"{SIDES[divides[1]]}results, of which there are none if a number of them is 0"
        for number in (1, 0):
            for target in stage.targets:
                value = target.cut.value if number else target.cut.reference
                found = values[number][value]
                degrees, bits = degrees_of(found), self._algebra.bits(found)
                if (degrees > MOST_DEGREE).any():
                    unnamed = f"{SIDES[number]}results, which many of them decide"
                    return self._first.get(number, unnamed)
                most = max(self.shown.most_bits, self._algebra.rarest_divided)
                if ((degrees > 1) & (bits > most)).any():
                    return f"{SIDES[number]}results, which need rare ones at once"
        return ""

    def _run(self) -> tuple[dict[int, Any], dict[int, Any]]:
        """Return all values of both sides."""
        shaped, algebra = self.cone.shaped, self._algebra
        drawn = {value: draw(algebra, fresh) for value, fresh in shaped.fresh.items()}
        for value in self.cone.drawn:
            bits = self._bits(self.shown.drawn[value])
            drawn[value] = algebra.chosen(drawn[value], bits)
        evaluators = partial(self._evaluated, 0), partial(self._evaluated, 1)
        with algebra.free_numbers():  # all others are drawn: integers made now are padding
            found = evaluate_stage(shaped, algebra, drawn, evaluators=evaluators)
        return found.reference, found.parallel

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
        results = list(evaluate(algebra, kind, given, attributes, wanted))
        known = max(map(degree, given), default=0)
        decided = None
        for at, output in enumerate(step.outputs):
            if output is not None and output in self.cone.sides[number].decided:
                results[at] = decided = self._chosen(number, output, step, results[at])
        for at, output in enumerate(step.outputs):
            if output is None or output in self.cone.sides[number].decided:
                continue
            if decided is not None and _same_shape(results[at], decided):
                # A number that was chosen by its place is chosen with it.
                results[at] = replace(results[at], special=decided.special)
            elif self.cone.sides[number].makes(step):
                results[at] = self._of_integers(number, step, results[at])
            if known <= MOST_DEGREE < degree(results[at]):
                self._name(number, step)
        for output in step.outputs:
            if output is not None:
                self._rows[number, output] = self._rows.get((number, output), 0) + step.count
        return results

    def _chosen(self, number: int, output: int, step: Step, result: Value) -> Value:
        """Return what real numbers decided, each element of it a choice, unless all is proven.

        Elements that several choices decide through real numbers stay as they are.
        """
        if output in self.masks[number]:
            return result
        own = self._of_step(number, output, step, self.shown.decided[number][output])
        lacking = self._of_step(number, output, step, self.shown.lacking[number][output][None])[0]
        chosen = self._algebra.chosen(result, self._bits(own), lacking)
        if result.special is None:
            return chosen
        kept = np.where(degrees_of(result) > 1, result.special, chosen.special)
        return replace(chosen, special=kept)

    def _of_integers(self, number: int, step: Step, result: Value) -> Value:
        """Return what is made of integers alone.

        Products of choices, and functions of one that lacked some outcome, are believed only if
        both sides make them by the same steps.
        """
        if result.special is None:
            return result
        degrees = degrees_of(result)
        rows = self.shown.strictly[number].steps[self._places[number][id(step)]]
        same = np.broadcast_to(aligned(rows[None, None], result.rank), degrees.shape)
        apart = ~same & ((degrees > 1) | self._algebra.lacks(result))
        if apart.any():
            self._name(number, step)
        return self._algebra.known_as(result, apart, ENDLESS)

    def _name(self, number: int, step: Step) -> None:
        """Note a step whose result is believed on no ground."""
        operator = self._batch(number).graph.nodes[step.node].operator
        said = f"{SIDES[number]}{step.kind} {operator!r}, which is made of them"
        self._first.setdefault(number, said)

    def _batch(self, number: int) -> Batch:
        stage = self.cone.shaped.stage
        return stage.parallel if number else stage.reference

    def _of_step(self, number: int, output: int, step: Step, data: Data) -> Data:
        """Return what a step added to the rows of a value, from (draws, rows or 1, *shape)."""
        first = self._rows.get((number, output), 0)
        return data if data.shape[1] == 1 else data[:, first : first + step.count]

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
