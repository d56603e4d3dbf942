"""Values that are known by their dimensions alone, and sizes that remember where they come from."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from pitcheck.algebra.dimensions.axis_classes import Dimension
from pitcheck.algebra.interface import Kind


class Size(int):
    """A size or offset that follows from sizes of dimensions, so that it is another one at reduced
    shapes; a plain int is a literal and stays.

    ``dimension`` is the dimension whose size it is, where it is one. Products, sums and exact
    quotients follow too; everything else is a plain int.
    """

    dimension: Dimension | None

    def __new__(cls, value: int, dimension: Dimension | None = None) -> Size:
        """``value``, the size of ``dimension`` if given."""
        made = super().__new__(cls, value)
        made.dimension = dimension
        return made

    def _linear(self, result: int, other: int) -> int:
        """A sum follows where both terms do; 0 always does."""
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


@dataclass(frozen=True, eq=False)
class AxisValue:
    """Kind and dimensions of a value. ``literal``: of a 0-d constant, the number. ``counts``: the
    dimension along which it is the positions 0, 1, ...

    ``places``: of integers, a dimension along which, or along what that is a part of, they are
    places; ``boundary``: places between segments. ``derived``: of numbers made of integers,
    booleans and sizes alone, the dimensions along which they were counted; None where anything else
    is in them. ``occurs``: it counts how often something holds, so that it is 0 where nothing does,
    however many places there are.
    """

    kind: Kind
    dims: tuple[Dimension, ...]
    literal: Fraction | float | None = None
    counts: Dimension | None = None
    places: Dimension | None = None
    boundary: bool = False
    derived: tuple[Dimension, ...] | None = None
    occurs: bool = False

    @property
    def counted(self) -> tuple[Dimension, ...]:
        """The dimensions along which a number was counted that is made of discrete data alone."""
        return self.derived or ()

    @property
    def is_discrete(self) -> bool:
        """Return True if it is made of integers, booleans and sizes alone."""
        return self.kind != "field" or self.derived is not None

    @property
    def shape(self) -> tuple[int, ...]:
        """Full sizes, each bound to its dimension."""
        return tuple(cast(int, Size(d.size, d)) for d in self.dims)
