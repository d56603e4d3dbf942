"""The rows of tables that drawn integers read, over all draws of a stage that count.

Two tables that differ in one row agree in every draw that does not read it. Residues say nothing
about that chance, so a bound is a theorem only where every row was read.

>>> rows = RowsRead()
>>> rows.unread
''
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.backend import to_host
from pitcheck.algebra.structure import Indexed
from pitcheck.stage.drawn_inputs import discrete
from pitcheck.stage.evaluate import Evaluated
from pitcheck.stage.shaped_stage import ShapedStage

Bools = NDArray[np.bool_]
MOST_DRAWS = 64
"""The draws up to which a stage is drawn again for the rows that were not read yet."""
MOST_ROWS = 1 << 24
"""The rows of one axis, over all instances, of which it is noted which were read."""


@dataclass
class RowsRead:
    """The rows of every index axis, and the values of every drawn integer, that draws had.

    ``sites`` are the steps that index. Both are by place in the order of an evaluation.
    """

    sites: list[str] = field(default_factory=list)
    rows: list[Bools] = field(default_factory=list)
    """True for each row that was read, shape (instances, size) for each axis."""
    values: dict[int, Bools] = field(default_factory=dict)
    """True for each value that a drawn integer had, shape (values,), by reference value."""

    is_growing: bool = False
    """True if the last evaluation read a row that none before it had read."""

    def take(self, shaped: ShapedStage, evaluated: Evaluated, good: Bools) -> None:
        """Take in an evaluation, of which the ``good`` draws count."""
        algebra, before = evaluated.algebra, self._read()
        for place, indexed in enumerate(_changing(algebra.indexed)):
            index = to_host(algebra.xp, indexed.index)[0, good]
            if place == len(self.sites):
                self.sites.append(indexed.site)
                fits = index.shape[1] * indexed.size <= MOST_ROWS
                self.rows.append(np.zeros((index.shape[1], indexed.size if fits else 1), np.bool_))
            seen = self.rows[place]
            if seen.shape == (index.shape[1], indexed.size):
                places = np.moveaxis(index, 1, 0).reshape(index.shape[1], -1)
                seen[np.arange(len(seen))[:, None], places] = True
        for value, fresh in shaped.fresh.items():
            if fresh.kind == "int" and not fresh.unread and not fresh.numbers and fresh.bounds:
                low, high = fresh.bounds
                had = self.values.setdefault(value, np.zeros(min(high - low, MOST_ROWS), np.bool_))
                drawn = discrete(fresh, algebra.seed, algebra.trials)[good] - low
                had[drawn[drawn < len(had)]] = True
        self.is_growing = self._read() > before

    def wants_more(self, draws: int) -> bool:
        """Return True if further draws, after so many, are likely to read rows not read yet."""
        return self.is_growing and draws < MOST_DRAWS and bool(self.unread)

    def _read(self) -> int:
        """Return the number of rows that were read."""
        return sum(int(seen.sum()) for seen in self.rows)

    @property
    def unread(self) -> str:
        """The first step that indexes an axis of which some row was never read, or "".

        Rows that one drawn integer cannot reach are none of these, once it had all its values.
        """
        if len(self.values) == 1 and all(had.all() for had in self.values.values()):
            return ""
        return next(
            (site for site, seen in zip(self.sites, self.rows, strict=True) if not seen.all()), ""
        )


def _changing(indexed: Sequence[Indexed]) -> list[Indexed]:
    """Return the indices that may differ between draws: fixed ones read the same rows in all."""
    return [own for own in indexed if own.index.shape[1] > 1]
