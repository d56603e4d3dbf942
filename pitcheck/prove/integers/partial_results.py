"""Choices for some outcomes of which there is no result.

Several choices may make a divisor 0, or leave nothing but -inf for a softmax, in few draws or in
none.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("log", [(2, 3)], (2, 3))
>>> batch = Problem.of(plan, plan).whole_stage().reference
>>> partial_operands(batch, [{}], {0}), partial_operands(batch, [{}], ())
({0}, set())
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pitcheck.ops.registry import has_trait
from pitcheck.ops.traits import Trait
from pitcheck.stage.batch import Batch, Step, values_of


def partial_operands(
    batch: Batch,
    attributes: Sequence[Mapping[str, Any]],
    several: Collection[int],
) -> set[int]:
    """Return the divisors, and the arguments of logarithms and roots, that several choices make."""
    found: set[int] = set()
    for step, own in zip(batch.steps, attributes, strict=True):
        divides = has_trait(step.kind, Trait.DIVIDES, own)
        if divides or has_trait(step.kind, Trait.DEFINED_FOR_POSITIVE, own):
            operands = step.inputs[1:] if divides else step.inputs
            found.update(each.value for each in values_of(operands) if each.value in several)
    return found


def filling(batch: Batch, chosen: Collection[int]) -> set[int]:
    """Return those of some values by which infinity is filled in.

    Of nothing but -inf there is no softmax.
    """
    return {
        argument.value
        for step in batch.steps
        if _has_infinity(step)
        for argument in step.looked_into
        if argument.value in chosen
    }


def _has_infinity(step: Step) -> bool:
    return any(isinstance(each, float) and math.isinf(each) for each in step.inputs)
