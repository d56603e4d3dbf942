"""The symmetry quotient of the ranks.

Ranks are one if they run the same events in the same order and meet ranks of the same classes. This
is the coarsest equitable partition that refines "same program" (colour refinement; Paige and Tarjan
1987). Progress of a deterministic system depends on nothing else, so it is the same on all ranks of
a class.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pitcheck.ops.registry import communication_of
from pitcheck.ops.traits import Communication
from pitcheck.plan.schedule.events import Events, refined, row_numbers
from pitcheck.plan.schedule.matching import Matching
from pitcheck.plan.schedule.run_order import PAIRED, Ints


class Meetings:
    """Meetings seen from every event.

    They are the tables of a :class:`Matching`, with the way from a send to its receive added.
    """

    def __init__(self, events: Events, matching: Matching) -> None:
        self.events = events
        self.matching = matching
        self.plan = events.plan
        self.partner: dict[int, Ints] = {}
        """The other side of a send or receive, by event number: event number, rank and micro-batch,
        int64 (ranks, microbatches, 3).
        """
        self.irregular: dict[int, Ints] = {}
        """The members of a collective whose members differ, by event number: the same numbers of
        each, int64 (ranks, microbatches, members, 3).
        """
        self._fill()

    def _fill(self) -> None:
        shape = (self.events.coordinates.ranks, self.events.schedule.microbatches, 3)
        for number, position in enumerate(self.events.positions):
            operator = self.plan.operators[position]
            if operator.kind in PAIRED:
                self.partner[number] = np.full(shape, -1, dtype=np.int64)
            members = self.matching.members.get(operator.id)
            if members is not None:
                self.irregular[number] = self._as_events(members)
        for number in self.partner:
            operator = self.plan.operators[self.events.positions[number]]
            if communication_of(operator.kind) is Communication.RECEIVE:
                found = self._as_events(self.matching.received[operator.id])
                self.partner[number] = found
                rank, microbatch = np.nonzero(found[..., 0] >= 0)
                met = found[rank, microbatch]
                for send in np.unique(met[:, 0]):
                    here = met[:, 0] == send
                    target = self.partner[int(send)]
                    target[met[here, 1], met[here, 2]] = np.stack(
                        [np.full(here.sum(), number), rank[here], microbatch[here]], axis=1
                    )

    def _as_events(self, table: Ints) -> Ints:
        """Return the table with event numbers instead of positions of operators."""
        event_of = np.full(len(self.plan.operators) + 1, -1, dtype=np.int64)
        event_of[self.events.positions] = np.arange(len(self.events.positions))
        result = table.copy()
        result[..., 0] = event_of[table[..., 0]]
        return result

    def columns(self) -> Iterator[NDArray[np.int64]]:
        """Yield other events and micro-batches, which do not depend on classes.

        Each is a 2-d array with a row per rank.
        """
        for table in (*self.partner.values(), *self.irregular.values()):
            yield table[..., 0].reshape(len(table), -1)
            yield table[..., 2].reshape(len(table), -1)

    def met_ranks(self) -> list[Ints]:
        """Return the different tables of met ranks, each 2-d with a row per rank; -1 for nobody."""
        tables = [
            table[..., 1].reshape(len(table), -1)
            for table in (*self.partner.values(), *self.irregular.values())
        ]
        for group in {
            operator.group for operator in self.plan.operators if operator.group is not None
        }:
            tables.append(self.events.communicators(group).members)
        narrow = [
            table[:, :1] if table.shape[1] and (table == table[:, :1]).all() else table
            for table in tables
        ]
        return list(
            {
                (table.shape[1], table.tobytes()): table for table in narrow if table.shape[1]
            }.values()
        )


def equitable_classes(meetings: Meetings) -> Ints:
    """Return the class of every rank, shape (ranks,), numbered from 0."""
    classes = meetings.events.classes
    for column in distinct(meetings.columns()):
        classes = refined(classes, row_numbers(column))
    tables = meetings.met_ranks()
    count = -1
    while count != int(classes.max(initial=0)):
        count = int(classes.max(initial=0))
        for table in tables:
            met = np.where(table >= 0, classes[np.maximum(table, 0)], -1)
            classes = refined(classes, row_numbers(met))
    return classes


def distinct(columns: Iterator[NDArray[np.int64]]) -> Iterator[NDArray[np.int64]]:
    """Yield every different array once, constant ones left out."""
    seen: set[tuple[int, bytes]] = set()
    for column in columns:
        if not column.size or (column == column[:1]).all():
            continue
        key = (column.shape[1], column.tobytes())
        if key not in seen:
            seen.add(key)
            yield column
