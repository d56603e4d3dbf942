"""The meetings of one rank, and what may be known of their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch

from pitcheck.frontends.torch.reads.finite_tests import FiniteTests, Outcome
from pitcheck.frontends.torch.recording.arguments import DTYPES, dtype_name
from pitcheck.frontends.torch.recording.known_values import KNOWN_ELEMENTS
from pitcheck.frontends.torch.together.line import Line
from pitcheck.frontends.torch.together.messages import (
    Channel,
    Cone,
    Meeting,
    Numbers,
    Passage,
    Post,
    Step,
)
from pitcheck.frontends.torch.together.passed_infinity import bits_of
from pitcheck.frontends.torch.together.solver import Solver
from pitcheck.frontends.torch.together.tensor_bytes import numbers_of
from pitcheck.frontends.torch.trace import Argument, Event, Ref, operands

MOST_STEPS = 4096
"""The greatest number of operators through which a value is followed to meetings."""


class Shaped(Protocol):
    """The shape, dtype and number of elements of a value."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def elements(self) -> int: ...


class Made(NamedTuple):
    """The origin of a value: output ``place`` of an event, in which ranks meet if it says so.

    ``firm``: an earlier call of the step has left the value.
    """

    event: Event
    place: int
    meeting: Meeting | None
    firm: bool = False


class Gift(NamedTuple):
    """Objects that a rank gives in a call of torch.distributed, which a trace has as a barrier.

    ``literals`` and ``objects`` are those of the post; ``length`` is that of the list of objects.
    """

    operator: str
    literals: tuple[Argument, ...]
    length: int
    objects: dict[int, bytes]


class Meetings:
    """The meetings of a rank.

    ``kinds``, ``known`` and ``finite`` are those of its tape. A value is *open* if it is known once
    other ranks have told what they put into meetings, unless this depends on data. It may then be
    an outcome of tests. Nobody waits for that before the program looks at the value. ``timed`` are
    lines whose results depend on who comes first, ``stores`` those that the rank has made, and
    ``passages`` its operands in all meetings, with infinity that nothing tames, and in
    ``touching`` with any.
    """

    def __init__(
        self,
        rank: int,
        line: Line,
        kinds: Sequence[Shaped],
        known: Mapping[int, torch.Tensor],
        finite: FiniteTests,
    ) -> None:
        self.line = line
        self.rank = rank
        self.passages: list[Passage] = []
        self.touching: list[Passage] = []
        self._kinds = kinds
        self._known = known
        self._finite = finite
        self._solver = Solver(line)
        self._counts: Counter[Channel] = Counter()
        self._open: dict[int, Made] = {}
        self._gift: Gift | None = None
        self._met: dict[int, Meeting] = {}
        self._completed: dict[Channel, Meeting] = {}
        self.timed: dict[str, None] = {}
        self.stores: list[object] = []

    def give(self, gift: Gift, record: Callable[[], object]) -> Meeting:
        """Give objects in the meeting of the event that ``record`` records; return the meeting."""
        self._gift = gift
        record()
        return self._last

    def complete(self, value: int) -> None:
        """Take in that this rank has waited for the result of a meeting."""
        meeting = self._met.get(value)
        if meeting is not None:
            self._completed[meeting.channel] = meeting

    def completed(self) -> tuple[tuple[Meeting, int], ...]:
        """Return the meetings that this rank has waited for since the last call, by rank."""
        found = tuple(
            (meeting, rank)
            for meeting in self._completed.values()
            for rank in meeting.channel.pair or meeting.channel.group
        )
        self._completed.clear()
        return found

    def is_open(self, value: int) -> bool:
        """Return True if other ranks may tell the numbers of a value."""
        return value in self._open

    def next(self, channel: Channel) -> Meeting:
        """Return the next meeting of a channel."""
        self._counts[channel] += 1
        return Meeting(channel, self._counts[channel] - 1)

    def pass_through(self, event: Event) -> None:
        """Put this rank's part into the meeting of an event, whose results may be known then."""
        self._last = meeting = self.next(self._channel(event))
        post = self._post(event)
        self.line.post(meeting, post)
        self._pass_infinity(event, meeting)
        if not event.tensors and event.operator == "barrier":
            self._completed[meeting.channel] = meeting
        self._met.update((number, meeting) for number in event.tensors)
        if post.operand is not None or self._comes_from_others(event):
            self._add(event, meeting)

    def _pass_infinity(self, event: Event, meeting: Meeting) -> None:
        """Note what infinity an operand may bring to others, and results from others."""
        given = [] if self._comes_from_others(event) else operands(event.arguments)
        infinite, touched = self._finite.meet(event, len(self.passages), given)
        self.passages.append(Passage(meeting, infinite.made, bits_of(infinite.through)))
        self.touching.append(Passage(meeting, touched.made, bits_of(touched.through)))

    def _post(self, event: Event) -> Post:
        source = event.source or "outside the user's code"
        gift, self._gift = self._gift, None
        if gift is not None:
            shape = (gift.length,)
            return Post(gift.operator, gift.literals, shape, "", None, source, gift.objects)
        given = operands(event.arguments)
        like = next((self._kinds[number] for number in (*given, *event.tensors)), None)
        return Post(
            event.operator,
            _literals(event),
            () if like is None else like.shape,
            "" if like is None else dtype_name(like.dtype),
            self._told(given[0]) if given else None,
            source,
        )

    def derive(self, event: Event) -> None:
        """Take in an event whose operands are known, open or outcomes, and some of them open."""
        self._add(event, None)

    def copy(self, value: int, twin: int) -> None:
        """Take in a number that stands for what an earlier call of the step left of a value."""
        if value in self._open:
            self._open[twin] = self._open[value]._replace(firm=True)

    def resolve(self, value: int) -> dict[int, Outcome]:
        """Return the numbers of an open value, and of what it is computed from, by value.

        Those without tests are known. The result is empty if they depend on what is not known.
        Waits for other ranks. Raises MeetingError if they meet in calls that do not fit together.
        """
        cone = self._cone(value)
        found = None if cone is None else self._solver.solve(cone)
        if cone is None or found is None:
            self._open.pop(value, None)
            return {}
        infinite, touched = self._finite.sources([*found])
        return {
            number: Outcome(told.numbers, told.tests, infinite.through, touched)
            for number, told in found.items()
            if number not in self._known
        }

    def _add(self, event: Event, meeting: Meeting | None) -> None:
        for place, number in enumerate(event.outputs):
            kind = None if number is None else self._kinds[number]
            if number is not None and kind is not None and _may_be_known(kind):
                self._open[number] = Made(event, place, meeting)

    def _channel(self, event: Event) -> Channel:
        pair: tuple[int, ...] = ()
        tag: int | str = 0
        if event.operator in ("send", "receive"):
            *_, peer, said = event.arguments
            other = peer if isinstance(peer, int) else 0
            pair = (self.rank, other) if event.operator == "send" else (other, self.rank)
            tag = said if isinstance(said, int | str) else 0
        return Channel(event.group, event.communicator, pair, tag)

    def _comes_from_others(self, event: Event) -> bool:
        if event.operator == "broadcast":
            root = event.arguments[1]
            return isinstance(root, int) and event.group[root] != self.rank
        return event.operator == "receive"

    def _told(self, value: int) -> Numbers | Cone | None:
        """Return what this rank tells the others of a value; None if it depends on data."""
        if value in self._known:
            known = self._known[value]
            return numbers_of(known) if _may_be_known(self._kinds[value]) else None
        cone = self._cone(value) if value in self._open else None
        return self._assumed(value) if cone is None else cone

    def _assumed(self, value: int) -> Numbers | None:
        """Return the outcome of tests that a value is; None if it is none."""
        outcome = self._finite.outcomes.get(value)
        if outcome is None or not _may_be_known(self._kinds[value]):
            return None
        return numbers_of(outcome.numbers, outcome.tests)

    def _cone(self, value: int) -> Cone | None:
        steps: dict[int, Step] = {}
        known: dict[int, Numbers] = {}
        stack = [value]
        while stack:
            number = stack[-1]
            made = self._open.get(number)
            assumed = None if number in self._known else self._assumed(number)
            if number in self._known:
                known[number] = numbers_of(self._known[number])
            elif made is None and assumed is not None:
                known[number] = assumed
            elif made is None or len(steps) > MOST_STEPS:
                return None
            elif made.meeting is not None:
                steps[number] = self._step(number, made, assumed)
            elif missing := [
                operand
                for operand in operands(made.event.arguments)
                if operand not in steps and operand not in known
            ]:
                stack.extend(missing)
                continue
            else:
                steps[number] = self._step(number, made, assumed)
            stack.pop()
        return Cone(self.rank, value, tuple(steps.values()), known)

    def _step(self, value: int, made: Made, assumed: Numbers | None) -> Step:
        event = made.event if made.meeting is None else None
        shape = self._kinds[value].shape
        return Step(value, shape, event, made.place, made.meeting, assumed, made.firm)


def _may_be_known(kind: Shaped) -> bool:
    return kind.elements <= KNOWN_ELEMENTS and dtype_name(kind.dtype) in DTYPES


def _literals(event: Event) -> tuple[Argument, ...]:
    if event.operator in ("send", "receive"):
        return ()
    return tuple(argument for argument in event.arguments if not isinstance(argument, Ref))
