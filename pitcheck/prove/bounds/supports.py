"""Supports of numbers made of integers or booleans: the elements that are not 0 in some draws.

Tokens are put into slots by a matrix of zeros and ones. Each of its rows has a single one, so each
slot holds one token, and a sum over all tokens has the numerator and denominator of one of them.
The integers of a draw are given when its error is bounded, so the bound may use that.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shaped_stage import shape_reduced
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> shaped = shape_reduced(Problem.of(plan, plan).whole_stage())
>>> supports(shaped, Evaluated(None, {}, {}, {}))
{}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pitcheck.algebra.backend import to_host
from pitcheck.algebra.bound.degree_values import Support
from pitcheck.algebra.value import Value
from pitcheck.ops.registry import has_trait
from pitcheck.ops.traits import Trait
from pitcheck.stage.batch import Argument, Batch, Step
from pitcheck.stage.evaluate import Evaluated
from pitcheck.stage.shaped_stage import ShapedStage


def supports(shaped: ShapedStage, evaluated: Evaluated) -> dict[str, Support]:
    """Return the support of all numbers made of integers or booleans, by the sites that make them.

    Numbers of which none is 0 are left out.
    """
    sides = (
        ("reference ", shaped.stage.reference, evaluated.reference),
        ("parallel ", shaped.stage.parallel, evaluated.parallel),
    )
    return {
        f"{side}{site}": support
        for side, batch, values in sides
        for site, support in _converted(evaluated.algebra, batch, values)
        if not support.all()
    }


def _converted(
    algebra: Any, batch: Batch, values: Mapping[int, Any]
) -> Iterator[tuple[str, Support]]:
    """Yield the steps of a side that make numbers of integers or booleans, with their supports."""
    for number, step, operand in _converting(batch):
        value = values.get(operand.value)
        if not isinstance(value, Value) or value.kind == "field" or operand.rows.ndim != 1:
            continue
        given = to_host(algebra.xp, value.data[0] != 0)
        yield (
            f"{number} {step.kind}",
            given if given.shape[1] == 1 else given[:, operand.rows],
        )


def converted_values(batch: Batch) -> set[int]:
    """Return the integers and booleans of a side that become numbers."""
    values = batch.graph.values
    return {
        operand.value
        for _, _, operand in _converting(batch)
        if values[operand.value].kind != "field"
    }


def _converting(batch: Batch) -> Iterator[tuple[int, Step, Argument]]:
    """Yield the steps of a side that convert, with their number and what they convert."""
    for number, step in enumerate(batch.steps):
        operand = step.inputs[0] if step.inputs else None
        if isinstance(operand, Argument) and has_trait(step.kind, Trait.CONVERTS, step.attributes):
            yield number, step, operand
