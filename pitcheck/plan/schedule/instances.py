"""Single events of a schedule, as columns of equal length."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pitcheck.plan.schedule.events import Events
from pitcheck.plan.schedule.run_order import Ints


class Instances(NamedTuple):
    """Single events as columns of equal length, each int64 of shape (events,)."""

    rank: Ints
    microbatch: Ints
    event: Ints
    place: Ints


def instances_of(events: Events, number: int, where: NDArray[np.bool_] | None = None) -> Instances:
    """Return all coordinates at which an event runs and ``where``, of shape (ranks,), holds."""
    places = events.places(number)
    if where is not None:
        places[~where] = -1
    rank, microbatch = np.nonzero(places >= 0)
    return Instances(
        rank, microbatch, np.full(len(rank), number, dtype=np.int64), places[rank, microbatch]
    )


def joined(parts: list[Instances]) -> Instances:
    """Return the parts one behind the other."""
    empty = np.zeros(0, dtype=np.int64)
    return Instances(
        *(np.concatenate([part[i] for part in parts]) if parts else empty for i in range(4))
    )


def counted(*keys: Ints) -> Ints:
    """Return how many equal rows stand before each, for rows sorted by ``keys``; shape (rows,)."""
    if not len(keys[0]):
        return np.zeros(0, dtype=np.int64)
    starts = np.zeros(len(keys[0]), dtype=np.bool_)
    starts[0] = True
    for key in keys:
        starts[1:] |= key[1:] != key[:-1]
    first = np.flatnonzero(starts)
    counts: Ints = np.arange(len(starts)) - np.repeat(first, np.diff(np.append(first, len(starts))))
    return counts
