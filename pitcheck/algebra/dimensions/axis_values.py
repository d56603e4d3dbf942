"""Values that are known by their dimensions alone, and sizes that remember their origin.

>>> half = Size(8) // 2
>>> isinstance(half, Size), isinstance(half + 1, Size)
(True, False)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, cast

from pitcheck.algebra.dimensions.scaling_class import Dimension
from pitcheck.algebra.interface import Kind


class Size(int):
    """A size or offset computed from sizes of dimensions: it is another one at reduced shapes.

    A plain int is a literal and stays. ``dimension`` is the dimension whose size it is, if it is
    one. Products, sums and exact quotients follow too; every other result is a plain int.
    """

    dimension: Dimension | None

    def __new__(cls, value: int, dimension: Dimension | None = None) -> Size:
        """Return ``value``, the size of ``dimension`` if given."""
        made = super().__new__(cls, value)
        made.dimension = dimension
        return made

    def _linear(self, result: int, other: int) -> int:
        """Return a sum: it follows if both terms do, and 0 always does."""
        return Size(result) if isinstance(other, Size) or other == 0 else result

    def __add__(self, other: int) -> int:
        return self._linear(int(self) + int(other), other)

    def __radd__(self, other: int) -> int:
        return self._linear(int(other) + int(self), other)

    def __sub__(self, other: int) -> int:
        return self._linear(int(self) - int(other), other)

    def __rsub__(self, other: int) -> int:
        return self._linear(int(other) - int(self), other)

    def __mul__(self, other: int) -> int:
        return self if other == 1 else Size(int(self) * int(other))

    def __rmul__(self, other: int) -> int:
        return self * other

    def __floordiv__(self, other: int) -> int:
        quotient, rest = divmod(int(self), int(other))
        if other == 1:
            return self
        return quotient if rest else Size(quotient)


class Tally(NamedTuple):
    """The number of places along ``dims``, 0 or 1 if there are none.

    ``all``: every place counts, or every one up to some place; else those that a condition chooses.
    """

    dims: tuple[Dimension, ...]
    all: bool


@dataclass(frozen=True, eq=False)
class AxisValue:
    """The kind and the dimensions of a value.

    ``literal``: the number of a 0-d constant. ``counts``: the dimension along which it is the
    positions 0, 1, ... ``places``: for integers, a dimension along which they are places; it may be
    a part of that which they index. ``boundary``: they are places between segments. ``derived``:
    for numbers made of integers, booleans and sizes alone, the dimensions along which they were
    counted; None if anything else is in them. ``occurs``: it counts how often something holds, so
    that it is 0 if nothing does, however many places there are. ``tally``: how it counts places,
    at most one each; None if it does not. ``positional``: it compares positions with each other,
    and nothing else.
    """

    kind: Kind
    dims: tuple[Dimension, ...]
    literal: Fraction | float | None = None
    counts: Dimension | None = None
    places: Dimension | None = None
    boundary: bool = False
    derived: tuple[Dimension, ...] | None = None
    occurs: bool = False
    tally: Tally | None = None
    positional: bool = False

    @property
    def counted(self) -> tuple[Dimension, ...]:
        """The dimensions along which a number made of discrete data alone was counted."""
        return self.derived or ()

    @property
    def is_discrete(self) -> bool:
        """True if it is made of integers, booleans and sizes alone."""
        return self.kind != "field" or self.derived is not None

    @property
    def shape(self) -> tuple[int, ...]:
        """The full sizes, each bound to its dimension."""
        return tuple(cast(int, Size(d.size, d)) for d in self.dims)
