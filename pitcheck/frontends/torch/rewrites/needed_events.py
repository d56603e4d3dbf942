"""What of a recording is one training step: the operators that its results, and its communication,
depend on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import cast, get_args

import msgspec

from pitcheck.base.dtypes import DType
from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.arguments import dtype_name
from pitcheck.frontends.torch.rewrites.complex_pairs import in_real_numbers
from pitcheck.frontends.torch.tape import Tape
from pitcheck.frontends.torch.trace import (
    Argument,
    Event,
    Item,
    Ref,
    Result,
    Trace,
    Value,
    operands,
)

DTYPES = frozenset(get_args(DType))


def trace_of(
    rank: int,
    tape: Tape,
    start: int,
    results: Sequence[Result],
    assumptions: Sequence[str],
    begun: Collection[int] = (),
) -> Trace:
    """The trace of a step that began with event ``start``. What ran before is in it only as far as
    the step uses it, as a table that was computed beforehand.

    All communication of the step stays, for it could block others even where nobody reads what came
    of it. ``begun``: given values that stay as well.
    """
    needed = {result.value for result in results}
    kept: list[Event] = []
    for index in range(len(tape.events) - 1, -1, -1):
        event = tape.events[index]
        if (index >= start and event.meets) or any(
            number in needed for number in event.outputs if number is not None
        ):
            kept.append(event)
            needed.update(operands(event.arguments))
            needed.update(number for number in event.outputs if number is not None)
    kept = in_real_numbers(kept[::-1], tape)
    needed = {result.value for result in results} | set(begun)
    for event in kept:
        needed.update(operands(event.arguments))
        needed.update(number for number in event.outputs if number is not None)
    numbers = {old: new for new, old in enumerate(sorted(needed))}
    read = {number for event in kept for number in operands(event.arguments)} | {
        result.value for result in results if result.asked
    }
    for event in kept:
        _check(event, tape)
    return Trace(
        rank,
        tuple(Value(tape.kinds[old].shape, dtype_name(tape.kinds[old].dtype)) for old in numbers),  # type: ignore[arg-type]
        tuple(_renumbered(event, numbers) for event in kept),
        tuple(
            msgspec.structs.replace(given, value=numbers[old], idle=old not in read)
            for old, given in tape.given.items()
            if old in numbers
        ),
        tuple(msgspec.structs.replace(result, value=numbers[result.value]) for result in results),
        tuple(assumptions),
    )


def _check(event: Event, tape: Tape) -> None:
    for number in event.outputs:
        if number is not None and dtype_name(tape.kinds[number].dtype) not in DTYPES:
            raise UnsupportedError(
                f"{event.source}: {event.operator} has a result of dtype "
                f"{dtype_name(tape.kinds[number].dtype)}, which plans do not know"
            )


def replaced(event: Event, numbers: Mapping[int, int]) -> Event:
    """An event whose operands are other values."""
    return msgspec.structs.replace(
        event, arguments=tuple(_argument(argument, numbers) for argument in event.arguments)
    )


def _renumbered(event: Event, numbers: Mapping[int, int]) -> Event:
    outputs = tuple(None if number is None else numbers[number] for number in event.outputs)
    return msgspec.structs.replace(replaced(event, numbers), outputs=outputs)


def _argument(argument: Argument, numbers: Mapping[int, int]) -> Argument:
    if isinstance(argument, Ref):
        return Ref(numbers[argument.value])
    if isinstance(argument, tuple):
        return tuple(cast(Item, _argument(item, numbers)) for item in argument)
    return argument
