"""Tables of the intervals that ranks hold, over the fewest axes that tell them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from pitcheck.errors import PlanError
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Table

Intervals = tuple[tuple[int, int], ...]


class Places:
    """The places of ranks along mesh axes; every choice of axes is counted once."""

    def __init__(self, coordinates: Coordinates) -> None:
        self.coordinates = coordinates
        self._known: dict[tuple[str, ...], list[int]] = {}

    def along(self, axes: tuple[str, ...]) -> list[int]:
        """Return the row-major position of every rank along ``axes``."""
        if axes not in self._known:
            self._known[axes] = self.coordinates.row_major(axes)[:, 0].tolist()
        return self._known[axes]

    def table(self, axes: Sequence[str], held: Mapping[int, Intervals]) -> Table:
        """Return the intervals that ranks hold, over the fewest of ``axes`` that tell them apart.

        A position at which no rank holds any has those of some other rank.

        Raises:
            PlanError: if no axes tell the parts apart.
        """
        usual = next(iter(held.values()))
        for count in range(len(axes) + 1):
            for chosen in combinations(axes, count):
                places = self.along(chosen)
                entries: dict[int, Intervals] = {}
                if all(
                    entries.setdefault(places[rank], intervals) == intervals
                    for rank, intervals in held.items()
                ):
                    return Table(
                        chosen,
                        tuple(
                            entries.get(position, usual)
                            for position in range(self.coordinates.count(chosen))
                        ),
                    )
        raise PlanError(
            f"a tensor has two parts on ranks that no axis among {', '.join(axes)} tells apart"
        )
