"""What has been recorded so far: values, and the pure operators that made them. Small values that
depend on constants alone are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import torch
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.errors import PitcheckError, UnsupportedError
from pitcheck.frontends.torch.arguments import dtype_name
from pitcheck.frontends.torch.recording.known_values import evaluate
from pitcheck.frontends.torch.trace import Argument, Event, Given, Ref, Role, operands

KNOWN_ELEMENTS = 1 << 16
"""A value with more elements is never computed while recording."""
FEW = 64
"""So many numbers of a constant are written into the trace one by one."""


class Kind(NamedTuple):
    """Shape and dtype of a value."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def elements(self) -> int:
        """Number of elements."""
        return torch.Size(self.shape).numel()


class Place(NamedTuple):
    """Where in the user's code the program is."""

    source: str = ""
    module: str = ""
    backward: bool = False


class Tape:
    """Values, events and givens, in the order in which they came to be. ``place`` says where the
    program is.
    """

    def __init__(self, place: Callable[[], Place]) -> None:
        self.kinds: list[Kind] = []
        self.events: list[Event] = []
        self.given: dict[int, Given] = {}
        self.known: dict[int, torch.Tensor] = {}
        self.refused: PitcheckError | None = None
        """The first refusal. The program may have caught it; it is final all the same, for what ran
        afterwards is another program.
        """
        self.looked_at: set[int] = set()
        """Known values that the program has looked at, which decided what it did."""
        self.ended = False
        """Whether the step is over, and what is recorded only reads what it has left: that belongs
        to where it was made.
        """
        self._place = place
        self._places: dict[int, Place] = {}

    def emit(
        self,
        operator: str,
        arguments: tuple[Argument, ...],
        outputs: Sequence[Kind | None],
        group: tuple[int, ...] = (),
        batch: int | None = None,
        communicator: str = "",
    ) -> list[int]:
        """An event, and the numbers of its outputs that are tensors."""
        place = self._made(arguments) if self.ended else self._place()
        numbers = [None if kind is None else self._value(kind) for kind in outputs]
        self._places.update((number, place) for number in numbers if number is not None)
        event = Event(
            operator,
            arguments,
            tuple(numbers),
            group,
            place.source,
            place.module,
            place.backward,
            batch,
            communicator,
        )
        self.events.append(event)
        if not group:
            self._know(event)
        return [number for number in numbers if number is not None]

    def one(
        self,
        operator: str,
        arguments: tuple[Argument, ...],
        shape: Sequence[int],
        dtype: torch.dtype,
    ) -> int:
        """An event of one output."""
        return self.emit(operator, arguments, [Kind(tuple(shape), dtype)])[0]

    def give(self, kind: Kind, role: Role, name: str, **where: object) -> int:
        """A value that the step starts with."""
        number = self._value(kind)
        self.given[number] = msgspec.convert(
            {"value": number, "role": role, "name": name, **where}, Given
        )
        return number

    def constant(self, tensor: torch.Tensor) -> int:
        """A real tensor, whose numbers are part of the program."""
        with _disable_current_modes():
            return self._constant(tensor.detach().cpu().contiguous())

    def _constant(self, plain: torch.Tensor) -> int:
        kind = Kind(tuple(plain.shape), plain.dtype)
        flat = plain.reshape(-1)
        if not plain.dtype.is_floating_point and not plain.dtype.is_complex:
            number = self.give(kind, "constant", "", integers=tuple(int(x) for x in flat.tolist()))
        elif plain.numel() and bool((flat == flat[0]).all()):
            number = self.give(kind, "constant", "", number=float(flat[0]))
        elif 0 < plain.numel() <= FEW and not plain.dtype.is_complex:
            return self._listed(plain)
        else:
            number = self.give(kind, "constant", "")
        if plain.numel() <= KNOWN_ELEMENTS:
            self.known[number] = plain
        return number

    def refuse(self, error: PitcheckError) -> PitcheckError:
        """Keep a refusal; the first is kept. Returns the error that was given, to be raised."""
        self.refused = self.refused or error
        return error

    def unsupported(self, message: str) -> PitcheckError:
        """Return the error, to be raised, for what cannot be recorded at the user's line.

        It is a refusal: it ends the recording even if the program catches it.
        """
        return self.refuse(UnsupportedError(f"{self.where()}: {message}"))

    def made_at(self, value: int) -> str:
        """The user's line at which a value was made; empty where nothing tells."""
        return self._places.get(value, Place()).source

    def twin(self, value: int) -> int:
        """A new number for a value, which stands for it from now on; what is known of it stays
        known.
        """
        number = self._value(self.kinds[value])
        self._places[number] = self._places.get(value, Place())
        if value in self.known:
            self.known[number] = self.known[value]
        return number

    def where(self) -> str:
        """The user's line, for messages."""
        return self._place().source or "outside the user's code"

    def _listed(self, plain: torch.Tensor) -> int:
        name = dtype_name(plain.dtype)
        parts = [
            self.one("full.default", ((1,), number, name, None, None, None), (1,), plain.dtype)
            for number in plain.reshape(-1).tolist()
        ]
        flat = self.one("cat.default", (tuple(map(Ref, parts)), 0), (plain.numel(),), plain.dtype)
        return self.one("view.default", (Ref(flat), tuple(plain.shape)), plain.shape, plain.dtype)

    def _value(self, kind: Kind) -> int:
        self.kinds.append(kind)
        return len(self.kinds) - 1

    def _made(self, arguments: tuple[Argument, ...]) -> Place:
        """Where the latest operand was made."""
        return self._places.get(max(operands(arguments), default=-1), Place())

    def _know(self, event: Event) -> None:
        """Compute what depends on known values alone, so that the program may look at it."""
        if any(number not in self.known for number in operands(event.arguments)):
            return
        numbers = [number for number in event.outputs if number is not None]
        if not numbers or any(self.kinds[number].elements > KNOWN_ELEMENTS for number in numbers):
            return
        results = evaluate(event, self.known)
        for number, result in zip(event.outputs, results or (), strict=False):
            if number is not None and result is not None:
                self.known[number] = result

    def number(self, value: int) -> bool | int | float:
        """The number that a tensor of one element holds; UnsupportedError where it depends on what
        is not known.
        """
        if value not in self.known:
            raise UnsupportedError(
                f"{self.where()}: the program looks at the value of a tensor of shape "
                f"{self.kinds[value].shape} that depends on parameters or on the batch; "
                "give Input.values where it comes from integers of the batch, else keep the "
                "number in a tensor"
            )
        self.looked_at.add(value)
        with _disable_current_modes():
            result: bool | int | float = self.known[value].item()
        return result
