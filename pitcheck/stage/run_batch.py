"""Runs of a batch in any algebra: the same loop for numbers, axes and degrees.

>>> step_at("parallel 3 exp", "parallel "), step_at("parallel 3 exp", "reference ")
(3, None)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from pitcheck.algebra.interface import Algebra
from pitcheck.base.numbers import Literal
from pitcheck.errors import PitcheckError
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import evaluate
from pitcheck.ops.term import exact
from pitcheck.stage.batch import Argument, Batch, Step


class Batched(Algebra[Any], Protocol):
    """An algebra with what a batch needs besides: choosing, stacking and joining rows."""

    site: str
    """The place of the algebra, which names what is recorded of decisions."""

    def gather(self, a: Any, index: Codes) -> Any: ...
    def stack(self, a: Any, index: Codes) -> Any: ...
    def join(self, parts: Sequence[Any], counts: Sequence[int] | None = None) -> Any: ...


Evaluator = Callable[[Any, str, Sequence[Any], Mapping[str, Any], Sequence[bool] | None], list[Any]]
"""A function (algebra, kind, inputs, attributes, wanted outputs) -> outputs."""

Piece = tuple[Any, int]
"""A value for some rows, and how many rows."""

Observer = Callable[[int, Step, Sequence[Any], Sequence[Any]], None]
"""A function that is called after every step with its number, itself, its inputs and its outputs.
"""


class StepError(PitcheckError):
    """An error that an operator raised, with that operator."""

    def __init__(self, step: Step, batch: Batch, cause: PitcheckError) -> None:
        self.step = step
        self.operator = batch.graph.nodes[step.node].operator
        self.cause = cause
        super().__init__(f"operator {self.operator!r} ({step.kind}): {cause}")


def run_batch(
    batch: Batch,
    algebra: Batched,
    inputs: Mapping[int, Any],
    attributes: Sequence[Mapping[str, Any]] | None = None,
    observe: Observer | None = None,
    side: str = "",
    evaluator: Evaluator = evaluate,
    keep: Collection[int] | None = None,
    free: Mapping[int, Any] | None = None,
    later: Mapping[int, Callable[[], Any]] | None = None,
    elsewhere: Mapping[int, Callable[[], Any] | None] | None = None,
    rows: Mapping[int, int] | None = None,
) -> dict[int, Any]:
    """Run all steps, and return every value by number, inputs included.

    ``inputs``: the rows of ``batch.inputs``, or of other values; ``rows`` says how many these have,
    if there are several. ``later`` makes other inputs, each when a step first touches it; those
    that no step touches are made at the end if they are kept. ``attributes``: those to use in place
    of the steps', one by one. ``observe``: a function that sees every step. ``side`` begins the
    sites' names. ``evaluator``: a stand-in for the registry's. ``keep``: the values to return; None
    for all. ``free``: values that stand in for the only result of a step, by its number.
    ``elsewhere``: the steps that are not run here, each with what makes its only result, or None if
    nothing that is run here reads it.

    Raises:
        StepError: an operator raised an error.
    """
    known_rows = rows or {}
    pieces: dict[int, list[Piece]] = {
        value: [(a, known_rows.get(value, len(batch.inputs.get(value, (0,)))))]
        for value, a in inputs.items()
    }
    done = {} if keep is None else last_uses(batch, keep)
    known, waiting = free or {}, dict(later or {})
    skipped = elsewhere or {}
    for number, step in enumerate(batch.steps):
        if number in skipped:
            make = skipped[number]
            if make is not None:
                result = make()
                pieces.update((v, [(result, step.count)]) for v in step.outputs if v is not None)
            continue
        for value in touched(step):
            if value in waiting:
                pieces[value] = [(waiting.pop(value)(), len(batch.inputs[value]))]
        algebra.site = f"{side}{number} {step.kind}"
        given = _operands(algebra, pieces, step)
        try:
            own = step.attributes if attributes is None else attributes[number]
            results = (
                [known[number]]
                if number in known
                else evaluator(algebra, step.kind, given, own, wanted_of(step))
            )
        except PitcheckError as error:
            raise StepError(step, batch, error) from error
        for output, result in zip(step.outputs, results, strict=True):
            if output is not None:
                pieces.setdefault(output, []).append((result, step.count))
        if observe is not None:
            observe(number, step, given, results)
        for value in done.get(number, ()):
            del pieces[value]
        given, results = [], []
    for value, make in waiting.items():
        if keep is None or value in keep:
            pieces[value] = [(make(), len(batch.inputs[value]))]
    return {value: _whole(algebra, parts)[0] for value, parts in pieces.items()}


def step_at(site: str, side: str) -> int | None:
    """Return the number of the step of a side that a site names, or None.

    It is None for a site of the other side.
    """
    number = site.removeprefix(side).partition(" ")[0]
    return int(number) if site.startswith(side) and number.isdecimal() else None


def operator_at(site: str, side: str, batch: Batch) -> str:
    """Return the operator of a side that a site names, in words; the site if it names none.

    ``side`` is "reference " or "parallel ", whose steps are those of ``batch``.
    """
    number = step_at(site, side)
    if number is None:
        return site
    step = batch.steps[number]
    return f"{side}{step.kind} {batch.graph.nodes[step.node].operator!r}"


def touched(step: Step) -> list[int]:
    """Return the values that a step reads or writes, each once."""
    read = (argument.value for argument in step.arguments)
    return list(dict.fromkeys(v for v in (*read, *step.outputs) if v is not None))


def last_uses(batch: Batch, keep: Collection[int]) -> dict[int, list[int]]:
    """Return by step the values that nothing reads or writes after it, without those to keep."""
    last: dict[int, int] = {}
    for number, step in enumerate(batch.steps):
        last.update((value, number) for value in touched(step))
    result: dict[int, list[int]] = {}
    for value, number in last.items():
        if value not in keep:
            result.setdefault(number, []).append(value)
    return result


def wanted_of(step: Step) -> tuple[bool, ...]:
    """Return which outputs of a step anything reads."""
    return tuple(output is not None for output in step.outputs)


def literal(algebra: Algebra[Any], number: Literal) -> Any:
    """Return a literal operand as a value."""
    return exact(algebra, number).value


def _operands(algebra: Batched, pieces: dict[int, list[Piece]], step: Step) -> list[Any]:
    """Return the operands of a step.

    Literals are integers if they are whole and no tensor beside them is floating-point, as in
    PyTorch.
    """
    given = [
        None if not isinstance(o, (Argument, tuple)) else _operand(algebra, pieces, o)
        for o in step.inputs
    ]
    kinds = {algebra.kind(a) for a in given if a is not None}
    discrete = bool(kinds) and "field" not in kinds
    return [
        literal_operand(algebra, o, discrete)
        if a is None and not isinstance(o, (Argument, tuple))
        else a
        for a, o in zip(given, step.inputs, strict=True)
    ]


def literal_operand(algebra: Batched, number: Literal, discrete: bool) -> Any:
    """Return a literal operand as a value, an integer if it is whole and ``discrete`` holds."""
    if discrete and isinstance(number, Fraction) and number.denominator == 1:
        return algebra.constant(number, "int")
    return literal(algebra, number)


def _operand(
    algebra: Batched, pieces: dict[int, list[Piece]], operand: Argument | tuple[Argument, ...]
) -> Any:
    """Return an operand, or the stack of several ones."""
    if isinstance(operand, Argument):
        return _pick(algebra, pieces, operand)
    members = []
    for argument in operand:
        member = _pick(algebra, pieces, argument)
        members.append(algebra.reshape(member, (1, *algebra.shape(member))))
    return algebra.concatenate(members, 0)


def _pick(algebra: Batched, pieces: dict[int, list[Piece]], argument: Argument) -> Any:
    """Return the rows of a value that an argument reads."""
    value = pieces[argument.value]
    value[:] = [_whole(algebra, value)]
    whole, count = value[0]
    if argument.rows.ndim == 2:
        return algebra.stack(whole, argument.rows)
    if count == len(argument.rows) and (count == 1 or (argument.rows == np.arange(count)).all()):
        return whole
    return algebra.gather(whole, argument.rows)


def _whole(algebra: Batched, parts: list[Piece]) -> Piece:
    """Return a value with all its rows.

    A piece may store one row for all that it stands for; counts say how many.
    """
    if len(parts) == 1:
        return parts[0]
    counts = [count for _, count in parts]
    return algebra.join([a for a, _ in parts], counts), sum(counts)
