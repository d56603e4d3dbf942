"""Meetings among all ranks, from meetings among representatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import numpy as np

from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Group
from pitcheck.plan.schedule.events import Communicators
from pitcheck.plan.schedule.representatives import Representatives
from pitcheck.plan.schedule.run_order import Ints

Entry = TypeVar("Entry")


class OnDemand(Mapping[str, Entry]):
    """A mapping with ``of(key, few[key])`` for every key of ``few``, made when it is asked for."""

    def __init__(self, few: Mapping[str, Entry], of: Callable[[str, Entry], Entry]) -> None:
        self._few = few
        self._of = of

    def __getitem__(self, key: str) -> Entry:
        return self._of(key, self._few[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._few)

    def __len__(self) -> int:
        return len(self._few)


def lifted_received(table: Ints, few: Representatives) -> Ints:
    """Return the table of a receive from that of the kept ranks.

    Its shape is (ranks, microbatches, 3), int64.
    """
    found: Ints = table[few.of_rank]
    found[..., 1] = few.met_rank(np.arange(len(found))[:, None], found[..., 1])
    return found


def lifted_members(
    table: Ints, few: Representatives, coordinates: Coordinates, group: Group, kept_group: Group
) -> Ints:
    """Return the table of a collective from that of the kept ranks.

    Its shape is (ranks, microbatches, members, 3), int64. ``kept_group`` is its group among the
    kept ranks. A member does what the kept rank that stands for it does in the same turn.
    """
    members = _communicators(coordinates, group).members
    slot = _communicators(Coordinates.of(few.plan), kept_group).slot
    places = np.where(members < 0, 0, slot[few.of_rank[np.maximum(members, 0)]])
    found: Ints = np.take_along_axis(table[few.of_rank], places[:, None, :, None], axis=2)
    absent = (found[..., 0] < 0) | (members < 0)[:, None, :]
    found[..., 1] = members[:, None, :]
    found[absent] = -1
    return found


def _communicators(coordinates: Coordinates, group: Group) -> Communicators:
    lists = coordinates.groups(group)
    return Communicators(coordinates.ranks, lists, list(range(len(lists))))
