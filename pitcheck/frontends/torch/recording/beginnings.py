"""The beginnings of parameters, buffers and optimizer state: their formulas before the first step.

Nobody has the numbers of random draws, but two tensors are the same if the same operators have made
them of the same draws and constants. A generator that the program has not seeded draws other
numbers in every process, and communication brings what this rank cannot see. What depends on either
is left open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

import torch
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.recording.generator_state import DRAWING, UNSEEDED
from pitcheck.frontends.torch.recording.program_tensors import Held
from pitcheck.frontends.torch.recording.recorder import Recorder
from pitcheck.frontends.torch.recording.tape import FILLS, Tape
from pitcheck.frontends.torch.rewrites.needed_events import needed_events
from pitcheck.frontends.torch.trace import Argument, Beginning, Event, Ref, operands

SEEDED = "seeded "
"""The beginning of the texts of what depends on draws of seeded generators alone."""
Text = str | None
"""The text that two equal tensors have in common; None of a tensor that cannot be compared."""


def beginnings(
    recorder: Recorder, tensors: Iterable[Held], states: Iterable[Held]
) -> tuple[Beginning, ...]:
    """Return what the tensors of a program, and the states of its optimizers, begin with."""
    tape = recorder.tape
    found = []
    for held, is_state in (*((one, False) for one in tensors), *((one, True) for one in states)):
        try:
            found.append((held, recorder.storages.read(held.memory(recorder)), is_state))
        except UnsupportedError:
            continue
    events, _ = needed_events(tape.events, {value for _, value, _ in found}, lambda *_: False)
    texts = _texts(tape, events)
    return tuple(_beginning(tape, texts, *one) for one in found)


def _beginning(
    tape: Tape, texts: Mapping[int, Text], held: Held, value: int, is_state: bool
) -> Beginning:
    text = (texts[value] if value in texts else _given(tape, value)) or ""
    number = tape.known.get(value)
    return Beginning(
        held.name,
        tape.kinds[value].shape,
        held.part.box,
        text,
        tape.made_at(value),
        is_state,
        not text.startswith((UNSEEDED, SEEDED)),
        number is not None and bool(_plain(number).any()),
    )


def _texts(tape: Tape, events: Iterable[Event]) -> dict[int, Text]:
    """Return the texts of all values that some events make."""
    texts: dict[int, Text] = {}
    for event in events:
        # A tensor of zeros takes nothing but the shape from its operand.
        read = [] if event.operator in FILLS else operands(event.arguments)
        parts = [texts[one] if one in texts else _given(tape, one) for one in read]
        if event.operator.partition(".")[0] in DRAWING:
            parts.append(_drawn(event))
        said = sha256(repr((event.operator, _shown(event.arguments), parts)).encode()).hexdigest()
        said = f"{_kind(parts)}{said}"
        unknown = bool(event.group) or None in parts
        for place, number in enumerate(event.tensors):
            known = tape.known.get(number)
            text = None if unknown else f"{said} {place} {tape.kinds[number]}"
            texts[number] = text if known is None else _numbers(known)
    return texts


def _drawn(event: Event) -> str:
    stream = str(event.arguments[-1])
    return stream if stream.startswith(UNSEEDED) else f"{SEEDED}{stream}"


def _kind(parts: Sequence[Text]) -> str:
    """Return how the text begins of what is made of others."""
    kinds = (UNSEEDED, SEEDED)
    return next(
        (kind for kind in kinds if any((part or "").startswith(kind) for part in parts)), ""
    )


def _shown(arguments: tuple[Argument, ...]) -> tuple[object, ...]:
    """Return arguments in which values have no numbers, which differ between ranks."""
    return tuple(
        None
        if isinstance(argument, Ref)
        else _shown(argument)
        if isinstance(argument, tuple)
        else argument
        for argument in arguments
    )


def _given(tape: Tape, value: int) -> Text:
    known, given = tape.known.get(value), tape.given.get(value)
    if known is not None:
        return _numbers(known)
    if given is None or given.role != "constant" or (given.number, given.integers) == (None, None):
        return None
    return f"{tape.kinds[value]} {given.number} {given.integers}"


def _numbers(known: torch.Tensor) -> str:
    with _disable_current_modes():
        plain = _plain(known)
        return (
            f"{plain.dtype} {tuple(plain.shape)} "
            + sha256(str(plain.flatten().tolist()).encode()).hexdigest()
        )


def _plain(known: torch.Tensor) -> torch.Tensor:
    with _disable_current_modes():
        return known.detach().cpu()
