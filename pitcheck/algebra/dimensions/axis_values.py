"""Values that are known by their dimensions alone, and sizes that remember their origin.

>>> half = Size(8) // 2
>>> isinstance(half, Size), isinstance(half + 1, Size)
(True, False)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
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


class Counting(NamedTuple):
    """How numbers were counted along dimensions; each stands in it as often as that was done.

    ``discrete``: the numbers are made of integers, booleans and sizes alone. ``added``: the
    dimensions along which such numbers were added up; empty for any others. ``asked``: those along
    which a greatest or least number was taken, which asks for one place, not for their number.
    """

    discrete: bool = False
    added: tuple[Dimension, ...] = ()
    asked: tuple[Dimension, ...] = ()

    def add(self, dims: Sequence[Dimension]) -> Counting:
        """Return the counting of what is added up along ``dims``."""
        return self._replace(added=(*self.added, *dims)) if self.discrete else self

    def ask(self, node: Dimension) -> Counting:
        """Return the counting of an extremum along a dimension."""
        return self._replace(asked=(*self.asked, node))


@dataclass(frozen=True, eq=False)
class AxisValue:
    """The kind and the dimensions of a value.

    ``literal``: the number of a 0-d constant. ``counts``: the dimension along which it is the
    positions 0, 1, ... ``places``: for integers, a dimension along which they are places; it may be
    a part of that which they index. ``boundary``: they are places between segments. ``counting``:
    how it was counted. ``occurs``: it counts how often something holds, so that it is 0 if nothing
    does, however many places there are. ``tally``: how it counts places, at most one each; None if
    it does not. ``positional``: it compares positions with each other, and nothing else.
    """

    kind: Kind
    dims: tuple[Dimension, ...]
    literal: Fraction | float | None = None
    counts: Dimension | None = None
    places: Dimension | None = None
    boundary: bool = False
    counting: Counting = field(default_factory=Counting)
    occurs: bool = False
    tally: Tally | None = None
    positional: bool = False

    @property
    def is_discrete(self) -> bool:
        """True if it is made of integers, booleans and sizes alone."""
        return self.kind != "field" or self.counting.discrete

    @property
    def shape(self) -> tuple[int, ...]:
        """The full sizes, each bound to its dimension."""
        return tuple(cast(int, Size(d.size, d)) for d in self.dims)
