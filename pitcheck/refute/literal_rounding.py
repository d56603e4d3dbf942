"""Differences that the rounding of literals explains.

The text of a compiled program has 3 pi as 9.42477798, rounded to float32. Where the other side
multiplies by 3 and by 3.14159274, both differ in the eighth digit, and no program means that. So
both plans run again with every literal that is not whole moved by half a unit in the last place of
its dtype. A difference that moves about as far as it is large may be none.

A literal that both plans have moves by the same number in both. What it does to both alike leaves
their difference as it is, so that it excuses no mistake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import numpy as np

from pitcheck.base.numbers import Literal, parse_number
from pitcheck.claims.real_numbers import Floats
from pitcheck.errors import PitcheckError
from pitcheck.ops.registry import operator_kind
from pitcheck.refute.rounding_noise import finite_difference
from pitcheck.refute.whole_run import WholeRun
from pitcheck.stage.batch import Argument, Batch, Step
from pitcheck.stage.evaluate import Comparison, Keeping, compare_target, evaluate_stage
from pitcheck.stage.shaped_stage import ShapedStage

MOVES = 4
"""The runs with moved literals. Each moves every literal up or down at random."""
EXPLAINS = 4.0
"""The factor by which a difference may exceed the farthest of these moves."""
REACH = 1e-3
"""The relative difference above which no literal is taken for the reason."""
FLOOR = 1e-12
"""The share of the largest element below which a move is what float64 rounds."""
_DIGITS: Mapping[str, int] = MappingProxyType(
    {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
)
"""The binary digits of dtypes of literals that are moved."""


def explained(run: WholeRun, numbers: Sequence[int]) -> set[int]:
    """Return those of the outputs ``numbers`` whose differences the rounding of literals explains.

    An output counts if each element that differs is explained.
    """
    asked = [n for n in numbers if 0 < finite_difference(run.comparisons[n]) <= REACH]
    if not asked:
        return set()
    moves: dict[int, list[Floats]] = {n: [] for n in asked}
    for number in range(MOVES):
        moved = _moved_stage(run.shaped, number)
        if moved is None:
            return set()
        try:
            with np.errstate(all="ignore"):
                again = evaluate_stage(
                    moved,
                    run.evaluated.algebra,
                    run.evaluated.drawn,
                    keep=Keeping.targets(run.shaped),
                )
                for n in asked:
                    difference = _difference(compare_target(moved, again, n))
                    moves[n].append(np.abs(difference - _difference(run.comparisons[n])))
        except PitcheckError:  # an operator may take only some numbers
            return set()
    return {n for n in asked if _is_explained(run.comparisons[n], np.max(moves[n], axis=0))}


def _is_explained(comparison: Comparison, moved: Floats) -> bool:
    """Return True if every element that differs is moved about as far, and one is."""
    difference = np.abs(_difference(comparison))
    largest = max(
        float(np.max(np.abs(data), where=np.isfinite(data), initial=0.0))
        for data in (
            np.asarray(v.data, np.float64) for v in (comparison.actual, comparison.expected)
        )
    )
    looked_at = np.broadcast_to(comparison.judged[:1], difference.shape)
    differs = looked_at & ~(difference <= FLOOR * largest)
    return bool(differs.any()) and bool((difference <= EXPLAINS * moved)[differs].all())


def _difference(comparison: Comparison) -> Floats:
    """Return the difference of each element, shape (trials, rows, *shape)."""
    actual, expected = (
        np.asarray(v.data, dtype=np.float64)[0] for v in (comparison.actual, comparison.expected)
    )
    with np.errstate(invalid="ignore"):
        found: Floats = actual - expected
    return found


# --- moving
def _moved_stage(shaped: ShapedStage, number: int) -> ShapedStage | None:
    """Return a stage whose literals are moved; None if none of them is rounded."""
    moves = _Moves(number)
    sides = shaped.stage.reference, shaped.stage.parallel
    batches = [
        replace(side, steps=[moves.step(side, step) for step in side.steps]) for side in sides
    ]
    attributes = [
        [moves.attributes(side, step, given) for step, given in zip(side.steps, known, strict=True)]
        for side, known in zip(sides, shaped.attributes, strict=True)
    ]
    if not moves.made:
        return None
    stage = replace(shaped.stage, reference=batches[0], parallel=batches[1])
    return replace(shaped, stage=stage, attributes=(attributes[0], attributes[1]))


class _Moves:
    """The moves of literals in one run.

    Attributes:
        made: True if a literal was moved.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self.made = False

    def step(self, batch: Batch, step: Step) -> Step:
        """Return a step with its literal operands moved."""
        digits = _digits(batch, step)
        moved = (
            each if isinstance(each, (Argument, tuple)) else self._moved(each, digits)
            for each in step.inputs
        )
        return replace(step, inputs=tuple(moved))

    def attributes(self, batch: Batch, step: Step, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the attributes of a step with its literals moved."""
        declared, digits = operator_kind(step.kind).attributes, _digits(batch, step)
        if not digits:
            return given
        moved = {
            name: repr(float(self._moved(parse_number(value), digits)))
            for name, value in given.items()
            if declared.get(name) == "literal" and isinstance(value, str)
        }
        return {**given, **moved}

    def _moved(self, number: Literal, digits: int) -> Literal:
        """Return a literal at an end of the interval that rounds to it; whole ones stay."""
        whole = isinstance(number, Fraction) and number.denominator == 1
        if whole or not digits or isinstance(number, float):
            return number
        self.made = True
        code = blake2b(f"{self._number} {number}".encode(), digest_size=1).digest()[0]
        part = Fraction(1 if code & 1 else -1, 1 << digits)
        return Fraction(float(number)) * (1 + part)


def _digits(batch: Batch, step: Step) -> int:
    """Return the binary digits that literals of a step were rounded to; 0 if they were not."""
    if not batch.graph.rounded_literals:
        return 0
    values = [argument.value for argument in step.arguments]
    values += [output for output in step.outputs if output is not None]
    dtypes = (batch.graph.values[value].tensor.dtype for value in values)
    return max((_DIGITS.get(dtype, 0) for dtype in dtypes), default=0)
