"""Communication in time: the places at which an operation begins to use its buffers and ends.

An operation that blocks begins and ends at its place. One in a ``batch`` begins with the first of
its batch and ends with the last. An asynchronous one begins likewise, and ends at the first
``wait`` for it. A ``wait`` with an output waits for the operation that makes its input. A ``wait``
without one waits for the asynchronous sends of its input; if it has the attribute ``of``, for those
named there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pitcheck.ops.registry import communication_of
from pitcheck.ops.traits import Communication
from pitcheck.plan.model import Operator, Table, Use
from pitcheck.plan.rules.program_rules import LocalOrder
from pitcheck.plan.schedule.run_order import Ints, Schedule, is_event, tensor_of


@dataclass(frozen=True)
class Launch:
    """An operation that is in flight for more than its place, in the order of one rank.

    ``start`` and ``place`` are places in that order; ``wait`` is the place of its wait, ``last``
    that of the last of its batch. Both are None for an asynchronous operation that nothing waits
    for.
    """

    code: int
    place: int
    start: int
    wait: int | None = None
    last: int | None = None


def joint(sequence: Sequence[tuple[Hashable, object]]) -> Iterator[list[int]]:
    """Yield the places of joint events in a rank's sequence of (operator, batch).

    Consecutive events of one batch are joint. An operator that comes again, for another
    micro-batch, begins another batch.
    """
    found: list[int] = []
    members: set[Hashable] = set()
    for place, (operator, batch) in enumerate(sequence):
        joins = (
            found
            and batch is not None
            and batch == sequence[found[-1]][1]
            and operator not in members
        )
        if found and not joins:
            yield found
            found, members = [], set()
        found.append(place)
        members.add(operator)
    if found:
        yield found


def joins_batches(operator: Operator) -> bool:
    """Return True if an event may run together with others of its batch: one that moves data.

    A wait and a barrier stop the program.
    """
    return communication_of(operator.kind) not in (Communication.WAIT, Communication.BARRIER)


class Launches:
    """The operations of a plan that are in flight for more than their place."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.plan = schedule.plan
        self.microbatches = schedule.microbatches
        self._events = np.array(
            [is_event(operator) for operator in self.plan.operators], dtype=np.bool_
        )
        self._makers: dict[str, list[int]] = {}
        self._senders: dict[str, list[int]] = {}
        self._index: dict[int, Ints] = {}
        for position, operator in enumerate(self.plan.operators):
            if operator.attributes and operator.attributes.get("async") and self._events[position]:
                self._note(position, operator)
        timed = [
            n
            for n in np.flatnonzero(self._events)
            if {"async", "batch"} & self.plan.operators[n].attributes.keys()
        ]
        self.timed = np.array(timed, dtype=np.int64)
        """The positions of the operators with an attribute ``async`` or ``batch``, shape (n,)."""

    def _note(self, position: int, operator: Operator) -> None:
        for name in operator.outputs:
            self._makers.setdefault(name, []).append(position)
        if not operator.outputs and operator.inputs:
            self._senders.setdefault(tensor_of(operator.inputs[0]) or "", []).append(position)

    # --- waits

    def awaited(self, position: int, microbatch: int) -> list[tuple[int, int]]:
        """Return the operators that a ``wait`` waits for, as (position, micro-batch).

        ``position`` is that of the wait. It waits for each at the coordinates at which that one
        runs.
        """
        operator = self.plan.operators[position]
        operand = operator.inputs[0] if operator.inputs else None
        name = tensor_of(operand) if operand is not None else None
        if name is None:
            return []
        if isinstance(operand, Use):
            microbatch = operand.microbatch
        if operator.outputs:
            return [
                (n, microbatch if self.schedule.per_microbatch(n) else 0)
                for n in self._makers.get(name, [])
            ]
        return [(n, at) for n in self._sent(operator, name) for at in self._sending(n, microbatch)]

    def _sending(self, position: int, microbatch: int) -> list[int]:
        """Return the micro-batches at which a send sends its tensor's version of ``microbatch``."""
        per_microbatch = self.schedule.per_microbatch(position)
        operand = self.plan.operators[position].inputs[0]
        if not isinstance(operand, Use):
            return [microbatch if per_microbatch else 0]
        return (
            list(range(self.microbatches) if per_microbatch else (0,))
            if operand.microbatch == microbatch
            else []
        )

    def _sent(self, operator: Operator, name: str) -> list[int]:
        of = operator.attributes.get("of")
        named = (of,) if isinstance(of, str) else of
        found = self._senders.get(name, [])
        return (
            [n for n in found if self.plan.operators[n].id in named]
            if isinstance(named, tuple)
            else found
        )

    # --- the order of a rank

    def of(self, local: LocalOrder) -> Iterator[tuple[Ints, list[Launch]]]:
        """Yield the launches of the ranks of a class, as (ranks, launches in order of places).

        Tables may tell ranks of one class apart: each part of the class comes by itself.
        """
        if not len(self.timed):
            yield local.ranks, []
            return
        tables = [
            t
            for n in self.timed
            for k, t in self.plan.operators[n].attributes.items()
            if k in ("async", "batch") and isinstance(t, Table)
        ]
        for ranks in self._told_apart(local.ranks, tables):
            yield ranks, self._launches(int(ranks[0]), local.codes)

    def _told_apart(self, ranks: Ints, tables: list[Table]) -> list[Ints]:
        if not tables:
            return [ranks]
        rows = np.concatenate([self._numbers(table)[ranks] for table in tables], axis=1)
        _, numbers = np.unique(rows, axis=0, return_inverse=True)
        return [ranks[numbers.reshape(-1) == number] for number in range(int(numbers.max()) + 1)]

    def _numbers(self, table: Table) -> Ints:
        """Return the number of a table's value at every coordinate, shape (ranks, microbatches).

        Equal values have one number.
        """
        known: dict[str, int] = {}
        numbers: Ints = np.array(
            [known.setdefault(repr(value), len(known)) for value in table.values], dtype=np.int64
        )
        return numbers[self._places(table)]

    def _places(self, table: Table) -> Ints:
        """Return the place of every coordinate in a table, shape (ranks, microbatches).

        The plan keeps its tables, so their identities stay.
        """
        found = self._index.get(id(table))
        if found is None:
            found = self._index[id(table)] = self.schedule.coordinates.table(table)[0]
        return found

    def _attribute(self, operator: Operator, name: str, rank: int, microbatch: int) -> object:
        value = operator.attributes.get(name)
        return (
            value.values[int(self._places(value)[rank, microbatch])]
            if isinstance(value, Table)
            else value
        )

    def _launches(self, rank: int, codes: Ints) -> list[Launch]:
        positions = codes // self.microbatches
        events = np.flatnonzero(self._events[positions])
        batches = [
            self._batch(self.plan.operators[positions[p]], rank, int(codes[p] % self.microbatches))
            for p in events
        ]
        waits = self._waits(codes, events)
        found = []
        for places in joint(list(zip(positions[events].tolist(), batches, strict=True))):
            first, last = int(events[places[0]]), int(events[places[-1]])
            for place in (int(events[n]) for n in places):
                operator = self.plan.operators[positions[place]]
                code = int(codes[place])
                if communication_of(operator.kind) is not Communication.WAIT and self._attribute(
                    operator, "async", rank, code % self.microbatches
                ):
                    found.append(
                        Launch(
                            code,
                            place,
                            first,
                            next((w for w in waits.get(code, ()) if w > place), None),
                        )
                    )
                elif len(places) > 1:
                    found.append(Launch(code, place, first, last=last))
        return found

    def _batch(self, operator: Operator, rank: int, microbatch: int) -> object:
        return (
            self._attribute(operator, "batch", rank, microbatch)
            if joins_batches(operator)
            else None
        )

    def _waits(self, codes: Ints, events: Ints) -> dict[int, list[int]]:
        """Return the places of the waits for every code."""
        found: dict[int, list[int]] = {}
        for place in events.tolist():
            position, microbatch = divmod(int(codes[place]), self.microbatches)
            if communication_of(self.plan.operators[position].kind) is Communication.WAIT:
                for launched, at in self.awaited(position, microbatch):
                    found.setdefault(launched * self.microbatches + at, []).append(place)
        return found
