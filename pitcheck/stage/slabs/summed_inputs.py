"""Inputs of which a batch computes nothing but a sum of their elements, place by place.

Such an input need not be held whole: the sum over it is the sum of those over its *slabs*, runs of
places along its first dimension. Between the input and the sum stand steps of which an element of
the result depends on one element of the input, and on numbers. Nothing else reads any of them.

>>> slabs_of((5000, 1024))
[(0, 4096), (4096, 5000)]
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np

from pitcheck.ops.axis_attributes import reduced_dimensions
from pitcheck.ops.registry import has_trait
from pitcheck.ops.traits import Trait
from pitcheck.stage.batch import Argument, Batch, Step, StepOperand
from pitcheck.stage.reductions.sums import is_sum
from pitcheck.stage.run_batch import touched

SLAB = 1 << 22
"""The elements of a slab. Inputs of more are evaluated in slabs: a GPU is busy with so many, and
two draws of one take a quarter of a gigabyte.
"""
ALIGNED = 4
"""The number of places of which slabs are multiples, since words are drawn by fours."""


@dataclass(frozen=True)
class SummedInput:
    """An input, and the numbers of the steps from it to the sum, which is the last of them.

    ``result``: the value that the sum is written to.
    """

    value: int
    steps: tuple[int, ...]
    result: int

    @property
    def sum(self) -> int:
        """Return the number of the step that sums."""
        return self.steps[-1]


def is_large(shape: tuple[int, ...]) -> bool:
    """Return True if a tensor is taken in slabs where that is possible."""
    return prod(shape) > SLAB


def slabs_of(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the first place of every slab of a tensor, and the one behind its last."""
    places = SLAB // max(prod(shape[1:]), 1)
    places = max(places - places % ALIGNED, ALIGNED)
    return [(start, min(start + places, shape[0])) for start in range(0, shape[0], places)]


def largest_slab(shape: tuple[int, ...]) -> int:
    """Return the number of elements of the largest slab of a tensor."""
    start, stop = slabs_of(shape)[0]
    return (stop - start) * prod(shape[1:])


def summed_inputs(
    batch: Batch, inputs: Mapping[int, int], kept: Collection[int]
) -> tuple[SummedInput, ...]:
    """Return those of some inputs that are only summed.

    ``inputs``: the number of dimensions of each. ``kept``: the values that are needed afterwards.
    """
    if not inputs:
        return ()
    steps: dict[int, list[int]] = {}
    for number, step in enumerate(batch.steps):
        for value in touched(step):
            steps.setdefault(value, []).append(number)
    found = (_summed(batch, value, rank, steps, kept) for value, rank in inputs.items())
    return tuple(each for each in found if each is not None)


def _summed(
    batch: Batch,
    value: int,
    rank: int,
    steps: Mapping[int, list[int]],
    kept: Collection[int],
) -> SummedInput | None:
    """Return the steps from an input to its sum, or None if it is not only summed."""
    passed: list[int] = []
    current = value
    while current not in kept:
        readers = [number for number in steps.get(current, ()) if number not in passed]
        if len(readers) != 1:
            return None
        step = batch.steps[readers[0]]
        result = _only_result(batch, step, current)
        if result is None:
            return None
        passed.append(readers[0])
        if is_sum(step):
            over = reduced_dimensions(step.attributes, rank)
            return SummedInput(value, tuple(passed), result) if 0 in over else None
        if not _keeps_places(step) or result in batch.inputs:
            return None
        current = result
    return None


def _keeps_places(step: Step) -> bool:
    """Return True if a slab of the result is a product of that slab of the operand.

    Other functions may be decided, or tabulated, for a whole tensor.
    """

    def has(trait: Trait) -> bool:
        return has_trait(step.kind, trait, step.attributes)

    return has(Trait.PLACE_BY_PLACE) and (has(Trait.MULTILINEAR) or has(Trait.SQUARES))


def _only_result(batch: Batch, step: Step, value: int) -> int | None:
    """Return the result of a step that is computed of a value, row by row, and of numbers.

    Return None for any other step.
    """
    rows = np.arange(batch.counts[value])

    def fits(operand: StepOperand) -> bool:
        if isinstance(operand, Argument):
            return operand.value == value and np.array_equal(operand.rows, rows)
        return isinstance(operand, Fraction)

    if len(step.outputs) != 1 or step.unread or not all(map(fits, step.inputs)):
        return None
    (result,) = step.outputs
    whole = result is not None and batch.counts[result] == step.count == len(rows)
    return result if whole else None
