"""Steps whose result does not matter: a stage that holds whatever they give.

Such a stage needs none of their outcomes. The shift that softmax subtracts cancels, whatever it is.
If it is a maximum that residues do not decide both ways (of numbers that were scaled before), the
stage is proven with any number in its place: more than was asked for, wherever it has a value. But
c / c is 1 for any c that is drawn, and has no value where the step gives 0. So a step is freed only
if all that is computed from it is defined for all numbers: where it is divided by, or a logarithm
or a root is taken, what is read is made of exponentials, which are positive.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shaped_stage import shape_reduced
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> shaped = shape_reduced(Problem.of(plan, plan).whole_stage())
>>> list(with_free(shaped, [shaped.stage.parallel.steps[0].node]).free)
[0]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pitcheck.errors import UnsupportedError
from pitcheck.ops.registry import has_trait, operator_kind
from pitcheck.ops.traits import Trait
from pitcheck.stage.batch import Argument, Step, StepOperand
from pitcheck.stage.reductions.protocol import Context, Phase
from pitcheck.stage.run_batch import step_at
from pitcheck.stage.shaped_stage import ShapedStage

PARALLEL = "parallel "


class FreeVariables:
    """The replacement of what steps of the nodes ``free`` give by any numbers.

    Why a proof decides: what holds whatever a step gives holds for what it gives. A failure refutes
    nothing: the step may never give those numbers. It assumes that everything computed from the
    step has a value for all numbers, which is looked up.
    """

    name = "free variables"
    phase = Phase.STEPS
    refutes = False

    def apply(self, subject: ShapedStage, context: Context) -> ShapedStage | None:
        """Return the stage with drawn results; None if no step is to be freed.

        Raises:
            UnsupportedError: the claim would have no value.
        """
        return with_free(subject, context.free) if context.free else None


def undecided(shaped: ShapedStage, site: str) -> int | None:
    """Return the node of the parallel step at which a site decides something.

    Return None unless its only result is a floating-point tensor.
    """
    number = step_at(site, PARALLEL)
    step = None if number is None else shaped.stage.parallel.steps[number]
    return None if step is None or _free_result(shaped, step) is None else step.node


def with_free(shaped: ShapedStage, nodes: Collection[int]) -> ShapedStage:
    """Return the stage with numbers drawn in the place of what the steps of some nodes give.

    All steps that compute the same give the same numbers.
    """
    steps = shaped.stage.parallel.steps
    forms = [
        _form(step, attributes)
        for step, attributes in zip(steps, shaped.attributes[1], strict=True)
    ]
    wanted = {form for step, form in zip(steps, forms, strict=True) if step.node in nodes}
    if nodes and not _defined_for_all(shaped, [form in wanted for form in forms]):
        raise UnsupportedError(
            "what is computed from a step that is to be drawn is not defined for all numbers"
        )
    free = {}
    for number, (step, form) in enumerate(zip(steps, forms, strict=True)):
        result = _free_result(shaped, step)
        if form in wanted and result is not None:
            free[number] = (f"free/{forms.index(form)}", shaped.shapes[1][result])
    return replace(shaped, free=free)


def _defined_for_all(shaped: ShapedStage, freed: Sequence[bool]) -> bool:
    """Return True if every value downstream of the freed steps is floating-point and defined.

    It must be defined whatever these steps give.
    """
    steps, values = shaped.stage.parallel.steps, shaped.stage.parallel.graph.values
    writers = Counter(output for step in steps for output in step.outputs if output is not None)
    reached: set[int] = set()
    positive: set[int] = set()
    for step, attributes, free in zip(steps, shaped.attributes[1], freed, strict=True):
        outputs = {output for output in step.outputs if output is not None}
        if free:
            reached |= outputs
            continue
        # Places along a dimension come of a shape, which drawn numbers do not change.
        read = [argument.value for argument in step.looked_into]
        if not reached.intersection(read):
            continue
        all_positive = len(read) == len(step.inputs) and positive.issuperset(read)
        floats = all(values[output].kind == "field" for output in outputs)
        if not floats or not _has_value(step, attributes, reached, positive, all_positive):
            return False
        reached |= outputs
        # A value that several steps write, on several ranks, may be positive on some only.
        keeps = all_positive and has_trait(step.kind, Trait.KEEPS_POSITIVE, attributes)
        if all(writers[output] == 1 for output in outputs) and (
            keeps or has_trait(step.kind, Trait.GIVES_POSITIVE, attributes)
        ):
            positive |= outputs
    return True


def _has_value(
    step: Step,
    attributes: Mapping[str, Any],
    reached: Collection[int],
    positive: Collection[int],
    all_positive: bool,
) -> bool:
    """Return True if a step has a value, and decides nothing, whatever its operands are.

    The ``reached`` operands may be any numbers; the ``positive`` ones are positive.
    """
    if has_trait(step.kind, Trait.TOTAL, attributes):
        conditions = (step.inputs[place] for place in operator_kind(step.kind).conditions)
        return not any(
            isinstance(operand, Argument) and operand.value in reached for operand in conditions
        )
    if has_trait(step.kind, Trait.DEFINED_FOR_POSITIVE, attributes):
        return all_positive
    divisor = step.inputs[1] if has_trait(step.kind, Trait.DIVIDES, attributes) else None
    return isinstance(divisor, Argument) and (
        divisor.value in positive or divisor.value not in reached
    )


def _free_result(shaped: ShapedStage, step: Step) -> int | None:
    """Return the result of a step if it is its only one, and a floating-point tensor, or None."""
    output = step.outputs[0] if len(step.outputs) == 1 else None
    values = shaped.stage.parallel.graph.values
    return None if output is None or values[output].kind != "field" else output


def _form(step: Step, attributes: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what a step computes: its operator, and the rows that it reads.

    Steps of one form give the same.
    """
    return (
        step.kind,
        repr(sorted(attributes.items())),
        step.count,
        tuple(_read(operand) for operand in step.inputs),
    )


def _read(operand: StepOperand) -> object:
    """Return the rows that an operand reads, as something hashable."""
    if isinstance(operand, Argument):
        return operand.value, operand.rows.shape, operand.rows.tobytes()
    return (
        tuple(_read(member) for member in operand) if isinstance(operand, tuple) else repr(operand)
    )
