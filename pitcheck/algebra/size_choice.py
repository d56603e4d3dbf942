"""The choice of small sizes for scaling classes, and the maps between full and reduced sizes and positions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from pitcheck.errors import UnsupportedError

if TYPE_CHECKING:
    from pitcheck.algebra.axis_classes import AxisSystem, Dimension, ScalingClass

LEAST = 3
"""Least size of a unit: at 2, a ring of +1 is a ring of -1."""

LEAST_PERMUTED = 5
"""Least size of a unit whose elements change places: at 4, converting interleaved pairs to halves twice is the identity."""

TRIED = 24
"""Number of candidate sizes of a unit; more would only make stages dearer."""


@dataclass(frozen=True)
class Scale:
    """``unit`` elements at full size are ``small`` ones at reduced size."""

    unit: int
    small: int


class Sizes:
    """Definite sizes for all dimensions of a system, by the scale of every reduced class; classes without one are whole."""

    def __init__(self, system: AxisSystem, scales: Mapping[int, Scale]) -> None:
        self._system = system
        self._scales = dict(scales)

    @property
    def identity(self) -> bool:
        """Whether every dimension has its full size."""
        return not self._scales

    def size(self, node: Dimension) -> int:
        """The reduced size of a dimension."""
        own = self._system.class_of(node)
        if own.inner is not None:
            return self.size(own.outer[node]) * self.size(own.inner)
        scale = self._scales.get(self._system.number_of(node))
        return node.size if scale is None else node.size // scale.unit * scale.small

    def position(self, node: Dimension, offset: int) -> int:
        """The reduced place of a boundary along a dimension. Raises UnsupportedError for an offset that is not a boundary of its class."""
        if self.size(node) == node.size:
            return offset
        own = self._system.class_of(node)
        if own.inner is not None:
            outer, rest = divmod(offset, own.inner.size)
            if rest:
                raise _no_boundary(node, offset)
            return self.position(own.outer[node], outer) * self.size(own.inner)
        scale = self._scales[self._system.number_of(node)]
        if offset % scale.unit:
            raise _no_boundary(node, offset)
        return offset // scale.unit * scale.small

    def full_position(self, node: Dimension, offset: int) -> int | None:
        """The full place of a reduced one: of a boundary, or of an element along dimensions that are whole; None where there is no such place."""
        if self.size(node) == node.size:
            return offset
        own = self._system.class_of(node)
        if own.inner is not None:
            inner = self.size(own.inner)
            outer, rest = divmod(offset, inner) if inner else (0, offset)
            places = self.full_position(own.outer[node], outer), self.full_position(own.inner, rest)
            return None if places[0] is None or places[1] is None else places[0] * own.inner.size + places[1]
        scale = self._scales[self._system.number_of(node)]
        return offset // scale.small * scale.unit if offset % scale.small == 0 else None

    def describe(self) -> list[str]:
        """A line per class of more than one element: what it was reduced to, or why it is whole."""
        lines = []
        for number, own in self._system.classes():
            if own.inner is None and own.total > 1:
                lines.append(_line(own, self._scales.get(number)))
        return list(dict.fromkeys(lines))


def _line(own: ScalingClass, scale: Scale | None) -> str:
    if scale is not None:
        return f"{own.total} -> {own.total // scale.unit * scale.small} (segments of {scale.unit} -> {scale.small})"
    return f"{own.total} whole: {own.rigid or f'its segments of {own.unit} are small'}"


def _no_boundary(node: Dimension, offset: int) -> UnsupportedError:
    return UnsupportedError(f"{offset} is not a boundary along a dimension of size {node.size}, so it has no place at reduced sizes; check with full shapes")


def choose_units(system: AxisSystem, literals: Collection[int], extents: Sequence[Sequence[Dimension]], variant: int) -> dict[int, Scale]:
    """A scale for every class that can be reduced, keyed by class number.

    Sizes of different classes, those of segments among them, are pairwise different as far as possible; no reduced size is a literal; different counts of
    elements along ``extents`` stay different; every variant has sizes that no variant before it has. Classes of many units choose first, so that they get
    the least sizes.
    """
    classes = [(number, own) for number, own in system.classes() if own.inner is None]
    free = sorted((pair for pair in classes if not pair[1].rigid and pair[1].unit > LEAST), key=lambda pair: (-(pair[1].total // pair[1].unit), pair[0]))
    reducible = {number for number, _ in free}
    taken = {member.size for number, own in classes if number not in reducible for member in own.members}
    used: dict[int, set[int]] = {number: set() for number in reducible}
    scales: dict[int, Scale] = {}
    for _ in range(variant + 1):
        scales = _separate(system, free, taken, used, literals, extents)
        for number, scale in scales.items():
            used[number].add(scale.small)
    return scales


def _separate(
    system: AxisSystem,
    free: Sequence[tuple[int, ScalingClass]],
    taken: Collection[int],
    used: Mapping[int, Collection[int]],
    literals: Collection[int],
    extents: Sequence[Sequence[Dimension]],
) -> dict[int, Scale]:
    """Scales at which no two counts become equal that are not; where none are found, what clashes stays whole."""
    refused: dict[int, set[int]] = {number: set(smalls) for number, smalls in used.items()}
    clashes: dict[int, int] = {}
    while True:
        scales = _one_by_one([(number, own) for number, own in free if clashes.get(number, 0) < TRIED], taken, refused, literals)
        clash = _clash(system, Sizes(system, scales), scales, extents)
        if clash is None:
            return scales
        refused[clash].add(scales[clash].small)
        clashes[clash] = clashes.get(clash, 0) + 1


def _one_by_one(
    free: Sequence[tuple[int, ScalingClass]], taken: Collection[int], refused: Mapping[int, Collection[int]], literals: Collection[int]
) -> dict[int, Scale]:
    sizes = set(taken)
    scales: dict[int, Scale] = {}
    for number, own in free:
        small = _small(own, refused[number], sizes, literals)
        if small is None:
            sizes.update(member.size for member in own.members)
        else:
            sizes.update(member.size // own.unit * small for member in own.members)
            scales[number] = Scale(own.unit, small)
    return scales


def _clash(system: AxisSystem, sizes: Sizes, scales: Mapping[int, Scale], extents: Sequence[Sequence[Dimension]]) -> int | None:
    """A reduced class of two counts of elements that are different at full sizes and equal at these, None where there are no such two."""
    known: dict[int, Sequence[Dimension]] = {}
    for nodes in extents:
        other = known.setdefault(prod(sizes.size(node) for node in nodes), nodes)
        if prod(node.size for node in nodes) != prod(node.size for node in other):
            return next((n for node in (*nodes, *other) for n in reversed(_leaves(system, node)) if n in scales), None)
    return None


def _leaves(system: AxisSystem, node: Dimension) -> list[int]:
    """The classes of the factors of a dimension."""
    own = system.class_of(node)
    return [system.number_of(node)] if own.inner is None else [*_leaves(system, own.outer[node]), *_leaves(system, own.inner)]


def _small(own: ScalingClass, used: Collection[int], taken: Collection[int], literals: Collection[int]) -> int | None:
    """The size of a unit, or None where the class stays whole."""
    unit, least = own.unit, LEAST_PERMUTED if own.permuted else LEAST
    counts = {m.size // unit for m in own.members}
    most = max(counts)
    allowed = [s for s in range(least, min(unit, least + TRIED)) if s not in used and not any(c * s in literals for c in counts)]
    distinct = [s for s in allowed if not any(c * s in taken for c in counts)]
    better = distinct or [s for s in allowed if most * s not in taken] or allowed
    return better[0] if better else None
