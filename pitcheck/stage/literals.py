"""The numbers that the steps of a batch name, at which decisions change their outcome.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("clamp", [(2, 3)], (2, 3), min=0, max=6)
>>> sorted(numbers(Problem.of(plan, plan).whole_stage().parallel))
[0.0, 6.0]
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from math import isfinite
from typing import Any

from pitcheck.base.numbers import Root, parse_number
from pitcheck.errors import PlanError
from pitcheck.graph.graph import Graph
from pitcheck.ops.registry import kinds_with, operator_kind
from pitcheck.ops.traits import Trait
from pitcheck.stage.batch import Argument, Batch, Step

FEW = 4
"""The count of integers up to which their sums and differences are at issue, too."""
_LARGEST = 1 << 1000
"""The size beyond which numbers have no float64, or their products have none."""
MARKING = frozenset({"value", "ignore_index", "padding_idx", "min", "max"})
"""The attributes whose number an integer may be compared with."""


def numbers(batch: Batch) -> set[float]:
    """Return all finite numbers that a batch names: operands, attributes and constant tensors."""
    found: set[float] = set()
    for step in batch.steps:
        found.update(float(n) for _, n in _operands(step))
        found.update(float(n) for _, n in _attributes(step))
    found.update(float(n) for n in _constants(batch))
    return found


def names_infinity(batch: Batch) -> bool:
    """Return True if a batch names infinity or NaN: operands, attributes and constant tensors."""
    found = [o for step in batch.steps for o in step.inputs if not isinstance(o, (Argument, tuple))]
    found += [
        value
        for step in batch.steps
        for name, value in step.attributes.items()
        if operator_kind(step.kind).attributes.get(name) == "literal"
    ]
    found += [_constant(batch.graph, value) for value in batch.inputs]
    return any(
        one in ("inf", "-inf", "nan") or (isinstance(one, float) and not isfinite(one))
        for one in found
    )


def integers_named(step: Step) -> frozenset[int]:
    """Return the integers that a step names as operands or attributes."""
    named = (n for found in (_operands(step), _attributes(step)) for _, n in found)
    return frozenset(int(n) for n in named if n.denominator == 1)


def integers_at_issue(batch: Batch) -> set[int]:
    """Return the integers at which a decision of a step may change.

    They are those it is compared with, and their neighbours beyond the border. Of up to ``FEW``
    numbers these are also the sums and differences: an integer may be moved by one before it is
    compared with another.
    """
    below, above = kinds_with(Trait.CHANGES_BELOW), kinds_with(Trait.CHANGES_ABOVE)
    found = {int(n) for n in _constants(batch) if n.denominator == 1}
    for step in batch.steps:
        found.update(
            int(n) for name, n in _attributes(step) if name in MARKING and n.denominator == 1
        )
        for place, n in _operands(step):
            if n.denominator == 1:
                found.add(int(n))
                kinds = (below, above) if place else (above, below)
                found.update(
                    [int(n) - 1] * (step.kind in kinds[0]) + [int(n) + 1] * (step.kind in kinds[1])
                )
    if len(found) <= FEW:
        found |= {m for a, b in combinations(found, 2) for m in (a + b, a - b, b - a)}
    return found


def _operands(step: Step) -> Iterator[tuple[int, Fraction]]:
    """Yield (place, number) of a step's literal operands."""
    for place, operand in enumerate(step.inputs):
        if not isinstance(operand, (Argument, tuple)):
            yield from ((place, n) for n in _exact(operand))


def _attributes(step: Step) -> Iterator[tuple[str, Fraction]]:
    """Yield (name, number) of a step's literal attributes."""
    declared = operator_kind(step.kind).attributes
    for name, value in step.attributes.items():
        if declared.get(name) == "literal" and isinstance(value, (int, float, str, Fraction, Root)):
            yield from ((name, n) for n in _exact(value))


def _constants(batch: Batch) -> Iterator[Fraction]:
    """Yield the numbers of the constant tensors among a batch's inputs."""
    for value in batch.inputs:
        given = _constant(batch.graph, value)
        if given is not None:
            yield from _exact(given)


def _constant(graph: Graph, value: int) -> Any:
    """Return the value of a constant tensor, or None."""
    info = graph.values[value]
    return None if info.writers else info.tensor.value


def _exact(value: Any) -> list[Fraction]:
    """Return a number as a rational; nothing if it is not finite as a float64.

    A root becomes the rational nearest to it.
    """
    try:
        number = value if isinstance(value, (Fraction, Root)) else parse_number(value)
    except PlanError:
        return []
    if isinstance(number, Root):
        return [Fraction(float(number))]
    return [number] if isinstance(number, Fraction) and abs(number) < _LARGEST else []
