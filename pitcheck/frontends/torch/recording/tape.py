"""The tape of a recording: values, and the pure operators that made them.

Small values that depend on constants alone are computed while recording, so that the program may
look at them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import torch
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.errors import PitcheckError, UnsupportedError
from pitcheck.frontends.torch.reads.finite_tests import FiniteTests
from pitcheck.frontends.torch.reads.unknown_numbers import Reads
from pitcheck.frontends.torch.recording.arguments import dtype_name
from pitcheck.frontends.torch.recording.known_values import evaluate
from pitcheck.frontends.torch.trace import Argument, Event, Given, Ref, Role, operands

KNOWN_ELEMENTS = 1 << 16
"""The greatest number of elements of a value that is computed while recording."""
FEW = 64
"""The greatest number of elements of a constant that are written into the trace one by one."""


class Kind(NamedTuple):
    """The shape and dtype of a value."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def elements(self) -> int:
        """Return the number of elements."""
        return torch.Size(self.shape).numel()


class Place(NamedTuple):
    """A place in the user's code.

    ``source`` is "file:line" and ``module`` the path of the module that runs; both are "" if
    unknown.
    """

    source: str = ""
    module: str = ""
    backward: bool = False


class Tape:
    """The values, events and givens of a recording, in the order in which they were made.

    ``place`` returns where the program is. Values are known by their number, which counts from 0.

    - ``kinds``: the shape and dtype of each value.
    - ``known``: the numbers of the values that are known.
    - ``refused``: the first refusal. It is final even if the program has caught it, for what ran
      afterwards is another program.
    - ``looked_at``: the known values that the program has looked at, which decided what it did.
    - ``finite``: the outcomes of tests for infinity and NaN.
    - ``reads``: what the program reads and is not known.
    - ``ended``: the step is over. What is recorded from then on only reads what the step has left,
      and is attributed to the line that made it.
    """

    def __init__(self, place: Callable[[], Place]) -> None:
        self.kinds: list[Kind] = []
        self.events: list[Event] = []
        self.given: dict[int, Given] = {}
        self.known: dict[int, torch.Tensor] = {}
        self.refused: PitcheckError | None = None
        self.looked_at: set[int] = set()
        self.finite = FiniteTests(self.known)
        self.reads = Reads(self)
        self.ended = False
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
        """Record an event; return the numbers of those of its outputs that are tensors.

        ``outputs`` has None for a result that is no tensor. ``group``, ``batch`` and
        ``communicator`` are those of :class:`Event`.
        """
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
        if group or not self._know(event):
            self.finite.follow(
                event,
                [self.kinds[number].shape for number in operands(arguments)],
                any(self.kinds[number].dtype.is_floating_point for number in event.tensors),
            )
        return list(event.tensors)

    def one(
        self,
        operator: str,
        arguments: tuple[Argument, ...],
        shape: Sequence[int],
        dtype: torch.dtype,
    ) -> int:
        """Record an event with one output; return the number of its value."""
        return self.emit(operator, arguments, [Kind(tuple(shape), dtype)])[0]

    def give(self, kind: Kind, role: Role, name: str, **where: object) -> int:
        """Add a value that the step starts with; return its number.

        ``where`` are further fields of :class:`Given`.
        """
        number = self._value(kind)
        self.given[number] = msgspec.convert(
            {"value": number, "role": role, "name": name, **where}, Given
        )
        return number

    def constant(self, tensor: torch.Tensor) -> int:
        """Add a tensor whose numbers are part of the program; return the number of its value."""
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
        """Keep a refusal unless there is an earlier one; return ``error``, to be raised."""
        self.refused = self.refused or error
        return error

    def unsupported(self, message: str) -> PitcheckError:
        """Return the error, to be raised, for what cannot be recorded at the user's present line.

        It is kept as a refusal: it ends the recording even if the program catches it.
        """
        return self.refuse(UnsupportedError(f"{self.where()}: {message}"))

    def made_at(self, value: int) -> str:
        """Return the user's line at which a value was made; "" if nothing tells."""
        return self._places.get(value, Place()).source

    def twin(self, value: int) -> int:
        """Return a new number that stands for a value from now on, with the same known numbers."""
        number = self._value(self.kinds[value])
        self._places[number] = self._places.get(value, Place())
        if value in self.known:
            self.known[number] = self.known[value]
        return number

    def where(self) -> str:
        """Return the user's present line, for messages."""
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
        """Return the place at which the latest operand was made."""
        return self._places.get(max(operands(arguments), default=-1), Place())

    def _know(self, event: Event) -> bool:
        """Compute an event that depends on known values alone; return False for any other.

        The program may then look at its results.
        """
        if any(number not in self.known for number in operands(event.arguments)):
            return False
        if not event.tensors or any(
            self.kinds[number].elements > KNOWN_ELEMENTS for number in event.tensors
        ):
            return False
        results = evaluate(event, self.known)
        for number, result in zip(event.outputs, results or (), strict=False):
            if number is not None and result is not None:
                self.known[number] = result
        return results is not None

    def number(self, value: int) -> bool | int | float:
        """Return the number in a tensor of one element.

        A test for infinity or NaN is assumed to find neither. Raises UnsupportedError for a number
        that depends on values that are not known, unless the reader takes an opaque one.
        """
        if value not in self.known:
            outcome = self.finite.outcome(value)
            if outcome is not None:
                self.reads.assume_finite()
                return outcome
            if self.reads.takes(self.kinds[value].dtype, value not in self.finite.infinite):
                return 0
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
