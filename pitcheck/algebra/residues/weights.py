"""Sums over reduced axes with a weight for every place.

A claim that holds for all weights holds for more places than there are. An axis of n places is
reduced to m. Every sum along it is weighted, and its number of places, if used as a number, is the
sum of the weights. A polynomial in the number of places that happens to vanish at m, and at any
other small number, does not vanish for random weights. Weights belong to the units of a scaling
class: equal segments have equal weights. An array axis is known by its size alone, so only sizes
that identify one axis have weights. Places have none either if a number of them is compared with
that of all: each counts as one.

>>> from pitcheck.algebra.dimensions.axis_classes import AxisSystem
>>> system = AxisSystem()
>>> axis = system.dimension(4096)
>>> list(patterns(system, system.solve(), plain=())) == [system.solve().size(axis)]
True
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any

from pitcheck.algebra.dimensions.axis_classes import AxisSystem
from pitcheck.algebra.dimensions.scaling_class import Dimension, Use
from pitcheck.algebra.dimensions.size_choice import Sizes
from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.value import LEADING, Value
from pitcheck.errors import UnsupportedError

ONES = -1
"""The number in place of a class in factors without weights."""

Factor = tuple[int, int, int]
"""The triple (number of the class or ``ONES``, number of units, elements of a unit)."""
Pattern = tuple[Factor, ...]
"""The factors of an axis, the last one varying fastest."""


class UnweighedError(UnsupportedError):
    """A sum along an axis of ``size`` that cannot be weighted."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__(
            f"logarithms along an axis of size {size} are added up, which cannot be weighted"
        )


def patterns(
    system: AxisSystem, sizes: Sizes, plain: Collection[int], *, tallied: bool = False
) -> dict[int, Pattern]:
    """Return the weights of every array axis by its reduced size.

    ``plain`` are sizes of axes without weights. A size that may be two axes has none either. With
    ``tallied`` an axis has a pattern, too, whose places take no weights because they are counted.
    """
    found, excluded = _by_size(system, sizes, plain, tallied)
    while True:
        normal = {
            size: {_normal(pattern, excluded) for pattern in same} for size, same in found.items()
        }
        clashing = {
            number
            for size, same in normal.items()
            if len(same) > 1
            for pattern in same
            for number, _, _ in pattern
        } - excluded
        if not clashing:
            return {
                size: pattern
                for size, (pattern, *_) in normal.items()
                if any(number != ONES for number, _, _ in pattern)
            }
        excluded |= clashing


def clashing_sizes(system: AxisSystem, sizes: Sizes, plain: Collection[int]) -> frozenset[int]:
    """Return the reduced sizes that may be two axes, of which one is reduced."""
    found, excluded = _by_size(system, sizes, plain, tallied=True)
    return frozenset(
        size
        for size, same in found.items()
        if len({_normal(pattern, excluded) for pattern in same}) > 1
    )


def _by_size(
    system: AxisSystem, sizes: Sizes, plain: Collection[int], tallied: bool
) -> tuple[dict[int, set[Pattern]], set[int]]:
    """Return the patterns of all axes by their sizes, and the classes that cannot have weights."""
    found: dict[int, set[Pattern]] = {size: {_ones(size)} for size in plain}
    excluded = {ONES}
    for number, own in system.classes():
        if Use.TALLIED in own.uses and not tallied:
            excluded.add(number)
        for node in {member.size: member for member in own.members}.values():
            pattern, size = _pattern(system, sizes, node), sizes.size(node)
            if prod(count * unit for _, count, unit in pattern) != size:
                excluded.update(each for each, _, _ in pattern)
            found.setdefault(size, set()).add(pattern)
    return found, excluded


def degrees(weights: Mapping[int, Pattern]) -> dict[int, int]:
    """Return the degree of the weight of one place along each array axis, by its size."""
    return {
        size: sum(number != ONES for number, _, _ in pattern) for size, pattern in weights.items()
    }


def _ones(size: int) -> Pattern:
    return ((ONES, 1, size),)


def _pattern(system: AxisSystem, sizes: Sizes, node: Dimension) -> Pattern:
    own = system.class_of(node)
    if own.inner is not None:
        return (*_pattern(system, sizes, own.outer[node]), *_pattern(system, sizes, own.inner))
    number, size = system.number_of(node), sizes.size(node)
    unit = sizes.unit(number)
    return _ones(size) if unit is None else ((number, size // unit, unit),)


def _normal(pattern: Pattern, excluded: Collection[int]) -> Pattern:
    """Return a pattern with the factors of excluded classes replaced by factors without weights.

    Neighbouring factors without weights become one, and none has a single element.
    """
    result: list[Factor] = []
    for number, count, unit in pattern:
        if number not in excluded:
            result.append((number, count, unit))
        elif result and result[-1][0] == ONES:
            result[-1] = (ONES, 1, result[-1][2] * count * unit)
        elif count * unit != 1:
            result.append((ONES, 1, count * unit))
    return tuple(result)


class WeightedAlgebra(ResidueAlgebra):
    """Residues whose sums along the axes of ``patterns`` are weighted.

    Raises:
        UnweighedError: if a formal logarithm would be summed so.
    """

    def __init__(self, weights: Mapping[int, Pattern], *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._patterns = weights
        self._weights: dict[int, Value] = {}

    def weights(self, size: int) -> Value | None:
        """Return the weights along an axis of ``size``, shape (size,); None if it has none."""
        pattern = self._patterns.get(size)
        if pattern is None:
            return None
        if size not in self._weights:
            self._weights[size] = self._made(pattern)
        return self._weights[size]

    def _made(self, pattern: Pattern) -> Value:
        result = self.expand(self.constant(Fraction(1)), (1,))
        for number, count, unit in pattern:
            own = (
                self.expand(self.constant(Fraction(1)), (unit,))
                if number == ONES
                else self.fresh(f"weights/{number}", (unit,), domain="nonnegative")
            )
            factor = self.concatenate([own] * count, 0) if count > 1 else own
            size = self.shape(result)[0]
            result = self.reshape(
                self.multiply(self.reshape(result, (size, 1)), factor), (size * count * unit,)
            )
        return result

    def sum(self, a: Value, axes: Sequence[int]) -> Value:
        """Return the weighted sum of field values; integers are counted as they are."""
        factor = self._factor(a, axes) if a.kind == "field" else None
        if factor is None:
            return super().sum(a, axes)
        if a.special is not None:
            return super().sum(self.multiply(a, factor), axes)
        x, y, low = self._pair("a weighted sum", self.opened(a), factor)
        places = tuple(LEADING + axis for axis in axes)
        # Weights stand for numbers of places. So a sum of squares stays what formal roots need.
        data = self.arithmetic.sum_of_products(x, y, places, low)
        return Value("field", data, low, nonnegative=a.nonnegative)

    def _factor(self, a: Value, axes: Sequence[int]) -> Value | None:
        """Return the product of the weights along axes of a value; None if none has any.

        Raises:
            UnweighedError: if the value has formal logarithms.
        """
        factor: Value | None = None
        for axis in axes:
            size = self.shape(a)[axis]
            weights = self.weights(size)
            if weights is None:
                continue
            if a.logs:
                raise UnweighedError(size)
            own = self.reshape(weights, (size, *(1,) * (a.rank - axis - 1)))
            factor = own if factor is None else self.multiply(factor, own)
        return factor

    def matmul(self, a: Value, b: Value) -> Value:
        """Return the weighted product of field values."""
        if (
            a.kind == "field"
            and a.rank > 1
            and b.rank > 1
            and (weights := self.weights(self.shape(a)[-1])) is not None
        ):
            if prod(self.shape(a)) <= prod(self.shape(b)):
                a = self.multiply(a, weights)
            else:
                b = self.multiply(b, self.reshape(weights, (*self.shape(weights), 1)))
        return super().matmul(a, b)

    def extent(self, a: Value, axes: Sequence[int]) -> Value:
        """Return the sum of all weights."""
        result = self.constant(Fraction(1))
        for axis in axes:
            weights = self.weights(self.shape(a)[axis])
            result = self.multiply(
                result,
                super().extent(a, (axis,)) if weights is None else super().sum(weights, (0,)),
            )
        return result
