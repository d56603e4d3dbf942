"""Contents of buffers: the versions in each place of a storage.

They change as a rank goes through its order.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple


class Stretch(NamedTuple):
    """Places ``start`` to ``stop`` (half-open) of a buffer, and the versions that lie there.

    There are several versions if one is a view of another.
    """

    start: int
    stop: int
    versions: frozenset[Hashable]
    writer: int
    """The code of the operator that wrote them, -1 for contents from the beginning."""


class Contents:
    """The stretches of one buffer, in order and without overlaps.

    There are none in places that nothing has written to.
    """

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []

    def write(self, start: int, stop: int, version: Hashable, writer: int) -> None:
        """Replace the contents of an interval."""
        if start < stop:
            new = [*self._outside(start, stop), Stretch(start, stop, frozenset({version}), writer)]
            self.stretches = sorted(new, key=lambda stretch: stretch.start)

    def view(self, start: int, stop: int, version: Hashable) -> None:
        """Add a version that is a view of the contents of an interval."""
        inside = [s._replace(versions=s.versions | {version}) for s in self.within(start, stop)]
        self.stretches = sorted(
            [*self._outside(start, stop), *inside], key=lambda stretch: stretch.start
        )

    def _outside(self, start: int, stop: int) -> Iterator[Stretch]:
        for stretch in self.stretches:
            if stretch.start < min(stretch.stop, start):
                yield stretch._replace(stop=min(stretch.stop, start))
            if max(stretch.start, stop) < stretch.stop:
                yield stretch._replace(start=max(stretch.start, stop))

    def within(self, start: int, stop: int) -> Iterator[Stretch]:
        """Yield the stretches of an interval, cut to it."""
        for stretch in self.stretches:
            first, last = max(stretch.start, start), min(stretch.stop, stop)
            if first < last:
                yield stretch._replace(start=first, stop=last)

    def others(self, start: int, stop: int, *versions: Hashable) -> Stretch | None:
        """Return the first stretch of an interval without these versions; None if each has one."""
        return next((s for s in self.within(start, stop) if not s.versions & set(versions)), None)
