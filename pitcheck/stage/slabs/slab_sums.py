"""Sums over inputs that are evaluated slab by slab: the same residues as of the whole inputs.

A sum modulo a prime is the sum of its parts' sums, so nothing is assumed.

>>> part_of((((0, 6),), ((2, 4),)), 4, 8)
(((0, 2),), ((2, 4),))
>>> part_of((((0, 4),), ((2, 4),)), 4, 8) is None
True
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pitcheck.graph.cuts import Box
from pitcheck.stage.batch import Argument, Batch, Step, StepOperand
from pitcheck.stage.drawn_inputs import scaled, take_box
from pitcheck.stage.inputs import Derived
from pitcheck.stage.run_batch import Evaluator, run_batch
from pitcheck.stage.slabs.summed_inputs import SummedInput, summed_inputs

Slab = tuple[int, int, Any]
"""The first place of a slab along the first dimension, the one behind its last, and its value."""


def can_be_taken(derived: Derived) -> bool:
    """Return True if every row of a parallel input is a part of the reference tensor, not empty.

    Terms of a sum and padding are not.
    """
    return all(terms == 1 for _, _, terms in derived.terms) and all(
        intervals and all(0 <= start < stop for start, stop in intervals)
        for box in derived.boxes
        for intervals in box
    )


def part_of(box: Box, start: int, stop: int) -> Box | None:
    """Return what a box has of a slab, counted from the slab's first place; None if nothing."""
    first = tuple(
        (max(begin, start) - start, min(end, stop) - start)
        for begin, end in box[0]
        if begin < stop and end > start
    )
    return (first, *box[1:]) if first else None


@dataclass(frozen=True)
class InSlabs:
    """An input of one side that can be had in slabs, and its number of dimensions.

    ``slabs`` yields those of the reference tensor. ``derived``: the rows that the parallel side has
    of it; None for the reference, which has all of it in one row.
    """

    value: int
    rank: int
    slabs: Callable[[], Iterable[Slab]]
    derived: Derived | None = None


def sums_in_slabs(
    batch: Batch,
    algebra: Any,
    attributes: Sequence[Mapping[str, Any]],
    evaluator: Evaluator,
    kept: Collection[int],
    inputs: Sequence[InSlabs],
) -> dict[int, Callable[[], Any] | None]:
    """Return the steps that are evaluated in slabs, each with what makes its result.

    That is None for the steps before a sum. ``inputs`` are those that can be had in slabs, ``kept``
    the values that are needed afterwards.
    """
    known = {each.value: each for each in inputs}
    ranks = {value: each.rank for value, each in known.items()}
    made: dict[int, Callable[[], Any] | None] = {}
    for summed in summed_inputs(batch, ranks, kept):
        sums = _SlabSums(batch, algebra, summed, attributes, evaluator)
        made |= dict.fromkeys(summed.steps)
        made[summed.sum] = partial(sums.of, known[summed.value])
    return made


class _SlabSums:
    """The steps of a batch from one input to its sum, evaluated for slabs of the input."""

    def __init__(
        self,
        batch: Batch,
        algebra: Any,
        summed: SummedInput,
        attributes: Sequence[Mapping[str, Any]],
        evaluator: Evaluator,
    ) -> None:
        self._algebra = algebra
        self._value = summed.value
        self._evaluator = evaluator
        self._attributes = [attributes[number] for number in summed.steps]
        steps = [_of_one_row(batch.steps[number]) for number in summed.steps]
        self._result = summed.result
        row = np.zeros(1, dtype=np.int64)
        self._batch = Batch(batch.graph, inputs={summed.value: row}, steps=steps)

    def of(self, given: InSlabs) -> Any:
        """Return the sums over all rows of an input."""
        if given.derived is None:
            return self._total([self._sum(slab) for _, _, slab in given.slabs()])
        return self._of_parts(given.derived, given.slabs())

    def _of_parts(self, derived: Derived, slabs: Iterable[Slab]) -> Any:
        """Return the sums over the rows of a parallel input, each a part of the reference's."""
        sums: list[list[Any]] = [[] for _ in derived.boxes]
        for start, stop, slab in slabs:
            for box, own in zip(derived.boxes, sums, strict=True):
                part = part_of(box, start, stop)
                if part is not None:
                    held = take_box(self._algebra, slab, part, derived.key)
                    own.append(self._sum(scaled(self._algebra, held, derived.scale)))
        totals = list(map(self._total, sums))
        rows = [totals[box] for box, _, _ in derived.terms]
        return rows[0] if len(rows) == 1 else self._algebra.join(rows)

    def _sum(self, slab: Any) -> Any:
        """Return the sum over a slab, or over a part of one."""
        found = run_batch(
            self._batch,
            self._algebra,
            {self._value: slab},
            self._attributes,
            evaluator=self._evaluator,
            keep=(self._result,),
        )
        return found[self._result]

    def _total(self, sums: Sequence[Any]) -> Any:
        """Return the sum of the sums of slabs: as one sum, which keeps its form in any algebra."""
        if len(sums) == 1:
            return sums[0]
        shape = self._algebra.shape(sums[0])
        stacked = [self._algebra.reshape(each, (1, *shape)) for each in sums]
        return self._algebra.sum(self._algebra.concatenate(stacked, 0), (0,))


def _of_one_row(step: Step) -> Step:
    """Return a step for one of its rows."""
    row = np.zeros(1, dtype=np.int64)

    def of_row(operand: StepOperand) -> StepOperand:
        return Argument(operand.value, row) if isinstance(operand, Argument) else operand

    return replace(step, inputs=tuple(map(of_row, step.inputs)), count=1)
