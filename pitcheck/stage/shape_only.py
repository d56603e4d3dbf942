"""Steps of whose results the shape alone matters.

An example is a loss of which nothing but the gradient is asked for. What such steps mix is not
mixed in any result.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> shape_only(Problem.of(plan, plan).whole_stage().parallel, kept={1})
frozenset()
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pitcheck.ops.axis_templates import Templates
from pitcheck.stage.batch import Batch
from pitcheck.stage.run_batch import Evaluator


def shape_only(batch: Batch, kept: Collection[int]) -> frozenset[int]:
    """Return the numbers of the steps of whose results, directly or not, nobody reads an element.

    ``kept`` are values that are read from outside.
    """
    looked, met = set(kept), set[int]()
    found = set()
    for number, step in reversed(list(enumerate(batch.steps))):
        outputs = {output for output in step.outputs if output is not None}
        # A value that no step reads at all is a result of the batch.
        if not outputs & looked and outputs <= met:
            found.add(number)
        else:
            looked.update(argument.value for argument in step.looked_into)
        met.update(argument.value for argument in step.arguments)
    return frozenset(found)


def describing(templates: Templates, batch: Batch, kept: Collection[int]) -> Evaluator:
    """Return an evaluator for one run on axes, in which such steps mix nothing."""
    numbers = iter(range(len(batch.steps)))
    described = shape_only(batch, kept)

    def run(
        algebra: Any,
        kind: str,
        inputs: Sequence[Any],
        attributes: Mapping[str, Any],
        wanted: Sequence[bool] | None,
    ) -> list[Any]:
        if next(numbers) not in described:
            return templates.run(algebra, kind, inputs, attributes, wanted)
        with algebra.system.described():
            return templates.run(algebra, kind, inputs, attributes, wanted)

    return run
