"""The arguments of functions, and the operands of partial operations, that a draw may confuse.

>>> table = Table(entries=3)
>>> table.meetings  # three pairs, and three that may meet 0
6
"""

from __future__ import annotations

from dataclasses import dataclass

from pitcheck.algebra.bound.degree_bounds import ONE, Degree, Polynomial


@dataclass
class Table:
    """The arguments of one function in a stage.

    ``entries`` counts them; ``top`` and ``bottom`` bound the numerators and denominators of all.
    ``symmetric``: the sign of an argument is lost.
    """

    symmetric: bool = False
    entries: int = 0
    top: Polynomial = ONE
    bottom: Polynomial = ONE

    def add(self, entries: int, degree: Degree) -> None:
        """Enter ``entries`` arguments of a degree."""
        self.entries += entries
        self.top = self.top.either(degree.top)
        self.bottom = self.bottom.either(degree.bottom)

    @property
    def meetings(self) -> int:
        """The pairs of arguments that may meet, and those that may meet 0.

        Of a symmetric function an argument may also meet the negative of another.
        """
        pairs = self.entries * (self.entries - 1) // 2
        return (2 if self.symmetric else 1) * pairs + self.entries

    @property
    def apart(self) -> Polynomial:
        """The bounds for the numerator of the difference of two arguments."""
        return self.top.times(self.bottom).summed(2)


@dataclass
class Guards:
    """The operands of partial operations: all, and those that are not positive for certain."""

    entries: int = 0
    unsure: int = 0
    top: Polynomial = ONE
    bottom: Polynomial = ONE

    def add(self, entries: int, degree: Degree, *, sure: bool) -> None:
        """Enter ``entries`` operands of a degree."""
        self.entries += entries
        self.unsure += 0 if sure else entries
        self.top = self.top.either(degree.top)
        self.bottom = self.bottom.either(degree.bottom)
