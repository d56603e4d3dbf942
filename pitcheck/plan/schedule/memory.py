"""Memory while communication is in flight: accesses to one buffer that must not overlap in time.

An asynchronous operation uses its operands and its results from its launch until it is waited for.
Until then nobody may write its operands, nor read or write its results (MPI 4.1, section 3.7.2; the
same holds for NCCL, whose kernels run beside the program). This module holds plan files and
recorded programs to these rules.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Access(NamedTuple):
    """A read or a write of the places ``start`` to ``stop`` of a buffer.

    They are half-open, in one unit for all accesses.
    """

    buffer: Hashable
    start: int
    stop: int
    writes: bool
    name: str
    """The tensor that is read or written, for messages."""

    def conflicts(self, other: Access) -> bool:
        """Return True if the two accesses overlap and at least one of them writes."""
        return (
            (self.writes or other.writes)
            and self.buffer == other.buffer
            and self.start < other.stop
            and other.start < self.stop
        )


@dataclass(frozen=True)
class Flight:
    """An operation that was launched and not waited for yet."""

    handle: Hashable
    accesses: tuple[Access, ...]
    source: str
    """The operator, or the line of the program, that launched it."""


class Conflict(NamedTuple):
    """An access to places that an operation in flight uses."""

    flight: Flight
    held: Access
    """The access of the flight."""
    access: Access

    @property
    def message(self) -> str:
        """The two accesses in words, without the operator of the second one."""
        verb = "writes" if self.access.writes else "reads"
        held = "is still writing" if self.held.writes else "still reads"
        place = (
            f"{self.access.name!r}"
            if self.access.name == self.held.name
            else f"{self.access.name!r}, in the memory of {self.held.name!r}"
        )
        return f"{verb} {place}, which {self.flight.source} {held}"


class InFlight:
    """The operations of one rank that are in flight at one moment."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, Flight] = {}
        self._by_buffer: dict[Hashable, dict[Hashable, list[Access]]] = {}

    def launch(self, handle: Hashable, accesses: Iterable[Access], source: str) -> list[Conflict]:
        """Begin an operation; return its conflicts with operations that were launched before.

        ``handle`` must not be in flight; accesses of the operation itself may overlap.
        """
        flight = Flight(handle, tuple(accesses), source)
        found = [conflict for access in flight.accesses for conflict in self.touch(access)]
        self._flights[handle] = flight
        for access in flight.accesses:
            self._by_buffer.setdefault(access.buffer, {}).setdefault(handle, []).append(access)
        return found

    def touch(self, access: Access) -> list[Conflict]:
        """Return the conflicts of an access that happens now, at once."""
        held = self._by_buffer.get(access.buffer, {})
        return [
            Conflict(self._flights[handle], other, access)
            for handle, others in held.items()
            for other in others
            if other.conflicts(access)
        ]

    def finish(self, handle: Hashable) -> Flight | None:
        """End an operation that was waited for and return it; None if it is not in flight."""
        flight = self._flights.pop(handle, None)
        if flight is not None:
            for access in flight.accesses:
                self._by_buffer[access.buffer].pop(handle, None)
        return flight

    def __contains__(self, handle: Hashable) -> bool:
        return handle in self._flights

    def __iter__(self) -> Iterator[Flight]:
        """Iterate over the operations in flight, in the order of their launches."""
        return iter(list(self._flights.values()))
