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
from pitcheck.stage.evaluate import Evaluated

Bools = NDArray[np.bool_]
FEW_DRAWS = 16
"""The draws without a new row after which the others are taken for rows that none can read."""
MOST_DRAWS = 64
"""The draws up to which a stage is drawn again for the rows that were not read yet."""
MOST_ROWS = 1 << 24
"""The rows of one axis, over all instances, of which it is noted which were read."""


@dataclass
class RowsRead:
    """The rows of every index axis that draws read.

    ``sites`` are the steps that index, in the order of an evaluation.
    """

    sites: list[str] = field(default_factory=list)
    rows: list[Bools] = field(default_factory=list)
    """True for each row that was read, shape (instances, size) for each axis."""
    draws: int = 0
    """The draws that count."""
    grew: int = 0
    """The number of draws when the last row was read that none before had read."""

    def take(self, evaluated: Evaluated, good: Bools) -> None:
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
        self.draws += int(good.sum())
        if self._read() > before:
            self.grew = self.draws

    @property
    def wants_more(self) -> bool:
        """True if further draws are likely to read rows that were not read yet."""
        enough = min(2 * self.grew + FEW_DRAWS, MOST_DRAWS)
        return self.draws < enough and bool(self.unread)

    def _read(self) -> int:
        """Return the number of rows that were read."""
        return sum(int(seen.sum()) for seen in self.rows)

    @property
    def unread(self) -> str:
        """The first step that indexes an axis of which some row was never read, or ""."""
        return next(
            (site for site, seen in zip(self.sites, self.rows, strict=True) if not seen.all()), ""
        )


def _changing(indexed: Sequence[Indexed]) -> list[Indexed]:
    """Return the indices that may differ between draws: fixed ones read the same rows in all."""
    return [own for own in indexed if own.index.shape[1] > 1]
