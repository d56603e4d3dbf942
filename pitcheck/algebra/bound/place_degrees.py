"""Degrees in the weights of the places along classes of axes.

An axis of *n* places is reduced to *m*, and sums along it are weighted
(:mod:`pitcheck.algebra.residues.weights`). What agrees for all weights of *m* places agrees for
every *n* >= *m* if *m* is at least :attr:`PlaceDegreeAlgebra.needed`; ``docs/mathematics.md`` has
the theorem. Inputs have degree 0 here, and so do values of functions, which are variables.

>>> algebra = PlaceDegreeAlgebra({0}, {3: ((0, 1, 3),)})
>>> x = algebra.fresh("x", (3,))
>>> mean = algebra.divide(algebra.sum(x, (0,)), algebra.extent(x, (0,)))
>>> variance = algebra.sum(algebra.power(algebra.subtract(x, mean), 2), (0,))
>>> algebra.compare_targets(variance, variance)
>>> algebra.needed
5
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pitcheck.algebra.bound.degree_bounds import MOST, ONE, Degree, Polynomial, difference
from pitcheck.algebra.bound.degree_values import DegreeValue, Sign
from pitcheck.algebra.bound.free_degrees import FreeDegreeAlgebra
from pitcheck.algebra.interface import Comparison, Kind
from pitcheck.algebra.residues.free_outcomes import ASCENDING, BELOW, DESCENDING, EQUAL
from pitcheck.algebra.residues.weights import Pattern

_ORDERED = frozenset({"order"})
"""The use of positions in an order of numbers: a decision by them is one by the numbers."""


@dataclass
class Arguments:
    """All that may be taken for one another: bounds for their degrees, and their places.

    ``places``: those of the class that one argument stands at.
    """

    places: int = 0
    top: int = 0
    bottom: int = 0

    def add(self, places: int, degree: Degree) -> None:
        """Enter arguments of a degree that stand at so many places."""
        self.places = max(self.places, places)
        self.top = max(self.top, degree.numerator)
        self.bottom = max(self.bottom, degree.denominator)

    @property
    def needed(self) -> int:
        """The number of places that tells any two of them apart."""
        return 2 * self.places + self.top + self.bottom


class PlaceDegreeAlgebra(FreeDegreeAlgebra):
    """Degree bounds in the weights of classes, by their ``numbers`` in the patterns of all axes.

    Those of several classes together bound those of each. Integers that are added count as if they
    had weights. ``varies`` says that quotients are added up whose divisors vary along the axis and
    have such weights; ``grows`` has the classes of these axes, whose sizes change the bounds.
    """

    line = ONE

    def __init__(self, numbers: Collection[int], patterns: Mapping[int, Pattern]) -> None:
        self._often = {
            size: sum(factor[0] in numbers for factor in pattern)
            for size, pattern in patterns.items()
        }
        super().__init__(self._often)
        self._patterns = patterns
        self.arguments: dict[str, Arguments] = {}
        self.divisors = Arguments()
        self.targets = 0
        self.grows: set[int] = set()
        self.varies = False

    @property
    def needed(self) -> int:
        """The number of places from which on more of them show nothing new."""
        told_apart = (self.divisors, *self.arguments.values())
        return max(self.targets, *(each.needed for each in told_apart))

    @property
    def in_functions(self) -> int:
        """The greatest degree of a difference of two arguments of a function."""
        return max((each.top + each.bottom for each in self.arguments.values()), default=0)

    @property
    def in_decisions(self) -> int:
        """The number of places that tells any two numbers apart that are compared or ordered."""
        compared = (self.arguments.get(name) for name in (BELOW, EQUAL, ASCENDING, DESCENDING))
        return max((each.needed for each in compared if each is not None), default=0)

    def compare_targets(self, a: DegreeValue, b: DegreeValue) -> None:
        """Take in two values that are compared element by element."""
        degree = difference(a.degree, b.degree).top.degree
        if a.is_log or b.is_log:
            powers = (Degree(*self._power(value)) for value in (a, b))
            degree = max(degree, difference(*powers).top.degree)
        places = max(self._places(a.shape), self._places(b.shape))
        self.targets = max(self.targets, degree + places)

    def _places(self, shape: tuple[int, ...]) -> int:
        """Return the number of places of the class that an element of ``shape`` stands at."""
        return sum(self._often.get(size, 0) for size in shape)

    def _enter(self, name: str, entries: int, degree: Degree, shape: tuple[int, ...]) -> None:
        super()._enter(name, entries, degree, shape)
        self.arguments.setdefault(name, Arguments()).add(self._places(shape), degree)

    def fresh(
        self,
        key: str,
        shape: Sequence[int],
        instances: int = 1,
        domain: str = "any",
        kind: Kind = "field",
    ) -> DegreeValue:
        """Return an input, in which there are no weights."""
        return replace(super().fresh(key, shape, instances, domain, kind), top=ONE)

    def divide(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds for a quotient; its divisor may be taken for another one."""
        if not b.number and Sign.POSITIVE not in b.sign:
            self.divisors.add(self._places(b.shape), b.degree)
        return super().divide(a, b)

    def sqrt(self, a: DegreeValue) -> DegreeValue:
        """Return bounds for a formal root of N/D = N D/D^2, whose numerator has half their degree.

        What is equal with a formal root is so with its negative: both parts are equal, the one
        with the root and the one without, and no degree of these is larger.
        """
        half = Polynomial((a.top.degree + a.bottom.degree + 1) // 2)
        return replace(super().sqrt(a), top=half)

    def _are_whole(self, *values: DegreeValue, most_log2: float = 0.0) -> bool:  # noqa: ARG002
        """Return False: inputs have no degree here, and so look as integers do."""
        return False

    def _summed(self, a: DegreeValue, axis: int) -> DegreeValue:
        size = a.shape[axis]
        if any(axis in mark.varies and own.total.degree for mark, own in a.divisors.items()):
            self.varies = True
            self.grows.update(number for number, _, _ in self._patterns.get(size, ()))
        if a.kind != "field" and self._often.get(size):
            a = replace(a, top=a.top.times(Polynomial(self._often[size])))
        return super()._summed(a, axis)


class LikelyPlaceAlgebra(PlaceDegreeAlgebra):
    """A number of places at which formulas show that seldom agree by chance.

    It is for classes for which no number is known to show everything. What a function, an order or
    an extremum makes depends on as many places as its operands together, and an extremum along the
    class on one more. No more than two terms of a sum have divisors of their own.
    """

    def _own_divisors(self, size: int) -> int:
        return min(size, 2)

    def _beside(self, result: DegreeValue, *operands: DegreeValue, more: int = 0) -> DegreeValue:
        """Return a result that depends on all places of its operands, and on ``more``."""
        places = more + sum(a.top.degree + a.bottom.degree for a in operands)
        return replace(result, top=result.top.either(Polynomial(min(places, MOST))))

    def exp(self, a: DegreeValue) -> DegreeValue:
        return self._beside(super().exp(a), a)

    def log(self, a: DegreeValue) -> DegreeValue:
        return self._beside(super().log(a), a)

    def function(self, name: str, *arguments: DegreeValue) -> DegreeValue:
        return self._beside(super().function(name, *arguments), *arguments)

    def _decided_by(self, result: DegreeValue, *operands: DegreeValue) -> DegreeValue:
        """Return what operands decide; numbers of places decide nothing that few do not show.

        Axes along which they do are not reduced.
        """
        deciding = [a for a in operands if a.kind == "field" or a.uses]
        return self._beside(result, *deciding) if deciding else replace(result, top=ONE)

    def compare(self, comparison: Comparison, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        return self._decided_by(super().compare(comparison, a, b), a, b)

    def order(self, a: DegreeValue, axis: int, descending: bool) -> DegreeValue:
        """Return positions that depend on all places of the numbers that are ordered."""
        places = self._beside(super().order(a, axis, descending), a)
        return replace(places, uses=places.uses | _ORDERED) if a.kind == "field" else places

    def maximum(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        return self._beside(super().maximum(a, b), a, b)

    def reduce_max(self, a: DegreeValue, axis: int) -> DegreeValue:
        return self._beside(super().reduce_max(a, axis), a, more=self._often.get(a.shape[axis], 0))

    def where(self, condition: DegreeValue, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        chosen = super().where(condition, a, b)
        return replace(chosen, top=chosen.top.times(condition.top).times(condition.bottom))

    def _decided(self, kind: Kind, shape: tuple[int, ...], *arguments: DegreeValue) -> DegreeValue:
        return self._decided_by(super()._decided(kind, shape, *arguments), *arguments)
