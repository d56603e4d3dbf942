"""Dimensions, and the classes of those that shrink together.

>>> whole, shard = Dimension(0, 4096), Dimension(1, 1024)
>>> ScalingClass([whole, shard], positions={2048}).unit
1024
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Flag, auto
from math import gcd


class Use(Flag):
    """The ways in which places along a class meet that weights of places do not cover.

    ``UNWEIGHTED``: what is added up takes no weights: integers, or terms at indices. ``ORDERED``:
    it matters which of two places comes first. ``EXTREMAL``: the largest or the least of all is
    taken. ``LABELLED``: integers or booleans that are given tell places apart. ``TALLIED``: the
    number of some places is compared with that of all.
    """

    UNWEIGHTED = auto()
    ORDERED = auto()
    EXTREMAL = auto()
    LABELLED = auto()
    TALLIED = auto()


NO_USE = Use(0)


@dataclass(frozen=True, eq=False)
class Dimension:
    """One dimension of a value, with its full size.

    ``copies`` says that it numbers the members of a stack.
    """

    number: int
    size: int
    copies: bool = False


@dataclass
class ScalingClass:
    """Dimensions that shrink together.

    ``inner`` is None, or every member m is ``outer[m]`` times ``inner``. ``rigid`` is the reason
    why the class stays whole, "" if it need not. ``permuted``: elements along it change places.
    ``roomy``: a unit has as many elements as if they did. ``factor``: a dimension was split into
    this class and others. ``beside``: the inner dimensions of which this class was the outer one.
    ``mixed``: some operator combines, cuts, joins, views or counts elements along it. ``indexed``:
    integers are places along it.
    """

    members: list[Dimension]
    positions: set[int] = field(default_factory=set)
    rigid: str = ""
    permuted: bool = False
    roomy: bool = False
    inner: Dimension | None = None
    outer: dict[Dimension, Dimension] = field(default_factory=dict)
    factor: bool = False
    beside: list[Dimension] = field(default_factory=list)
    mixed: bool = False
    indexed: bool = False
    uses: Use = NO_USE

    @property
    def unit(self) -> int:
        """The greatest common divisor of all sizes and positions, 0 if all are 0."""
        return gcd(*(m.size for m in self.members), *self.positions)

    @property
    def total(self) -> int:
        """The greatest size in the class."""
        return max(m.size for m in self.members)

    def factors(self) -> list[Dimension]:
        """Return the dimensions whose products the members are; none if the class is not split."""
        return [] if self.inner is None else [self.inner, *self.outer.values()]

    def take(self, other: ScalingClass) -> None:
        """Add the dimensions of another class, and all that is known of them.

        Their factors are not joined.
        """
        self.outer.update(other.outer)
        self.members.extend(other.members)
        self.positions |= other.positions
        self.permuted = self.permuted or other.permuted
        self.roomy = self.roomy or other.roomy
        self.mixed = self.mixed or other.mixed
        self.uses |= other.uses
        self.indexed = self.indexed or other.indexed
        self.factor = self.factor or other.factor
        self.beside.extend(other.beside)
