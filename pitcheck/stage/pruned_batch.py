"""Batches without the rows that their targets do not need.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> batch = Problem.of(plan, plan).whole_stage().parallel
>>> begins(batch), len(pruned(batch, 1).steps), len(pruned(batch, 0).steps)
([{1: 0}], 1, 0)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pitcheck.graph.grids import Codes
from pitcheck.stage.batch import Argument, Batch, StepOperand

Rows = NDArray[np.bool_]


def pruned(batch: Batch, *targets: int) -> Batch:
    """Return ``batch`` with those rows alone that all rows of the values ``targets`` need."""
    return pruned_to(batch, {target: np.arange(batch.count(target)) for target in targets})


def pruned_to(batch: Batch, targets: Mapping[int, Codes]) -> Batch:
    """Return ``batch`` with those rows alone that some rows of values need.

    ``targets`` maps a value to the numbers of these rows.
    """
    first = begins(batch)
    needed: dict[int, Rows] = {
        target: np.zeros(batch.count(target), dtype=np.bool_) for target in targets
    }
    for target, compared in targets.items():
        needed[target][compared] = True
    kept: dict[int, Codes] = {}
    for number in reversed(range(len(batch.steps))):
        step = batch.steps[number]
        wanted = np.zeros(step.count, dtype=np.bool_)
        for output, begin in first[number].items():
            if output in needed:
                wanted |= needed[output][begin : begin + step.count]
        if wanted.any():
            kept[number] = np.flatnonzero(wanted)
            for argument in step.arguments:
                rows = needed.setdefault(
                    argument.value, np.zeros(batch.count(argument.value), dtype=np.bool_)
                )
                rows[argument.rows[kept[number]].reshape(-1)] = True
    return _rebuilt(batch, first, needed, kept)


def begins(batch: Batch) -> list[dict[int, int]]:
    """Return for every step the first row that it writes of each of its outputs."""
    filled = {value: len(parts) for value, parts in batch.inputs.items()}
    result = []
    for step in batch.steps:
        outputs = [output for output in step.outputs if output is not None]
        result.append({output: filled.get(output, 0) for output in outputs})
        filled.update((output, filled.get(output, 0) + step.count) for output in outputs)
    return result


def _rebuilt(
    batch: Batch, first: list[dict[int, int]], needed: dict[int, Rows], kept: dict[int, Codes]
) -> Batch:
    """Return the batch with the kept rows of its steps."""
    places: dict[int, Codes] = {}
    counts: dict[int, int] = {}
    inputs: dict[int, Codes] = {}

    def enter(value: int, rows: Codes) -> None:
        place = places.setdefault(value, np.full(batch.count(value), -1, dtype=np.int64))
        place[rows] = counts.get(value, 0) + np.arange(len(rows))
        counts[value] = counts.get(value, 0) + len(rows)

    for value, parts in batch.inputs.items():
        rows = (
            np.flatnonzero(needed[value][: len(parts)])
            if value in needed
            else np.zeros(0, dtype=np.int64)
        )
        if len(rows):
            inputs[value] = parts[rows]
            enter(value, rows)
    steps = []
    for number, chosen in sorted(kept.items()):
        step = batch.steps[number]
        operands = tuple(_moved(operand, chosen, places) for operand in step.inputs)
        steps.append(replace(step, inputs=operands, count=len(chosen)))
        for output, begin in first[number].items():
            enter(output, begin + chosen)
    grids = {
        value: np.where(grid >= 0, places[value][grid], -1)
        for value, grid in batch.grids.items()
        if value in places
    }
    return replace(batch, inputs=inputs, steps=steps, grids=grids, counts=counts)


def _moved(operand: StepOperand, chosen: Codes, places: dict[int, Codes]) -> StepOperand:
    """Return an operand at the chosen rows of its step, at the places of what is kept."""
    if isinstance(operand, Argument):
        return Argument(operand.value, places[operand.value][operand.rows[chosen]])
    if isinstance(operand, tuple):
        return tuple(Argument(a.value, places[a.value][a.rows[chosen]]) for a in operand)
    return operand
