"""Counts of what a program asks of a device: launches, transfers, waits, memory.

>>> counter = Counter()
>>> counter.launch("add")
>>> counter.launch("scan", 2)
>>> before = counter.copy()
>>> counter.to_host(8)
>>> counter.since(before).synchronisations, counter.launches, counter.by_name["scan"]
(1, 3, 2)
"""

from __future__ import annotations

from collections import Counter as Tally
from dataclasses import dataclass, field, fields, replace


@dataclass
class Counter:
    """Counts since the stand-in was made.

    ``launches`` are kernels and fills of memory. ``by_name`` counts them by the function that
    launched them. ``sent`` and ``fetched`` are transfers to and from the device. A fetch waits
    for the device, and so counts as a synchronisation.
    """

    launches: int = 0
    sent: int = 0
    sent_bytes: int = 0
    fetched: int = 0
    fetched_bytes: int = 0
    synchronisations: int = 0
    live_bytes: int = 0
    peak_bytes: int = 0
    by_name: Tally[str] = field(default_factory=Tally)

    def launch(self, name: str, count: int = 1) -> None:
        """Count launches of one function."""
        self.launches += count
        self.by_name[name] += count

    def to_device(self, size: int) -> None:
        """Count a transfer of so many bytes to the device."""
        self.sent += 1
        self.sent_bytes += size

    def to_host(self, size: int) -> None:
        """Count a transfer of so many bytes to the host, which waits for the device."""
        self.fetched += 1
        self.fetched_bytes += size
        self.synchronisations += 1

    def allocate(self, size: int) -> None:
        """Count memory that is taken, or with a negative size given back."""
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def copy(self) -> Counter:
        """Return the counts as they are now."""
        return replace(self, by_name=Tally(self.by_name))

    def since(self, before: Counter) -> Counter:
        """Return what was counted after ``before``; the peak is that of all time."""
        names = [f.name for f in fields(self) if f.name not in ("by_name", "peak_bytes")]
        more = {name: getattr(self, name) - getattr(before, name) for name in names}
        return Counter(**more, peak_bytes=self.peak_bytes, by_name=self.by_name - before.by_name)
