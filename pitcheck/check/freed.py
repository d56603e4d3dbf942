"""Steps whose result does not matter: a stage that holds whatever they give needs none of their outcomes.

The shift that softmax subtracts cancels, whatever it is. Where it is a maximum that residues do not decide both ways (of numbers that were scaled before, say),
the stage is proven with any number in its place, which is more than was asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from pitcheck.stages.batch import Argument, Step, StepOperand
from pitcheck.stages.pair import ShapedStage
from pitcheck.stages.run import step_at
from pitcheck.stages.shapes import SymbolicPair

PARALLEL = "parallel "


def undecided(shaped: ShapedStage, site: str) -> int | None:
    """The node of the parallel step at which something is decided, if its only result is a floating-point tensor; else None."""
    number = step_at(site, PARALLEL)
    return shaped.stage.parallel.steps[number].node if number is not None and _can_be_free(shaped, shaped.stage.parallel.steps[number]) else None


def with_free(shaped: ShapedStage, symbolic: SymbolicPair, nodes: Collection[int]) -> ShapedStage:
    """The stage with numbers drawn in the place of what the steps of these nodes give, and all steps that compute the same: these give the same numbers."""
    steps = shaped.stage.parallel.steps
    forms = [_form(step, attributes) for step, attributes in zip(steps, shaped.attributes[1], strict=True)]
    wanted = {form for step, form in zip(steps, forms, strict=True) if step.node in nodes}
    free = {}
    for number, (step, form) in enumerate(zip(steps, forms, strict=True)):
        if form in wanted and _can_be_free(shaped, step):
            free[number] = (f"free/{forms.index(form)}", symbolic.parallel.shape(_result(step), shaped.sizes))
    return replace(shaped, free=free)


def _can_be_free(shaped: ShapedStage, step: Step) -> bool:
    return len(step.outputs) == 1 and step.outputs[0] is not None and shaped.stage.parallel.graph.values[step.outputs[0]].kind == "field"


def _result(step: Step) -> int:
    return next(output for output in step.outputs if output is not None)


def _form(step: Step, attributes: Mapping[str, Any]) -> tuple[object, ...]:
    """What a step computes: its operator, and the rows that it reads. Steps of one form give the same."""
    return step.kind, repr(sorted(attributes.items())), step.count, tuple(_read(operand) for operand in step.inputs)


def _read(operand: StepOperand) -> object:
    if isinstance(operand, Argument):
        return operand.value, operand.rows.shape, operand.rows.tobytes()
    return tuple(_read(member) for member in operand) if isinstance(operand, tuple) else repr(operand)
