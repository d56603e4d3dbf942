"""The choice of small sizes for scaling classes, and maps from full to reduced positions and back.

>>> from pitcheck.algebra.dimensions.axis_classes import AxisSystem
>>> system = AxisSystem()
>>> heads = system.dimension(40)
>>> Sizes(system, smallest_units(system, LEAST)).size(heads)
3
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from pitcheck.algebra.dimensions.scaling_class import Use
from pitcheck.errors import ReductionError

if TYPE_CHECKING:
    from pitcheck.algebra.dimensions.axis_classes import AxisSystem
    from pitcheck.algebra.dimensions.scaling_class import Dimension, ScalingClass

LEAST = 3
"""The least size of a unit: at 2, a ring of +1 is a ring of -1."""

LEAST_PERMUTED = 5
"""The least size of a unit whose elements change places: at 4, converting interleaved pairs to
halves twice is the identity.
"""

LEAST_TALLIED = 8
"""The least size of a unit of which a number of places is compared with that of all: a few tokens
and their slots have all orders then.
"""

TRIED = 24
"""The number of candidate sizes of a unit; more would only make stages dearer."""


Extent = tuple["Dimension", ...]
"""Dimensions along which elements are counted together."""


@dataclass(frozen=True)
class Scale:
    """``unit`` elements at full size are ``small`` ones at reduced size."""

    unit: int
    small: int


class Sizes:
    """Definite sizes for all dimensions of a system.

    ``scales`` has the scale of every reduced class, by its number; other classes are whole.
    """

    def __init__(self, system: AxisSystem, scales: Mapping[int, Scale]) -> None:
        self._system = system
        self._scales = dict(scales)

    @property
    def system(self) -> AxisSystem:
        """The dimensions that have these sizes."""
        return self._system

    @property
    def identity(self) -> bool:
        """True if every dimension has its full size."""
        return not self._scales

    def unit(self, number: int) -> int | None:
        """Return the elements of a unit of a class at reduced size; None if the class is whole."""
        scale = self._scales.get(number)
        return None if scale is None else scale.small

    def size(self, node: Dimension) -> int:
        """Return the reduced size of a dimension."""
        own = self._system.class_of(node)
        if own.inner is not None:
            return self.size(own.outer[node]) * self.size(own.inner)
        scale = self._scales.get(self._system.number_of(node))
        return node.size if scale is None else node.size // scale.unit * scale.small

    def position(self, node: Dimension, offset: int) -> int:
        """Return the reduced place of a boundary along a dimension.

        Raises:
            ReductionError: if the offset is not a boundary of its class.
        """
        own = self._system.class_of(node)
        if own.inner is not None:
            if self.size(node) == node.size:
                return offset
            outer, rest = divmod(offset, own.inner.size)
            if rest:
                raise _no_boundary(node, offset)
            return self.position(own.outer[node], outer) * self.size(own.inner)
        scale = self._scales.get(self._system.number_of(node))
        if scale is None:
            return offset
        if offset % scale.unit:
            raise _no_boundary(node, offset)
        return offset // scale.unit * scale.small

    def full_position(self, node: Dimension, offset: int) -> int | None:
        """Return the full place of a reduced one; None if there is none.

        The place is a boundary, or an element along dimensions that are whole.
        """
        if self.size(node) == node.size:
            return offset
        own = self._system.class_of(node)
        if own.inner is not None:
            inner = self.size(own.inner)
            outer, rest = divmod(offset, inner) if inner else (0, offset)
            places = self.full_position(own.outer[node], outer), self.full_position(own.inner, rest)
            return (
                None
                if places[0] is None or places[1] is None
                else places[0] * own.inner.size + places[1]
            )
        scale = self._scales[self._system.number_of(node)]
        return offset // scale.small * scale.unit if offset % scale.small == 0 else None

    def below(self, node: Dimension, bound: int) -> int:
        """Return the number of the places 0 .. ``bound`` - 1 that are left at reduced size.

        Whole segments are left. A segment that is cut keeps its first places, but never its last
        one.
        """
        scale = self._scales.get(self._system.number_of(node))
        if scale is None:
            return bound
        segments, rest = divmod(bound, scale.unit)
        return segments * scale.small + min(rest, scale.small - 1)

    def boundaries(self, node: Dimension) -> list[int]:
        """Return the reduced places at which members of a class indexed by values begin or end."""
        own = self._system.class_of(node)
        return sorted(
            {
                self.position(node, place)
                for place in (*own.positions, *(member.size for member in own.members))
            }
        )

    def describe(self) -> list[str]:
        """Return a line per class of more than one element.

        It says the reduced size, or why it is whole.
        """
        lines = []
        for number, own in self._system.classes():
            if own.inner is None and own.total > 1:
                lines.append(_line(own, self._scales.get(number)))
        return list(dict.fromkeys(lines))

    def largest_whole(self) -> str:
        """Return the line of the largest class that is not reduced, "" if there is none."""
        left = [
            own
            for number, own in self._system.classes()
            if own.inner is None and own.total > 1 and number not in self._scales
        ]
        return _line(max(left, key=lambda own: own.total), None) if left else ""


def _line(own: ScalingClass, scale: Scale | None) -> str:
    if scale is not None:
        return (
            f"{own.total} -> {own.total // scale.unit * scale.small} (segments of {scale.unit} "
            f"-> {scale.small})"
        )
    return f"{own.total} whole: {own.rigid or f'its segments of {own.unit} are small'}"


def _no_boundary(node: Dimension, offset: int) -> ReductionError:
    return ReductionError(
        f"{offset} is not a boundary along a dimension of size {node.size}, so it has no place at "
        f"reduced sizes; check with full shapes"
    )


def choose_units(
    system: AxisSystem,
    literals: Collection[int],
    extents: Sequence[Extent],
    variant: int,
    least: int = LEAST,
    needed: Mapping[int, int] | None = None,
) -> dict[int, Scale]:
    """Return a scale for every class that can be reduced, by class number.

    Sizes of different classes, and of their segments, are pairwise different as far as possible. No
    reduced size is a literal. Different counts of elements along ``extents`` stay different. Every
    variant has sizes that no variant before it has. No unit has fewer than ``least`` elements, nor
    fewer than are ``needed`` of its class. Classes of many units choose first, so that they get the
    least sizes.
    """
    classes = [(number, own) for number, own in system.classes() if own.inner is None]
    tallied = max(least, LEAST_TALLIED)
    fewest = {number: tallied for number, own in classes if Use.TALLIED in own.uses}
    for number, few in (needed or {}).items():
        fewest[number] = max(least, few, fewest.get(number, least))
    free = sorted(
        (
            (number, own)
            for number, own in classes
            if not own.rigid and own.unit > fewest.get(number, least)
        ),
        key=lambda pair: (-(pair[1].total // pair[1].unit), pair[0]),
    )
    reducible = {number for number, _ in free}
    taken = Counter(
        member.size for number, own in classes if number not in reducible for member in own.members
    )
    used: dict[int, set[int]] = {number: set() for number in reducible}
    counted = [
        (nodes, frozenset(number for node in nodes for number in leaves(system, node)) & reducible)
        for nodes in extents
    ]
    scales: dict[int, Scale] = {}
    for _ in range(variant + 1):
        choice = _Choice(system, dict(free), taken, used, literals, least, fewest)
        for nodes, numbers in counted:
            choice.count(nodes, numbers)
        scales = choice.scales
        for number, scale in scales.items():
            used[number].add(scale.small)
    return scales


def smallest_units(system: AxisSystem, least: int) -> dict[int, Scale]:
    """Return a scale for every class that can be reduced, with ``least`` elements a unit.

    A unit has one more if elements change places. Different classes may get the same sizes.
    """
    found: dict[int, Scale] = {}
    for number, own in system.classes():
        small = least + own.roomy
        if own.inner is None and not own.rigid and own.unit > small:
            found[number] = Scale(own.unit, small)
    return found


class _Choice:
    """One set of scales, changed until no two counts become equal that are not.

    If that cannot be reached, the classes that clash stay whole.
    """

    def __init__(
        self,
        system: AxisSystem,
        free: Mapping[int, ScalingClass],
        taken: Mapping[int, int],
        used: Mapping[int, Collection[int]],
        literals: Collection[int],
        least: int,
        fewest: Mapping[int, int],
    ) -> None:
        self._system = system
        self._least = least
        self._fewest = fewest
        self._free = free
        self._taken = Counter(taken)
        self._literals = literals
        self._refused = {number: set(smalls) for number, smalls in used.items()}
        self._changes: dict[int, int] = {}
        self._units = {number: own.unit for number, own in free.items()}
        self._segments = {
            number: sorted({m.size // self._units[number] for m in own.members if m.size})
            for number, own in free.items()
        }
        self._counts: dict[int, dict[Extent, frozenset[int]]] = {}
        """The extents by their reduced count, each with its reduced classes."""
        self._where: dict[Extent, int] = {}
        self._of: dict[int, list[Extent]] = {}
        self.scales: dict[int, Scale] = {}
        for number in free:
            self._choose(number)

    def count(self, extent: Extent, numbers: frozenset[int]) -> None:
        """Take in a count of elements that must stay different from others.

        It is along dimensions of the classes ``numbers``.
        """
        if extent in self._where:
            return
        for number in numbers:
            self._of.setdefault(number, []).append(extent)
        waiting = [(extent, numbers)]
        while waiting:
            extent, numbers = waiting.pop()
            clash = self._entered(extent, numbers)
            if clash is not None:
                waiting.extend(self._changed(clash))

    def _entered(self, extent: Extent, numbers: frozenset[int]) -> int | None:
        """Enter a count as it is now.

        Return the class to change if a different count has become the same, else None.
        """
        sizes = Sizes(self._system, self.scales)
        small, full = prod(sizes.size(node) for node in extent), prod(node.size for node in extent)
        same = self._counts.setdefault(small, {})
        other = next((known for known in same if prod(node.size for node in known) != full), None)
        same[extent] = numbers
        self._where[extent] = small
        if other is None:
            return None
        return next(
            (
                n
                for node in (*extent, *other)
                for n in reversed(leaves(self._system, node))
                if n in self.scales
            ),
            None,
        )

    def _changed(self, number: int) -> list[tuple[Extent, frozenset[int]]]:
        """Give a class another size, or its whole one; return the counts to enter again."""
        self._changes[number] = self._changes.get(number, 0) + 1
        self._refused[number].add(self.scales[number].small)
        self._give_back(number)
        self._choose(number)
        again = []
        for extent in self._of.get(number, ()):
            place = self._where.pop(extent, None)
            if place is not None:
                again.append((extent, self._counts[place].pop(extent)))
        return again

    def _choose(self, number: int) -> None:
        small = None
        if self._may_shrink(number):
            small = _small(
                self._free[number],
                self._segments[number],
                self._refused[number],
                self._taken,
                self._literals,
                self._fewest.get(number, self._least),
            )
        if small is not None:
            self.scales[number] = Scale(self._units[number], small)
        for size in self._sizes(number):
            self._taken[size] += 1

    def _may_shrink(self, number: int) -> bool:
        return self._changes.get(number, 0) < TRIED

    def _give_back(self, number: int) -> None:
        for size in self._sizes(number):
            self._taken[size] -= 1
            if not self._taken[size]:
                del self._taken[size]
        del self.scales[number]

    def _sizes(self, number: int) -> list[int]:
        """Return the sizes that the members of a class have now."""
        scale = self.scales.get(number)
        return [
            count * (self._units[number] if scale is None else scale.small)
            for count in self._segments[number]
        ]


def leaves(system: AxisSystem, node: Dimension) -> list[int]:
    """Return the numbers of the classes of a dimension's factors."""
    own = system.class_of(node)
    return (
        [system.number_of(node)]
        if own.inner is None
        else [*leaves(system, own.outer[node]), *leaves(system, own.inner)]
    )


def _small(
    own: ScalingClass,
    counts: Sequence[int],
    used: Collection[int],
    taken: Collection[int],
    literals: Collection[int],
    smallest: int,
) -> int | None:
    """Return the size of a unit of a class whose members have ``counts`` units.

    Return None if the class stays whole.
    """
    unit, least = own.unit, max(smallest, LEAST_PERMUTED if own.roomy else LEAST)
    most = counts[-1]
    allowed = [
        s
        for s in range(least, min(unit, least + TRIED))
        if s not in used and not any(c * s in literals for c in counts)
    ]
    distinct = [s for s in allowed if not any(c * s in taken for c in counts)]
    better = distinct or [s for s in allowed if most * s not in taken] or allowed
    return better[0] if better else None
