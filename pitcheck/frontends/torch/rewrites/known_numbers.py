"""Constants in place of operators on known numbers that plans have no meaning for.

PyTorch has computed these numbers while the program was recorded. So whatever operator made them,
the step reads what it would read in training.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from msgspec.structs import replace
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.aten.operators import translated
from pitcheck.frontends.torch.recording.arguments import DTYPES, dtype_name
from pitcheck.frontends.torch.recording.tape import FEW, INTEGERS, Tape
from pitcheck.frontends.torch.trace import Event, Given, Ref, Value, operands, renumbered

CASTS = frozenset({"_to_copy.default", "floor.default", "ceil.default", "round.default"})
"""The operators that make integers of real numbers."""

COUNTS = INTEGERS - {torch.bool}
"""The dtypes of integers."""

FARTHEST = 1 << 62
"""The greatest integer that is taken to be made of a number."""


def in_known_numbers(events: Sequence[Event], tape: Tape) -> list[Event]:
    """Return the events; those on known numbers without a meaning are constants of the tape."""
    found: list[Event] = []
    for event in events:
        found += _listed(event, tape) if _is_number(event, tape) else [event]
    return found


def _is_number(event: Event, tape: Tape) -> bool:
    """Return True for an event whose results are known, and which a plan cannot compute.

    A plan computes exactly. So it cannot truncate what PyTorch has rounded before.
    """
    made = event.tensors
    if event.group or not made or any(number not in tape.known for number in made):
        return False
    return all(_fits(tape.known[number]) for number in made) and (
        _truncates(event, tape) or _reads_beyond(event, tape) or not _has_meaning(event, tape)
    )


def _fits(numbers: torch.Tensor) -> bool:
    """Return True for numbers that a constant of a plan can have."""
    with _disable_current_modes():
        if numbers.dtype in INTEGERS:
            return True
        if not numbers.numel() or not numbers.is_floating_point():
            return False
        few = numbers.numel() <= FEW or bool((numbers == numbers.reshape(-1)[0]).all())
        return few and bool(numbers.isfinite().all())


def _truncates(event: Event, tape: Tape) -> bool:
    """Return True for integers that are made of numbers with a fraction, or without a value."""
    read = operands(event.arguments)
    if event.operator not in CASTS or not read or read[0] not in tape.known:
        return False
    kept = event.operator == "_to_copy.default" and tape.kinds[event.tensors[0]].dtype not in COUNTS
    numbers = tape.known[read[0]]
    with _disable_current_modes():
        return (
            not kept
            and numbers.is_floating_point()
            and not bool((numbers.isfinite() & (numbers == numbers.trunc())).all())
        )


def _reads_beyond(event: Event, tape: Tape) -> bool:
    """Return True if an event reads an integer that PyTorch has made of infinity or NaN."""
    with _disable_current_modes():
        return any(
            tape.known[value].dtype == torch.int64
            and bool((tape.known[value].clamp(-FARTHEST, FARTHEST) != tape.known[value]).any())
            for value in operands(event.arguments)
            if value in tape.known
        )


def _has_meaning(event: Event, tape: Tape) -> bool:
    """Return True if a plan can compute an event; complex numbers are looked at elsewhere."""
    values = [*operands(event.arguments), *event.tensors]
    kinds = [tape.kinds[value] for value in values]
    if any(kind.dtype.is_complex or dtype_name(kind.dtype) not in DTYPES for kind in kinds):
        return True
    places = {value: place for place, value in enumerate(values)}
    try:
        translated(
            renumbered(event, {value: places[value] for value in values}),
            [Value(kind.shape, dtype_name(kind.dtype)) for kind in kinds],  # type: ignore[arg-type]
            str,
            lambda hint, _: hint,
        )
    except UnsupportedError:
        return False
    return True


def _listed(event: Event, tape: Tape) -> list[Event]:
    """Return the events that list the numbers of an event's results."""
    found: list[Event] = []
    for number in event.tensors:
        numbers = tape.known[number]
        if numbers.dtype in INTEGERS:
            with _disable_current_modes():
                integers = tuple(int(item) for item in numbers.reshape(-1).tolist())
            tape.given[number] = Given(number, "constant", "", integers=integers)
            continue
        start = len(tape.events)
        constant = tape.constant(numbers)
        found += (_at(made, event) for made in tape.events[start:])
        del tape.events[start:]
        view = Event("view.default", (Ref(constant), tuple(numbers.shape)), (number,))
        found.append(_at(view, event))
    return found


def _at(made: Event, event: Event) -> Event:
    """Return an event at the place of another one."""
    return replace(made, source=event.source, module=event.module, backward=event.backward)
