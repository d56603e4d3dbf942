"""Tensors of an optimizer that are copies of elements of parameters.

An optimizer may step tensors of its own: stretches of all parameters of a rank, joined, which begin
and end in the middle of a row. After the step they are copied into the parameters. Nobody states
which elements they are. It is seen from what the first call leaves: an element of such a tensor and
one of a parameter are then the same number, only moved. Nothing else is a copy.

That this holds before every call is an invariant. The recorded call begins with copies of the given
parameters. When it has ended, the same elements must be copies of the new parameters again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.recording.known_values import evaluate
from pitcheck.frontends.torch.recording.parameter_lineage import Part, local
from pitcheck.frontends.torch.recording.program_tensors import Held, Names
from pitcheck.frontends.torch.recording.recorder import Recorder
from pitcheck.frontends.torch.recording.tape import Tape
from pitcheck.frontends.torch.trace import Event, Intervals, operands

MOST_ELEMENTS = 1 << 24
"""The greatest number of elements of parameters and copies that are followed one by one."""
MOVES = frozenset(
    {
        "view",
        "_unsafe_view",
        "slice",
        "select",
        "cat",
        "clone",
        "permute",
        "transpose",
        "t",
        "squeeze",
        "unsqueeze",
    }
)
"""The operators that move elements and change none."""
FREE = -1
"""The parameter of an element that is a copy of none; the beginning of an interval of padding."""
_LOW = 32
"""The bits of the number of an element in its value."""


class Stretch(NamedTuple):
    """Elements of a copy, from ``begin`` on, that are those of a parameter from ``start`` on.

    Both count elements, of the copy and of what the rank holds of the parameter, in their order.
    ``parameter`` is a place in the list of parameters, or ``FREE`` for padding.
    """

    begin: int
    parameter: int
    start: int
    length: int


class _Origins:
    """The origins of elements: the value that computed each, and its number in that value.

    An origin is a number of 64 bits. Elements of one origin are equal.
    """

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._made = {number: event for event in tape.events for number in event.tensors}
        self._found: dict[int, torch.Tensor] = {}

    def of(self, value: int) -> torch.Tensor:
        """Return the origins of a value's elements, in its shape."""
        stack = [value]
        while stack:
            event = self._moving(stack[-1])
            missing = [
                number
                for number in (operands(event.arguments) if event is not None else ())
                if number not in self._found
            ]
            if missing:
                stack.extend(missing)
                continue
            number = stack.pop()
            self._found[number] = self._computed(number, event)
        return self._found[value]

    def _moving(self, value: int) -> Event | None:
        """Return the event that has moved elements to a value; None if they were computed there."""
        event = self._made.get(value)
        if event is None:
            return None
        name = event.operator.partition(".")[0]
        return event if name in MOVES or name in ("wait", "all_gather") else None

    def _computed(self, value: int, event: Event | None) -> torch.Tensor:
        if event is None:
            return self._new(value)
        (first, *_) = read = operands(event.arguments)
        if event.operator == "wait":
            return self._found[first]
        if event.operator == "all_gather":
            return self._gathered(value, self._found[first], event.group.index(dist.get_rank()))
        results = evaluate(event, {number: self._found[number] for number in read})
        moved = None if results is None else results[event.outputs.index(value)]
        return self._new(value) if moved is None else moved

    def _gathered(self, value: int, own: torch.Tensor, place: int) -> torch.Tensor:
        """Return the origins of an all-gather: its own part is known, that of others is new."""
        with _disable_current_modes():
            whole = self._new(value).clone()
            whole[place * own.shape[0] : (place + 1) * own.shape[0]] = own
        return whole

    def _new(self, value: int) -> torch.Tensor:
        kind = self._tape.kinds[value]
        with _disable_current_modes():
            return (torch.arange(kind.elements) + (value << _LOW)).reshape(kind.shape)


class ParameterCopies:
    """The copies of parameters that the optimizers of a program step.

    It is made when the first call has ended, before anything in memory gets a new value.
    """

    def __init__(self, recorder: Recorder, names: Names) -> None:
        self._recorder = recorder
        self._names = names
        self.tensors = names.strangers()
        parameters = names.parameters() if self.tensors else []
        sizes = [held.memory(recorder).numel() for held in parameters]
        sizes += [tensor.numel() for tensor in self.tensors]
        if sum(sizes) > MOST_ELEMENTS:
            self.tensors = []
        found = self._now(parameters) if self.tensors else []
        # A tensor without an element of a parameter is no copy, but state like any other.
        copies = [
            (tensor, stretches)
            for tensor, stretches in zip(self.tensors, found, strict=True)
            if any(each.parameter != FREE for each in stretches)
        ]
        self.tensors = [tensor for tensor, _ in copies]
        self._stretches = [stretches for _, stretches in copies]
        for tensor, stretches in zip(self.tensors, self._stretches, strict=True):
            names.partitions[id(tensor)] = _pieces(tensor, parameters, stretches)

    def begin(self) -> None:
        """Let the recorded call begin with copies of the parameters, which have new values."""
        parameters = self._names.parameters() if self.tensors else []
        for tensor, stretches in zip(self.tensors, self._stretches, strict=True):
            parts = [
                parameters[each.parameter]
                .memory(self._recorder)
                .detach()
                .reshape(-1)
                .narrow(0, each.start, each.length)
                if each.parameter != FREE
                else torch.empty(each.length, dtype=tensor.dtype)
                for each in stretches
            ]
            storages = self._recorder.storages
            storages.write(tensor.detach(), storages.read(torch.cat(parts).reshape(tensor.shape)))

    def check(self) -> None:
        """Raise UnsupportedError if the call leaves copies that are no longer such."""
        now = self._now(self._names.parameters()) if self.tensors else []
        for tensor, before, after in zip(self.tensors, self._stretches, now, strict=True):
            if before != after:
                raise UnsupportedError(
                    f"the optimizer steps a tensor of shape {tuple(tensor.shape)}, whose elements "
                    f"are copies of parameters before the recorded step, and are not after it; "
                    f"copy all that it has stepped into the parameters, or step these themselves"
                )

    def _now(self, parameters: Sequence[Held]) -> list[list[Stretch]]:
        """Return the stretches of all copies."""
        storages = self._recorder.storages
        read = [storages.read(held.memory(self._recorder)) for held in parameters]
        copied = [storages.read(tensor.detach()) for tensor in self.tensors]
        origins = _Origins(self._recorder.tape)
        with _disable_current_modes():
            places = {
                origin: (number, place)
                for number, value in reversed(list(enumerate(read)))
                for place, origin in enumerate(origins.of(value).reshape(-1).tolist())
            }
            return [
                _stretches(
                    [
                        places.get(origin, (FREE, 0))
                        for origin in origins.of(value).reshape(-1).tolist()
                    ]
                )
                for value in copied
            ]


def _stretches(places: Sequence[tuple[int, int]]) -> list[Stretch]:
    """Return the stretches of a copy from the parameter and place of each of its elements."""
    found: list[Stretch] = []
    for at, (parameter, place) in enumerate(places):
        last = found[-1] if found else None
        if (
            last is not None
            and last.parameter == parameter
            and (parameter == FREE or place == last.start + last.length)
        ):
            found[-1] = last._replace(length=last.length + 1)
        else:
            found.append(Stretch(at, parameter, place, 1))
    return found


def _pieces(
    tensor: torch.Tensor, parameters: Sequence[Held], stretches: Sequence[Stretch]
) -> list[Held]:
    """Return the stretches of parameters that a copy has; padding belongs to the one before it.

    Padding at the beginning is none of a parameter, and is left out.
    """
    found: list[Held] = []
    for each in stretches:
        if each.parameter != FREE:
            held = parameters[each.parameter]
            whole, box = _flat(held, each.start, each.length)
            found.append(Held(held.name, tensor, Part((whole,), (box,)), (each.begin, each.length)))
        elif found:
            last = found[-1]
            begin, length = last.stretch or (0, 0)
            box = (*last.part.box[0], (FREE, each.length))
            found[-1] = last._replace(
                part=Part(last.part.whole, (box,)), stretch=(begin, length + each.length)
            )
    return found


def _flat(held: Held, start: int, length: int) -> tuple[int, Intervals]:
    """Return the elements of the whole of a parameter, and the interval of them that is held.

    Raises UnsupportedError for a stretch of a part that is itself no stretch of the whole.
    """
    shape = held.part.whole or tuple(local(held.tensor).shape)
    box = held.part.box or tuple(((0, size),) for size in shape)
    whole = torch.Size(shape)
    if any(held_part != ((0, size),) for held_part, size in zip(box[1:], shape[1:], strict=True)):
        raise UnsupportedError(
            f"an optimizer steps a stretch of the flattened elements of {held.name!r}, of which "
            f"the rank holds columns; such parts have no common form here"
        )
    row = whole[1:].numel()
    at, found = 0, []
    for first, last in box[0] if box else ((0, 1),):
        low, high = max(start - at, 0), min(start + length - at, (last - first) * row)
        if low < high and first != FREE:
            found.append((first * row + low, first * row + high))
        at += (last - first) * row if first != FREE else last
    return whole.numel(), tuple(found)
