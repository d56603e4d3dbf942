"""The communication of one rank that is in flight, and accesses to its memory.

Places are counted in bytes of a storage, so that views of any dtype can be compared.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import torch

from pitcheck.errors import PlanError
from pitcheck.frontends.torch.storage.geometry import Geometry, geometry
from pitcheck.plan.schedule.memory import Access, Conflict, InFlight

SPLIT = 1 << 16
"""The greatest number of elements of a view with gaps that is looked at element by element.

A larger one counts as all of its extent.
"""


@dataclass(eq=False)
class Used:
    """The memory that a part of the program has used: accesses, and the tensors they are of."""

    accesses: list[Access] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)

    def add(self, accesses: Iterable[Access], tensors: Iterable[torch.Tensor]) -> None:
        """Add some accesses and the tensors that they are of."""
        self.accesses += accesses
        self.tensors += tensors


class Flights:
    """The operations in flight, by a handle. It must be told of every access to memory."""

    def __init__(self) -> None:
        self._in_flight = InFlight()
        self._by_buffer: dict[int, dict[Hashable, None]] = {}
        self._tensors: dict[Hashable, list[torch.Tensor]] = {}
        """The tensors of what is in flight, held so that no other buffer gets their identity."""
        self._watched: list[Used] = []

    def launch(
        self,
        handle: Hashable,
        what: str,
        read: Iterable[torch.Tensor],
        written: Iterable[torch.Tensor],
        source: str,
    ) -> None:
        """Begin an operation, which ``what`` names.

        Raises PlanError if it conflicts with one that was launched before.
        """
        read, written = list(read), list(written)
        used = Used(
            [
                *(access for tensor in read for access in _accesses(tensor, False)),
                *(access for tensor in written for access in _accesses(tensor, True)),
            ],
            [*read, *written],
        )
        conflicts = self._begin(handle, used, f"the {what} launched at {source}")
        if conflicts:
            raise _refused(conflicts[0], f"the {what} launched at {source}")
        self._watch(used)

    def again(self, handle: Hashable, used: Used, source: str) -> None:
        """Hold memory that was used for as long as an operation takes, which ``source`` names.

        Its accesses are not compared with those of others: they were when they were made.
        """
        if used.accesses:
            self._begin(handle, used, source)

    def _begin(self, handle: Hashable, used: Used, source: str) -> list[Conflict]:
        conflicts = self._in_flight.launch(handle, used.accesses, source)
        self._tensors[handle] = used.tensors
        for access in used.accesses:
            if isinstance(access.buffer, int):
                self._by_buffer.setdefault(access.buffer, {})[handle] = None
        return conflicts

    @contextmanager
    def watched(self) -> Iterator[Used]:
        """Return what the program uses within, also by operations that end within."""
        used = Used()
        self._watched.append(used)
        try:
            yield used
        finally:
            self._watched.pop()

    def _watch(self, used: Used) -> None:
        for watched in self._watched:
            watched.add(used.accesses, used.tensors)

    def finish(self, handle: Hashable) -> None:
        """End an operation that was waited for."""
        flight = self._in_flight.finish(handle)
        if flight is None:
            return
        self._watch(Used(list(flight.accesses), self._tensors.pop(handle)))
        for access in flight.accesses:
            if isinstance(access.buffer, int):
                held = self._by_buffer.get(access.buffer, {})
                held.pop(handle, None)
                if not held:
                    self._by_buffer.pop(access.buffer, None)

    def touch(self, tensor: torch.Tensor, writes: bool, what: str, where: str) -> None:
        """Check a read or write of a tensor by an operator, which ``what`` names.

        Raises PlanError if it conflicts with what is in flight.
        """
        used = tensor.untyped_storage()._cdata in self._by_buffer
        if not used and not self._watched:
            return
        accesses = _accesses(tensor, writes)
        self._watch(Used(accesses, [tensor]))
        for access in accesses if used else ():
            conflicts = self._in_flight.touch(access)
            if conflicts:
                raise _refused(conflicts[0], f"{what} at {where}" if where else what)

    def sources(self) -> list[tuple[Hashable, str]]:
        """Return the handles and launches of all that is in flight, in launch order."""
        return [(flight.handle, flight.source) for flight in self._in_flight]


def overlap(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return True if two tensors share memory."""
    others = _accesses(second, True)
    return any(access.conflicts(other) for access in _accesses(first, True) for other in others)


def _refused(conflict: Conflict, who: str) -> PlanError:
    does = "writes to" if conflict.access.writes else "reads"
    held = "is still writing to" if conflict.held.writes else "still reads"
    return PlanError(
        f"{who} {does} {conflict.access.name} in memory that {conflict.flight.source} {held}; "
        f"wait for it before"
    )


def _accesses(tensor: torch.Tensor, writes: bool) -> list[Access]:
    size = tensor.element_size()
    view = geometry(tensor.shape, tensor.stride(), int(tensor.storage_offset()))
    buffer = tensor.untyped_storage()._cdata
    name = f"a tensor of shape {tuple(tensor.shape)}"
    return [
        Access(buffer, start * size, stop * size, writes, name) for start, stop in _stretches(view)
    ]


def _stretches(view: Geometry) -> list[tuple[int, int]]:
    """Return the intervals of a storage that a view touches, in elements."""
    start, stop = view.extent
    if start == stop:
        return []
    single = view.single()
    if single.dense or single.elements > SPLIT:
        return [(start, stop)]
    places = sorted(set(single.offsets()))
    ends = [index + 1 for index, (one, other) in enumerate(pairwise(places)) if other != one + 1]
    return [
        (start + places[begin], start + places[end - 1] + 1)
        for begin, end in pairwise([0, *ends, len(places)])
    ]
