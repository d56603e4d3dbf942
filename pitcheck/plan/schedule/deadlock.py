"""Deadlock: whether all ranks come to the end of their programs, for any timing.

A collective, and a receive, waits until its partners have reached their part of it. A send waits
likewise, as NCCL's do, unless its ``protocol`` is "buffered". Consecutive events with one ``batch``
are one event. An asynchronous event does not wait; the ``wait`` operators for it do
(``launches.py``). Matching is deterministic, so that maximal progress is a unique least fixpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pitcheck.ops.registry import communication_of
from pitcheck.ops.traits import Communication
from pitcheck.plan.model import Group, Operator, Table, attribute_values
from pitcheck.plan.rules.violations import Violation
from pitcheck.plan.schedule.events import Events
from pitcheck.plan.schedule.launches import Launches, joins_batches, joint
from pitcheck.plan.schedule.matching import Matching
from pitcheck.plan.schedule.progress import Need, run_to_fixpoint
from pitcheck.plan.schedule.quotient import Meetings, equitable_classes
from pitcheck.plan.schedule.run_order import Ints

_MOST_CYCLES = 8

Event = tuple[int, int]
"""An event number and a micro-batch, on some rank."""
Place = tuple[int, int, int]
"""A rank, an event number and a micro-batch."""


@dataclass
class _Class:
    """The program of a class of ranks: joint events, in order, and the step of each event."""

    rank: int
    steps: list[list[Event]] = field(default_factory=list)
    step_of: dict[Event, int] = field(default_factory=dict)


def find_deadlocks(
    events: Events, matching: Matching, classes: Ints | None = None
) -> list[Violation]:
    """Return PIT007 for every cycle of waits, for any buffering of undeclared sends.

    If there is none, return PIT012 for the cycles that exist because such sends are not buffered.
    ``classes`` overrides the partition of the ranks, shape (ranks,). It must be equitable; one
    class per rank always is.
    """
    search = _Search(events, Meetings(events, matching), classes)
    stuck = search.stuck(strict=False)
    if stuck:
        return stuck
    return search.stuck(strict=True) if search.has_undeclared_sends() else []


class _Search:
    def __init__(self, events: Events, meetings: Meetings, classes: Ints | None) -> None:
        self.events = events
        self.plan = events.plan
        self.meetings = meetings
        self.class_of = equitable_classes(meetings) if classes is None else classes
        representatives = np.unique(self.class_of, return_index=True)[1]
        self._operators = [self.plan.operators[position] for position in events.positions]
        self._batched = any("batch" in operator.attributes for operator in self._operators)
        self._launches = Launches(events.schedule)
        self._class_members: dict[int, list[int]] = {}
        self._communicators: dict[tuple[int, int], int] = {}
        """Numbers of communicators, by the identity of a group, which the plan keeps, and a rank.
        """
        self.classes = self._programs([int(rank) for rank in representatives])

    def _operator(self, event: int) -> Operator:
        return self._operators[event]

    def _attribute(self, event: int, name: str, rank: int, microbatch: int) -> object:
        value = self._operators[event].attributes.get(name)
        if isinstance(value, Table):
            index, values = self.events.resolve(self.events.positions[event], name)
            return values[int(index[rank, microbatch])]
        return value

    def has_undeclared_sends(self) -> bool:
        """Return True if some send does not say whether it, or a wait for it, waits."""
        return any(
            communication_of(operator.kind) is Communication.SEND
            and None in attribute_values(operator.attributes.get("protocol"))
            for operator in self._operators
        )

    # --- programs of the classes

    def _programs(self, representatives: list[int]) -> list[_Class]:
        places = self.events.places_of(np.array(representatives, dtype=np.int64))
        classes = []
        for column, rank in enumerate(representatives):
            event, microbatch = np.nonzero(places[:, column] >= 0)
            order = np.argsort(places[event, column, microbatch], kind="stable")
            classes.append(
                self._program(
                    rank, list(zip(event[order].tolist(), microbatch[order].tolist(), strict=True))
                )
            )
        return classes

    def _program(self, rank: int, sequence: list[Event]) -> _Class:
        batches = (
            [(event, self._batch(event, rank, microbatch)) for event, microbatch in sequence]
            if self._batched
            else ()
        )
        steps = (
            [[sequence[place] for place in places] for places in joint(batches)]
            if self._batched
            else [[event] for event in sequence]
        )
        return _Class(
            rank, steps, {event: number for number, step in enumerate(steps) for event in step}
        )

    def _batch(self, event: int, rank: int, microbatch: int) -> object:
        return (
            self._attribute(event, "batch", rank, microbatch)
            if joins_batches(self._operator(event))
            else None
        )

    # --- needs

    def _partners(self, rank: int, event: int, microbatch: int) -> list[Place]:
        """Return the other sides of an event; one rank of each class in a group is enough."""
        if event in self.meetings.partner:
            other, peer, its = (int(v) for v in self.meetings.partner[event][rank, microbatch])
            return [(peer, other, its)]
        table = self.meetings.irregular.get(event)
        if table is not None:
            return [(int(r), int(e), int(m)) for e, r, m in table[rank, microbatch] if r >= 0]
        group = self._operator(event).group
        if group is None:
            return []
        number = self._communicator(group, rank)
        if number not in self._class_members:
            members = np.array(self.events.members_of[number])
            self._class_members[number] = members[
                np.unique(self.class_of[members], return_index=True)[1]
            ].tolist()
        found = self._class_members[number]
        # With one class among the members, it is the class of the rank.
        return (
            [(rank, event, microbatch)]
            if len(found) == 1
            else [(member, event, microbatch) for member in found]
        )

    def _communicator(self, group: Group, rank: int) -> int:
        key = (id(group), rank)
        if key not in self._communicators:
            self._communicators[key] = int(self.events.communicators(group).number[rank])
        return self._communicators[key]

    def _waits_for(self, rank: int, event: int, microbatch: int, strict: bool) -> list[Place]:
        """Return the places that must have been reached before the program goes on."""
        operator = self._operator(event)
        if communication_of(operator.kind) is Communication.WAIT:
            return self._awaited(rank, event, microbatch, strict)
        if self._attribute(event, "async", rank, microbatch):
            return []
        return self._met(rank, event, microbatch, strict)

    def _met(self, rank: int, event: int, microbatch: int, strict: bool) -> list[Place]:
        """Return the places that an event meets, none if it is a buffered send."""
        if communication_of(self._operator(event).kind) is Communication.SEND:
            protocol = self._attribute(event, "protocol", rank, microbatch)
            if protocol == "buffered" or (protocol is None and not strict):
                return []
        return self._partners(rank, event, microbatch)

    def _awaited(self, rank: int, event: int, microbatch: int, strict: bool) -> list[Place]:
        """Return the places met by the operations that a wait waits for.

        Only operations that were launched before it count.
        """
        steps = self.classes[int(self.class_of[rank])].step_of
        now = steps[event, microbatch]
        found = [
            (self.events.number_of[n], at)
            for n, at in self._launches.awaited(self.events.positions[event], microbatch)
        ]
        launched = [each for each in found if steps.get(each, now) < now]
        return [place for number, at in launched for place in self._met(rank, number, at, strict)]

    def _needs(self, number: int, strict: bool) -> list[list[Need]]:
        result: list[list[Need]] = []
        rank = self.classes[number].rank
        alone: dict[int, bool] = {}
        for step in self.classes[number].steps:
            needed: set[Need] = set()
            for event, microbatch in step:
                if event not in alone:
                    alone[event] = self._meets_its_class_alone(rank, event)
                if not alone[event]:
                    needed.update(map(self._need, self._waits_for(rank, event, microbatch, strict)))
            result.append(list(needed))
        return result

    def _meets_its_class_alone(self, rank: int, event: int) -> bool:
        """Return True if an event is a collective among ranks of one class, in every micro-batch.

        Then all are there as soon as one is.
        """
        operator = self._operator(event)
        if (
            operator.group is None
            or communication_of(operator.kind) is Communication.WAIT
            or event in self.meetings.partner
            or event in self.meetings.irregular
        ):
            return False
        return self._partners(rank, event, 0) == [(rank, event, 0)]

    def _need(self, place: Place) -> Need:
        other = int(self.class_of[place[0]])
        return other, self.classes[other].step_of[place[1], place[2]]

    # --- stuck

    def stuck(self, strict: bool) -> list[Violation]:
        """Return the cycles of waits among ranks that do not come to their end."""
        needs = [self._needs(number, strict) for number in range(len(self.classes))]
        reached = run_to_fixpoint(needs)
        cycles: dict[frozenset[int], list[Place]] = {}
        for number, found in enumerate(self.classes):
            if reached[number] < len(found.steps) and len(cycles) < _MOST_CYCLES:
                cycle = self._cycle(found.rank, reached, strict)
                cycles.setdefault(frozenset(int(self.class_of[place[0]]) for place in cycle), cycle)
        return [self._violation(cycle, strict) for cycle in cycles.values()]

    def _cycle(self, rank: int, reached: list[int], strict: bool) -> list[Place]:
        """Follow the first wait of every rank until a rank comes again.

        Return the cycle's places.
        """
        path: list[Place] = []
        seen: dict[int, int] = {}
        while rank not in seen:
            seen[rank] = len(path)
            number = int(self.class_of[rank])
            place, rank = self._first_wait(rank, number, reached, strict)
            path.append(place)
        return path[seen[rank] :]

    def _first_wait(
        self, rank: int, number: int, reached: list[int], strict: bool
    ) -> tuple[Place, int]:
        for event, microbatch in self.classes[number].steps[reached[number]]:
            for place in self._waits_for(rank, event, microbatch, strict):
                other, step = self._need(place)
                if reached[other] < step:
                    return (rank, event, microbatch), place[0]
        return (rank, *self.classes[number].steps[reached[number]][0]), rank

    def _violation(self, cycle: list[Place], strict: bool) -> Violation:
        parts = []
        for index, (rank, event, microbatch) in enumerate(cycle):
            operator = self._operator(event)
            other = cycle[(index + 1) % len(cycle)][0]
            verb = (
                f"rank {rank} waits in {operator.kind} {operator.id!r} (micro-batch "
                f"{microbatch}) for rank {other}"
            )
            parts.append(verb)
        text = ", and ".join(parts)
        if strict:
            advice = (
                "a send waits for its receive, as NCCL's do, unless it says otherwise; put them "
                "into one 'batch', reorder them, or say "
                '"protocol": "buffered" where what sends has room for the message'
            )
        else:
            advice = (
                "no timing resolves this, nor buffering of the sends that leave it open; "
                "reorder the operators of one of these ranks"
            )
        position = self.events.positions[cycle[0][1]]
        return Violation(
            "PIT012" if strict else "PIT007",
            f"operators[{position}]",
            f"{text}: {advice}",
            operator=self.plan.operators[position].id,
            ranks=tuple(place[0] for place in cycle[:16]),
            microbatches=tuple(place[2] for place in cycle[:16]),
        )
