"""The structure of values: equal for values that the same operators make of the same values."""

from __future__ import annotations

from collections.abc import Hashable

from pitcheck.frontends.torch.recording.known_values import UNDEFINED
from pitcheck.frontends.torch.recording.tape import Tape
from pitcheck.frontends.torch.trace import Argument, Event, Ref, operands


class Structures:
    """Numbers of structures, by the values of a tape.

    Communication counts as an operator: other ranks are taken to contribute the same again.
    """

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._seen = 0
        self._made: dict[int, Event] = {}
        self._known: dict[int, int] = {}
        self._numbers: dict[Hashable, int] = {}

    def is_unwritten(self, value: int) -> bool:
        """Return True if a value is memory that nobody has written to."""
        self._look()
        made = self._made.get(value)
        return made is not None and made.operator.partition(".")[0] in UNDEFINED

    def of(self, value: int) -> int:
        """Return the number of the structure of a value."""
        self._look()
        waiting = [value]
        while waiting:
            made = self._made.get(waiting[-1])
            missing = (
                [n for n in operands(made.arguments) if n not in self._known]
                if made is not None and waiting[-1] not in self._known
                else []
            )
            if missing:
                waiting.extend(missing)
            else:
                self._enter(waiting.pop(), made)
        return self._known[value]

    def _look(self) -> None:
        for event in self._tape.events[self._seen :]:
            self._made.update(dict.fromkeys(event.tensors, event))
        self._seen = len(self._tape.events)

    def _enter(self, value: int, event: Event | None) -> None:
        if value in self._known:
            return
        form: Hashable = value
        given = self._tape.given.get(value)
        if given is not None and (given.number, given.integers) != (None, None):
            form = (self._tape.kinds[value], given.number, given.integers)
        if event is not None:
            form = (
                event.operator,
                tuple(map(self._form, event.arguments)),
                event.outputs.index(value),
                event.group,
                event.communicator,
            )
        self._known[value] = self._numbers.setdefault(form, len(self._numbers))

    def _form(self, argument: Argument) -> Hashable:
        """Return an argument with the structures of values; 1, 1.0 and True are different."""
        if isinstance(argument, Ref):
            return Ref, self._known[argument.value]
        if isinstance(argument, tuple):
            return tuple(map(self._form, argument))
        return type(argument), argument
