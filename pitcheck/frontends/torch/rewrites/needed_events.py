"""The events of a recording on which the results, or the communication, of one step depend."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import get_args

import msgspec
import torch

from pitcheck.base.dtypes import DType
from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.recording.arguments import dtype_name
from pitcheck.frontends.torch.recording.tape import INTEGERS, Tape
from pitcheck.frontends.torch.rewrites.complex_pairs import in_real_numbers
from pitcheck.frontends.torch.rewrites.cut_joins import through_joins
from pitcheck.frontends.torch.rewrites.known_numbers import in_known_numbers
from pitcheck.frontends.torch.rewrites.negative_indices import from_the_front
from pitcheck.frontends.torch.trace import (
    Event,
    Given,
    Result,
    Trace,
    Value,
    operands,
    renumbered,
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
    """Return the trace of a step that began with event ``start``.

    Earlier events are in it only as far as the step uses them, as for a table that was computed
    beforehand. All communication of the step stays, for it could block others even if nobody reads
    its results. ``begun`` are given values that stay as well.

    Raises UnsupportedError for a value of a dtype that plans do not know.
    """
    wanted = {result.value for result in results}
    events = [event for event in tape.events if not is_routed(event, tape)]
    begun_at = sum(not is_routed(event, tape) for event in tape.events[:start])
    events = through_joins(events, tape.kinds)
    kept, _ = needed_events(events, wanted, lambda index, event: index >= begun_at and event.meets)
    meetings = {id(event) for event in events[begun_at:] if event.meets}
    kept, _ = needed_events(
        in_known_numbers(from_the_front(kept, tape), tape),
        wanted,
        lambda _, event: id(event) in meetings,
    )
    kept = in_real_numbers(kept, tape)
    needed = wanted | set(begun)
    made = {number for event in kept for number in event.tensors}
    for event in kept:
        needed.update(operands(event.arguments))
        needed.update(event.tensors)
    numbers = {old: new for new, old in enumerate(sorted(needed))}
    read = {number for event in kept for number in operands(event.arguments)} | {
        result.value for result in results if result.asked
    }
    for event in kept:
        _check(event, tape)
    return Trace(
        rank,
        tuple(Value(tape.kinds[old].shape, dtype_name(tape.kinds[old].dtype)) for old in numbers),  # type: ignore[arg-type]
        tuple(renumbered(event, numbers) for event in kept),
        tuple(
            msgspec.structs.replace(given, value=numbers[old], idle=old not in read)
            for old, given in {**tape.given, **_constants(tape, needed, made)}.items()
            if old in numbers
        ),
        tuple(msgspec.structs.replace(result, value=numbers[result.value]) for result in results),
        tuple(assumptions),
    )


def is_routed(event: Event, tape: Tape) -> bool:
    """Return True if an event only computes integers that follow from the choices of routers.

    These are constants: PyTorch has computed them while the program was recorded.
    """
    if event.group or event.operator == "wait" or not event.tensors:
        return False
    return all(_routed_integers(number, tape) is not None for number in event.tensors)


def _routed_integers(value: int, tape: Tape) -> torch.Tensor | None:
    """Return the numbers of integers that follow from the choices of routers, None of others."""
    if value not in tape.routed or tape.kinds[value].dtype not in INTEGERS:
        return None
    return tape.numbers(value)


def _constants(tape: Tape, needed: Collection[int], made: Collection[int]) -> dict[int, Given]:
    """Return the integers among ``needed`` that follow from the choices of routers.

    ``made`` are the values that events compute.
    """
    return {
        number: Given(
            number,
            "constant",
            "",
            integers=tuple(int(item) for item in numbers.reshape(-1).tolist()),
        )
        for number in needed
        if number not in made and (numbers := _routed_integers(number, tape)) is not None
    }


def needed_events(
    events: Sequence[Event], wanted: Iterable[int], kept: Callable[[int, Event], bool]
) -> tuple[list[Event], set[int]]:
    """Return the events on which some values depend.

    ``kept`` returns True for the place and the event of those that are needed in any case.

    Returns:
        The events in their order; and the values that are ``wanted`` or that these events read.
    """
    values = set(wanted)
    found: list[Event] = []
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if kept(index, event) or not values.isdisjoint(event.tensors):
            found.append(event)
            values.update(operands(event.arguments))
    return found[::-1], values


def _check(event: Event, tape: Tape) -> None:
    for number in event.tensors:
        dtype = dtype_name(tape.kinds[number].dtype)
        if dtype not in DTYPES:
            raise UnsupportedError(
                f"{event.source}: {event.operator} has a result of dtype {dtype}, which plans do "
                f"not know"
            )
