"""How few terms of a product with a matrix of zeros and ones are not 0, as draws show.

Tokens are put into slots by such matrices. Each row has a single one, and so each slot holds one
token. Its numerator and denominator are those of one token, not of all together. This is a fact
about the integers of a draw, which are given when its error is bounded.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
>>> from pitcheck.algebra.residues.chains import find_chain
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shaped_stage import shape_reduced
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> shaped = shape_reduced(Problem.of(plan, plan).whole_stage())
>>> few_terms(shaped, Evaluated(None, {}, {}, {}))
{}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pitcheck.algebra.value import LEADING, Value
from pitcheck.ops.registry import has_trait
from pitcheck.ops.traits import Trait
from pitcheck.stage.batch import Argument, Batch, Step
from pitcheck.stage.evaluate import Evaluated
from pitcheck.stage.shaped_stage import ShapedStage

FewTerms = Mapping[str, Mapping[int, int]]
"""By the site of a conversion, the most elements along each axis (counted from the end) that are
not 0.
"""


def few_terms(shaped: ShapedStage, evaluated: Evaluated) -> dict[str, dict[int, int]]:
    """Return how many elements are not 0, of all numbers made of integers or booleans.

    They are counted over all draws of an evaluation.
    """
    sides = (
        ("reference ", shaped.stage.reference, evaluated.reference),
        ("parallel ", shaped.stage.parallel, evaluated.parallel),
    )
    return {
        f"{side}{number} {step.kind}": few
        for side, batch, values in sides
        for number, step, value in _converted(batch, values)
        if (few := _most_along_axes(value))
    }


def more_terms(known: FewTerms, found: FewTerms) -> dict[str, dict[int, int]]:
    """Return the most terms of both; of sites and axes that one does not have nothing is known."""
    return {
        site: {
            axis: max(few, known[site][axis]) for axis, few in own.items() if axis in known[site]
        }
        for site, own in found.items()
        if site in known
    }


def _converted(batch: Batch, values: Mapping[int, Any]) -> Iterator[tuple[int, Step, Value]]:
    """Yield the steps of a side that make numbers of integers or booleans, with what they read."""
    for number, step in enumerate(batch.steps):
        if not has_trait(step.kind, Trait.CONVERTS, step.attributes):
            continue
        operand = step.inputs[0]
        value = values.get(operand.value) if isinstance(operand, Argument) else None
        if isinstance(value, Value) and value.kind != "field":
            yield number, step, value


def _most_along_axes(value: Value) -> dict[int, int]:
    """Return the most elements that are not 0 along each axis; only axes with fewer than all."""
    given = value.data != 0
    found = {}
    for axis in range(LEADING, given.ndim):
        most = int(given.sum(axis=axis).max(initial=0))
        if most < given.shape[axis]:
            found[axis - given.ndim] = most
    return found
