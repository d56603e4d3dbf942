"""Running a batch in any algebra: the same loop for numbers, axes and degrees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pitcheck.algebra.base import Algebra
from pitcheck.errors import PitcheckError
from pitcheck.ops.registry import evaluate
from pitcheck.plan.numbers import Literal, Root
from pitcheck.stages.batch import Argument, Batch, Step, StepOperand
from pitcheck.stages.graph import Codes


class Batched(Algebra[Any], Protocol):
    """What running a batch needs beside the algebra: choosing, stacking and joining rows."""

    def gather(self, a: Any, index: Codes) -> Any: ...
    def stack(self, a: Any, index: Codes) -> Any: ...
    def join(self, parts: Sequence[Any]) -> Any: ...


Observer = Callable[[int, Step, Sequence[Any], Sequence[Any]], None]
"""Called after every step with its number, itself, its inputs and its outputs."""


class StepError(PitcheckError):
    """What an operator raised, with the operator that raised it."""

    def __init__(self, step: Step, batch: Batch, cause: PitcheckError) -> None:
        self.step = step
        self.operator = batch.graph.nodes[step.node].operator
        self.cause = cause
        super().__init__(f"operator {self.operator!r} ({step.kind}): {cause}")


def run_batch(
    batch: Batch, algebra: Batched, inputs: Mapping[int, Any], attributes: Sequence[Mapping[str, Any]] | None = None, observe: Observer | None = None
) -> dict[int, Any]:
    """Run all steps and return every value computed (and the inputs), by number.

    ``inputs`` holds the rows of ``batch.inputs``; ``attributes`` replaces the steps' own, step by step. Raises StepError.
    """
    pieces: dict[int, list[Any]] = {value: [a] for value, a in inputs.items()}
    for number, step in enumerate(batch.steps):
        given = [_operand(algebra, pieces, operand) for operand in step.inputs]
        try:
            results = evaluate(algebra, step.kind, given, step.attributes if attributes is None else attributes[number], wanted_of(step))
        except PitcheckError as error:
            raise StepError(step, batch, error) from error
        for output, result in zip(step.outputs, results, strict=True):
            if output is not None:
                pieces.setdefault(output, []).append(result)
        if observe is not None:
            observe(number, step, given, results)
    return {value: _whole(algebra, parts) for value, parts in pieces.items()}


def wanted_of(step: Step) -> tuple[bool, ...]:
    """Which outputs of a step anything reads."""
    return tuple(output is not None for output in step.outputs)


def literal(algebra: Algebra[Any], number: Literal) -> Any:
    """A literal operand as a value."""
    if isinstance(number, Root):
        root = algebra.sqrt(algebra.constant(number.square))
        return algebra.negate(root) if number.sign < 0 else root
    return algebra.constant(number)


def _operand(algebra: Batched, pieces: dict[int, list[Any]], operand: StepOperand) -> Any:
    if isinstance(operand, Argument):
        return _pick(algebra, pieces, operand)
    if isinstance(operand, tuple):
        members = []
        for argument in operand:
            member = _pick(algebra, pieces, argument)
            members.append(algebra.reshape(member, (1, *algebra.shape(member))))
        return algebra.concatenate(members, 0)
    return literal(algebra, operand)


def _pick(algebra: Batched, pieces: dict[int, list[Any]], argument: Argument) -> Any:
    value = pieces[argument.value]
    whole = _whole(algebra, value)
    value[:] = [whole]
    return algebra.stack(whole, argument.rows) if argument.rows.ndim == 2 else algebra.gather(whole, argument.rows)


def _whole(algebra: Batched, parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else algebra.join(parts)
