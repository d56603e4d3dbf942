"""The events of a plan: collectives, sends and receives, with their places in each rank's order."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.errors import PlanError
from pitcheck.plan.model import Attribute, Group, Plan, Table
from pitcheck.plan.schedule.run_order import Ints, Mask, Schedule, is_event


class Communicators:
    """The groups of one :class:`Group` as arrays over ranks, -1 for a rank in none.

    ``number``, shape (ranks,): the number of the rank's group among all of the plan. ``slot``,
    shape (ranks,): its place in it. ``members``, shape (ranks, size): all members in order, padded
    with -1.
    """

    def __init__(self, ranks: int, lists: list[tuple[int, ...]], numbers: list[int]) -> None:
        self.lists = lists
        self.number = np.full(ranks, -1, dtype=np.int64)
        self.slot = np.full(ranks, -1, dtype=np.int64)
        self.size = max((len(members) for members in lists), default=0)
        self.members = np.full((ranks, self.size), -1, dtype=np.int64)
        for members, number in zip(lists, numbers, strict=True):
            chosen = np.array(members, dtype=np.int64)
            self.number[chosen] = number
            self.slot[chosen] = np.arange(len(members))
            self.members[chosen, : len(members)] = chosen


class Events:
    """All events of a plan.

    ``positions`` are their operators' places in the plan's list; an *event number* is an index into
    it.
    """

    def __init__(self, plan: Plan, schedule: Schedule | None = None) -> None:
        self.plan = plan
        self.schedule = schedule or Schedule(plan)
        self.coordinates = self.schedule.coordinates
        self.positions = [n for n, operator in enumerate(plan.operators) if is_event(operator)]
        self.number_of = {position: number for number, position in enumerate(self.positions)}
        self.members_of: list[tuple[int, ...]] = []
        """The rank list of every communicator of the plan, by its number."""
        self._communicator_numbers: dict[tuple[tuple[int, ...], str], int] = {}
        self._communicators: dict[Group, Communicators] = {}
        self._peers: dict[int, Ints] = {}
        """Peers by the identity of their table, which the plan keeps."""
        self._places, self._program_index = self._find_places()

    def _find_places(self) -> tuple[NDArray[np.int32], Ints]:
        event_of = np.full(len(self.plan.operators) + 1, -1, dtype=np.int64)
        event_of[self.positions] = np.arange(len(self.positions))
        orders = list(self.schedule.orders())
        microbatches = self.schedule.microbatches
        places = np.full((len(orders), len(self.positions), microbatches), -1, dtype=np.int32)
        index = np.zeros(self.coordinates.ranks, dtype=np.int64)
        for row, (_, order) in enumerate(orders):
            index[order.ranks] = row
            events = event_of[order.codes // microbatches]
            chosen = np.flatnonzero(events >= 0)
            places[row, events[chosen], order.codes[chosen] % microbatches] = chosen
        return places, index

    def places(self, event: int) -> Ints:
        """Return the place of the event in the order of every rank, shape (ranks, microbatches).

        It is -1 at coordinates at which the event does not run.
        """
        places: Ints = self._places[self._program_index, event].astype(np.int64)
        places[~self.schedule.mask(self.positions[event])] = -1
        return places

    def places_of(self, ranks: Ints) -> Ints:
        """Return the places of all events in the orders of ``ranks``.

        Shape (events, ranks, microbatches). They are -1 at coordinates at which the event does not
        run.
        """
        places: Ints = self._places[self._program_index[ranks]].transpose(1, 0, 2).astype(np.int64)
        rows: dict[int, Mask] = {}
        for event, position in enumerate(self.positions):
            number = self.schedule.mask_number(position)
            if number not in rows:
                rows[number] = ~self.schedule.mask(position)[ranks]
            places[event][rows[number]] = -1
        return places

    def runs(self, event: int) -> Mask:
        """Return True where the event runs, shape (ranks, microbatches)."""
        mask: Mask = self.places(event) >= 0
        return mask

    def communicators(self, group: Group, place: str = "group") -> Communicators:
        """Return the groups of a record as arrays.

        Raises:
            PlanError: as ``Coordinates.groups``.
        """
        found = self._communicators.get(group)
        if found is None:
            lists = self.coordinates.groups(group, place)
            found = self._communicators[group] = Communicators(
                self.coordinates.ranks,
                lists,
                [self._communicator(members, group.name) for members in lists],
            )
        return found

    def _communicator(self, members: tuple[int, ...], name: str) -> int:
        number = self._communicator_numbers.get((members, name))
        if number is None:
            number = self._communicator_numbers[members, name] = len(self.members_of)
            self.members_of.append(members)
        return number

    def resolve(
        self, position: int, name: str, default: Attribute = None
    ) -> tuple[Ints, list[Any]]:
        """Return an attribute at every coordinate.

        Returns:
            The index of each coordinate's value, shape (ranks, microbatches), and the values.
        """
        value = self.plan.operators[position].attributes.get(name, default)
        if isinstance(value, Table):
            positions, values = self.coordinates.table(
                value, f"operators[{position}].attributes.{name}"
            )
            return positions, list(values)
        return np.zeros((self.coordinates.ranks, self.schedule.microbatches), dtype=np.int64), [
            value
        ]

    def peers(self, event: int) -> Ints:
        """Return the peer rank of a send or receive, shape (ranks, microbatches).

        Raises:
            PlanError: if a peer is not a number.
        """
        position = self.positions[event]
        table = self.plan.operators[position].attributes.get("peer")
        known = self._peers.get(id(table)) if isinstance(table, Table) else None
        if known is not None:
            return known
        index, values = self.resolve(position, "peer")
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int):
                raise PlanError(
                    f"{self.plan.operators[position].kind} needs attribute 'peer', a rank; it is "
                    f"{value!r}",
                    f"operators[{position}].attributes.peer",
                )
        peers: Ints = np.array([min(max(value, -1), 2**62) for value in values], dtype=np.int64)[
            index
        ]
        if isinstance(table, Table):
            self._peers[id(table)] = peers
        return peers

    def tags(self, event: int) -> tuple[Ints, list[int | str]]:
        """Return the tags of a send or receive.

        Returns:
            The index of each coordinate's tag, shape (ranks, microbatches), and the tags.

        Raises:
            PlanError: if a tag is neither an integer nor a name.
        """
        position = self.positions[event]
        index, values = self.resolve(position, "tag", 0)
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | str):
                operator = self.plan.operators[position]
                message = f"{operator.kind} has tag {value!r}; a tag is an integer or a name"
                raise PlanError(message, f"operators[{position}].attributes.tag")
        return index, values

    @cached_property
    def classes(self) -> Ints:
        """The class of every rank, shape (ranks,): equal for the same events in the same order.

        Ranks of a class have the same program and stand in the same ``where`` of every event.
        """
        classes = self._program_index.copy()
        seen: set[int] = set()
        for event, position in enumerate(self.positions):
            number = self.schedule.mask_number(position)
            if number not in seen:
                seen.add(number)
                classes = refined(classes, row_numbers(self.schedule.mask(position)))
            for name, value in self.plan.operators[position].attributes.items():
                if isinstance(value, Table) and name != "peer":
                    index, values = self.resolve(position, name)
                    equal = {entry: n for n, entry in enumerate(dict.fromkeys(map(repr, values)))}
                    at = np.array([equal[repr(entry)] for entry in values], dtype=np.int64)[index]
                    at[~self.runs(event)] = -1
                    classes = refined(classes, row_numbers(at))
        return classes


def row_numbers(table: NDArray[Any]) -> Ints:
    """Return equal numbers for equal rows of a 2-d array, shape (rows,)."""
    rows = np.packbits(table, axis=1) if table.dtype == np.bool_ else np.ascontiguousarray(table)
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).reshape(-1)
    numbers: Ints = np.unique(whole, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return numbers


def refined(classes: Ints, column: Ints) -> Ints:
    """Return classes split by a further column of numbers (>= -1), shape (ranks,)."""
    combined = classes * (int(column.max(initial=0)) + 2) + column + 1
    numbers: Ints = np.unique(combined, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return numbers
