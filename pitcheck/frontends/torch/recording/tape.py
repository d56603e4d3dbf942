"""The tape of a recording: values, and the pure operators that made them.

Small values that depend on constants alone are computed while recording, so that the program may
look at them.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import torch
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.errors import PitcheckError, UnsupportedError
from pitcheck.frontends.torch.reads.finite_tests import FiniteTests, Outcome
from pitcheck.frontends.torch.reads.unknown_numbers import Reads
from pitcheck.frontends.torch.recording.arguments import dtype_name
from pitcheck.frontends.torch.recording.known_values import (
    KNOWN_ELEMENTS,
    WRITES,
    evaluate,
    evaluate_write,
)
from pitcheck.frontends.torch.together.meetings import Meetings
from pitcheck.frontends.torch.trace import Argument, Event, Given, Ref, Role, operands

FILLS = frozenset(
    f"{name}.default"
    for name in ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
)
"""The operators that take the shape of their operand alone."""
COMPARISONS = frozenset(f"{name}.Scalar" for name in ("eq", "ne", "lt", "le", "gt", "ge"))
"""The comparisons with a number, which are decided for a number that lies outside of bounds."""
PARTS = frozenset(
    f"{name}.{overload}"
    for overload, names in (
        ("default", "clone view detach alias expand _unsafe_view unsqueeze squeeze"),
        ("Tensor", "slice split"),
        ("int", "select transpose"),
    )
    for name in names.split()
)
"""The operators whose results have elements of their first operand and no others."""
INTEGERS = frozenset({torch.bool, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})
"""The dtypes of integers and booleans."""
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
    unknown. ``call`` counts the calls of that module so far, with the present one.
    """

    source: str = ""
    module: str = ""
    backward: bool = False
    call: int = 0


class Tape:
    """The values, events and givens of a recording, in the order in which they were made.

    ``place`` returns where the program is. Values are known by their number, which counts from 0.

    - ``kinds``: the shape and dtype of each value.
    - ``known``: the numbers of the values that are known.
    - ``refused``: the first refusal. It is final even if the program has caught it, for what ran
      afterwards is another program.
    - ``bounds``: those of the integers of the batch, and of parts of them; the upper one excluded.
    - ``routed``: the values that depend on choices of routers, which a routing says, and on nothing
      else that is not known, unless other ranks communicate it.
    - ``looked_at``: the known values that the program has looked at, which decided what it did.
    - ``meetings``: what other ranks may tell of values; None where there are none.
    - ``finite``: the outcomes of tests for infinity and NaN.
    - ``reads``: what the program reads and is not known.
    - ``relied``: the lines of the tests whose outcomes the program has looked at, each with the
      meetings through which the outcomes came. Bit n stands for meeting n of this rank.
    - ``choosing``: the same of tests whose outcomes choose between numbers.
    - ``ended``: the step is over. What is recorded from then on only reads what the step has left,
      and is attributed to the line that made it.
    """

    def __init__(self, place: Callable[[], Place]) -> None:
        self.kinds: list[Kind] = []
        self.events: list[Event] = []
        self.given: dict[int, Given] = {}
        self.known: dict[int, torch.Tensor] = {}
        self.bounds: dict[int, tuple[int, int]] = {}
        self.routed: set[int] = set()
        self.refused: PitcheckError | None = None
        self.looked_at: set[int] = set()
        self.finite = FiniteTests(self.known)
        self.reads = Reads(self)
        self.relied: dict[str, int] = {}
        self.choosing: dict[str, int] = {}
        self.ended = False
        self.meetings: Meetings | None = None
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
            call=place.call,
        )
        self.events.append(event)
        known = not group and self._know(event)
        if group and self.meetings is not None:
            self._route(event)
            self.meetings.pass_through(event)
        if not known and not group:
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

    def chosen(self, indices: torch.Tensor) -> int:
        """Add the choices of a router, which a routing says; return the number of their value."""
        number = self.constant(indices)
        self.routed.add(number)
        return number

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
        elif self.meetings is not None:
            self.meetings.copy(value, number)
        if value in self.routed:
            self.routed.add(number)
        return number

    def module(self) -> str:
        """Return the path of the module that runs."""
        return self._place().module

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
        known: Mapping[int, torch.Tensor] = self.known
        self._check_wrapped(event)
        self._bound(event)
        if event.operator in FILLS or self._is_decided(event):
            known = ChainMap(self.known, self._stand_ins(event))
        unknown = [number for number in operands(event.arguments) if number not in known]
        overwritten = self._overwritten(event, unknown)
        if unknown and not overwritten and not self._may_be_told(unknown):
            return False
        if not event.tensors or any(
            self.kinds[number].elements > KNOWN_ELEMENTS for number in event.tensors
        ):
            return False
        self._route(event)
        if overwritten:
            (base,) = [n for n in operands(event.arguments) if n not in known]
            given = {n: known[n] for n in operands(event.arguments) if n != base}
            results = evaluate_write(event, given, base, *self.kinds[base])
        elif unknown and self.meetings is not None:
            self.meetings.derive(event)
            return False
        else:
            results = evaluate(event, known)
        for number, result in zip(event.outputs, results or (), strict=False):
            if number is not None and result is not None:
                self.known[number] = result
        return results is not None

    def _overwritten(self, event: Event, unknown: Sequence[int]) -> bool:
        """Return True if all that is not known is the integers that an event writes into."""
        first = event.arguments[0] if event.operator in WRITES else None
        return (
            isinstance(first, Ref)
            and first.value in unknown
            and self.kinds[first.value].dtype in INTEGERS
            and not self._are_open([first.value])
            and all(self.numbers(n) is not None for n in unknown if n != first.value)
        )

    def _bound(self, event: Event) -> None:
        """Keep the bounds of integers for parts of them."""
        first = event.arguments[0] if event.operator in PARTS else None
        if isinstance(first, Ref) and first.value in self.bounds:
            self.bounds.update(dict.fromkeys(event.tensors, self.bounds[first.value]))

    def _is_decided(self, event: Event) -> bool:
        """Return True for a comparison that has one outcome for all integers within bounds."""
        if event.operator not in COMPARISONS:
            return False
        one, other = event.arguments[:2]
        bounds = self.bounds.get(one.value) if isinstance(one, Ref) else None
        return (
            bounds is not None
            and isinstance(other, int | float)
            and not bounds[0] <= other < bounds[1]
        )

    def _check_wrapped(self, event: Event) -> None:
        """Raise UnsupportedError for a comparison with an integer that the dtype cannot hold.

        PyTorch wraps the integer around.
        """
        if event.operator not in COMPARISONS:
            return
        one, other = event.arguments[:2]
        dtype = self.kinds[one.value].dtype if isinstance(one, Ref) else torch.bool
        if dtype == torch.bool or dtype not in INTEGERS or not isinstance(other, int):
            return
        if not torch.iinfo(dtype).min <= other <= torch.iinfo(dtype).max:
            raise self.unsupported(
                f"a tensor of {dtype} is compared with {other}, which wraps around to another "
                f"number there; cast the tensor to int64 first"
            )

    def _stand_ins(self, event: Event) -> dict[int, torch.Tensor]:
        """Return tensors in place of operands whose numbers within bounds change no result."""
        with _disable_current_modes():
            return {
                number: torch.full(
                    (), self.bounds.get(number, (0,))[0], dtype=self.kinds[number].dtype
                ).expand(self.kinds[number].shape)
                for number in operands(event.arguments)
            }

    def _route(self, event: Event) -> None:
        if not self.routed.isdisjoint(operands(event.arguments)):
            self.routed.update(event.tensors)

    def _are_open(self, values: Sequence[int]) -> bool:
        return self.meetings is not None and all(map(self.meetings.is_open, values))

    def _may_be_told(self, values: Sequence[int]) -> bool:
        """Return True if other ranks may tell values that are not known; others are outcomes."""
        rest = [value for value in values if value not in self.finite.outcomes]
        if rest:
            return self._are_open(rest)
        return any(self._are_open([value]) for value in values)

    def numbers(self, value: int) -> torch.Tensor | None:
        """Return the numbers of a value; None if they depend on what is not known.

        If they depend on what other ranks communicate, wait for those. Raises MeetingError if the
        ranks meet in calls that do not fit together.
        """
        if value not in self.known and self._are_open([value]) and self.meetings is not None:
            try:
                found = self.meetings.resolve(value)
            except PitcheckError as error:
                raise self.refuse(error) from None
            for number, outcome in found.items():
                if outcome.tests:
                    self.finite.outcomes[number] = outcome
                else:
                    self.known[number] = outcome.numbers
        return self.known.get(value)

    def number(self, value: int) -> bool | int | float:
        """Return the number in a tensor of one element.

        A test for infinity or NaN is assumed to find neither. Raises UnsupportedError for a number
        that depends on values that are not known, unless the reader takes an opaque one.
        """
        numbers = self.numbers(value)
        if numbers is None:
            outcome = self.finite.outcomes.get(value)
            if outcome is not None:
                return self._assumed(outcome)
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
            result: bool | int | float = numbers.item()
        return result

    def _assumed(self, outcome: Outcome) -> bool | int | float:
        """Return the outcome of tests, and note what is assumed by looking at it."""
        self._rely(outcome, outcome.through, self.relied)
        return outcome.number

    def choose(self, outcome: Outcome) -> None:
        """Note what is assumed by a choice whose condition is an outcome of tests."""
        self._rely(outcome, outcome.touched.through, self.choosing)

    def _rely(self, outcome: Outcome, through: int, noted: dict[str, int]) -> None:
        self.reads.assume_finite(outcome.tests)
        for line in outcome.tests:
            noted[line] = noted.get(line, 0) | through
