"""Values known by upper bounds on their degrees.

Their denominators and roots carry marks, which remember along which axes they vary.

>>> sign_of_sum(sign_of(Fraction(1)), Sign.NONNEGATIVE) is Sign.NONNEGATIVE | ABOVE_ZERO
True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Flag, auto
from fractions import Fraction
from functools import reduce
from math import prod
from operator import and_

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.bound.degree_bounds import ONE, Degree, Polynomial
from pitcheck.algebra.interface import MIRRORED, Comparison, Kind

Axes = frozenset[int]
"""Axes counted from the end (-1 is the last), so that broadcasting leaves them as they are."""


class Sign(Flag):
    """Facts about the sign of all elements of a value, for all real inputs.

    ``KNOWN``: made of integers and constants alone. ``NONNEGATIVE``: not negative. ``POSITIVE``: 0
    only if integers and constants make it 0, which a draw shows. ``NEVER_ZERO``: never 0.
    ``INFINITE``: infinite or NaN. ``BELOW_INFINITY``: not plus infinity, if it has a value at all.
    ``FINITE``: neither plus nor minus infinity, if it has one.
    """

    KNOWN = auto()
    NONNEGATIVE = auto()
    POSITIVE = auto()
    NEVER_ZERO = auto()
    INFINITE = auto()
    BELOW_INFINITY = auto()
    FINITE = auto()

    @property
    def divides(self) -> bool:
        """Return True if a quotient by such a number is defined, or is seen not to be."""
        return bool(self & (Sign.KNOWN | Sign.POSITIVE))


UNKNOWN = Sign(0)
ABOVE_ZERO = Sign.NONNEGATIVE | Sign.POSITIVE | Sign.NEVER_ZERO


def sign_of(number: Fraction) -> Sign:
    """Return the facts that are known of a constant."""
    return Sign.KNOWN | (
        ABOVE_ZERO if number > 0 else Sign(0) if number < 0 else Sign.NONNEGATIVE | Sign.POSITIVE
    )


def sign_of_sum(a: Sign, b: Sign) -> Sign:
    """Return the facts that are known of a sum.

    With a term that is never 0 it is not 0, if no term is negative.
    """
    lifted = a & b & Sign.NONNEGATIVE and (a | b) & Sign.NEVER_ZERO
    return (a & b) | (ABOVE_ZERO if lifted else Sign(0))


def sign_of_choice(signs: Sequence[Sign], deciding: Sequence[Sign]) -> Sign:
    """Return the facts that are known of one of several numbers.

    If inputs decide, as far as ``deciding`` says, no draw need show the one that is 0.
    """
    common = reduce(and_, signs)
    if all(sign & Sign.KNOWN for sign in deciding):
        return common
    return common & (ABOVE_ZERO if common & Sign.NEVER_ZERO else Sign.NONNEGATIVE)


def sign_of_maximum(a: Sign, b: Sign) -> Sign:
    """Return the facts that are known of the larger one of two numbers."""
    above = ABOVE_ZERO if (a | b) & Sign.NEVER_ZERO else (a | b) & Sign.NONNEGATIVE
    return (a & b) | above


Support = NDArray[np.bool_]
"""The elements of a value that may not be 0, shape (draws, instances, *shape). A size 1 stands for
all along an axis.
"""


@dataclass(frozen=True)
class Mark:
    """The name of a tensor of divisors or of roots.

    Its elements differ along the axes ``varies`` of the value. Two values with equal marks have the
    same divisor at equal places. So a key is kept only if the order of the axes along which it
    varies, and all elements along them, are kept.
    """

    key: int
    varies: Axes


@dataclass(frozen=True)
class Divisor:
    """A polynomial that stands ``count`` times in the denominator."""

    polynomial: Polynomial
    count: int = 1

    @property
    def total(self) -> Polynomial:
        """The polynomial to the power ``count``."""
        return self.polynomial.to_the(self.count)


@dataclass(frozen=True, eq=False)
class DegreeValue:
    """Bounds for all elements of ``instances`` tensors of one shape."""

    kind: Kind
    shape: tuple[int, ...]
    identity: int
    instances: int = 1
    top: Polynomial = ONE
    divisors: Mapping[Mark, Divisor] = field(default_factory=dict)
    roots: Mapping[Mark, int] = field(default_factory=dict)
    exponents: Degree | None = None
    uses: frozenset[str] = frozenset()
    number: Fraction | None = None
    """The number that every element is; None if that is not known."""
    sign: Sign = UNKNOWN
    """The facts that are known of the sign of every element, for all real inputs."""
    power: tuple[Polynomial, Polynomial] | None = None
    """The bounds for numerator and denominator of the exponential of an element, over tables
    (:mod:`pitcheck.algebra.bound.free_degrees`); None if it is one variable.
    """
    is_log: bool = False
    """True if a logarithm is a term of it, over tables."""

    is_root: bool = False
    """True if it may be a formal root, over tables."""
    support: Support | None = None
    """The elements that may not be 0 for the integers of some draws; None if that is not known."""

    @property
    def elements(self) -> int:
        """The number of elements of all instances."""
        return prod(self.shape) * self.instances

    @property
    def splits(self) -> bool:
        """True if the exponential is more than one variable."""
        return self.power is not None

    @property
    def bottom(self) -> Polynomial:
        """The product of all divisors."""
        result = ONE
        for divisor in self.divisors.values():
            result = result.times(divisor.total)
        return result

    @property
    def degree(self) -> Degree:
        """The bounds for one element."""
        return Degree(self.top, self.bottom, sum(self.roots.values()), self.exponents, self.uses)

    @property
    def is_constant(self) -> bool:
        """True if no fresh residue enters: the value is a constant, or made of integers alone."""
        return self.top.degree == self.bottom.degree == 0 and not self.uses and not self.top.powers

    def moved(
        self, identity: int, shape: tuple[int, ...], move: Callable[[Mark], Mark]
    ) -> DegreeValue:
        """Return the same elements in another arrangement; ``move`` maps old marks to new ones."""
        divisors: dict[Mark, Divisor] = {}
        for mark, divisor in self.divisors.items():
            place = move(mark)
            held = divisors.get(place)
            divisors[place] = divisor if held is None else Divisor(held.total.times(divisor.total))
        roots: dict[Mark, int] = {}
        for mark, count in self.roots.items():
            place = move(mark)
            roots[place] = roots.get(place, 0) + count
        return replace(
            self, identity=identity, shape=shape, divisors=divisors, roots=roots, support=None
        )

    def as_number(self, number: Fraction, denominator: Mark) -> DegreeValue:
        """Return the value with every element known to be the rational ``number``.

        ``denominator`` is the mark of its denominator.
        """
        divisors = (
            {}
            if number.denominator == 1
            else {denominator: Divisor(Polynomial(height_log2=log2_of(number.denominator)))}
        )
        top = Polynomial(height_log2=log2_of(number.numerator))
        return replace(self, top=top, divisors=divisors, number=number, sign=sign_of(number))


def log2_of(number: int) -> float:
    """Return the log2 of the size of an integer, rounded up, at least 0."""
    size = max(abs(number), 1)
    shift = max(size.bit_length() - 64, 0)
    return math.log2((size >> shift) + (shift > 0)) + shift


def wide_axes(shape: tuple[int, ...]) -> Axes:
    """Return the axes that have more than one element."""
    return frozenset(i - len(shape) for i, n in enumerate(shape) if n != 1)


def aligned(support: Support | None, rank: int) -> Support | None:
    """Return a support with leading axes of one element, so that it has ``rank`` logical ones."""
    if support is None:
        return None
    missing = (1,) * (rank + 2 - support.ndim)
    return support.reshape((*support.shape[:2], *missing, *support.shape[2:]))


def in_both(a: Support | None, b: Support | None, rank: int) -> Support | None:
    """Return where a product of ``rank`` axes may not be 0, from where its factors may not.

    If that is a larger array than both, the sparser one is returned.
    """
    first, second = aligned(a, rank), aligned(b, rank)
    if first is None or second is None:
        return second if first is None else first
    if prod(np.broadcast_shapes(first.shape, second.shape)) <= max(first.size, second.size):
        return np.asarray(first & second)
    return first if first.mean() <= second.mean() else second


def reshaped(support: Support | None, old: Sequence[int], new: Sequence[int]) -> Support | None:
    """Return a support after a reshape of the value; None if it cannot be told."""
    if support is None:
        return None
    if support.shape[2:] == tuple(old):
        return support.reshape((*support.shape[:2], *new))
    if [n for n in old if n != 1] != [n for n in new if n != 1]:
        return None
    wide = iter(m for n, m in zip(old, support.shape[2:], strict=True) if n != 1)
    return support.reshape((*support.shape[:2], *(1 if n == 1 else next(wide) for n in new)))


def as_one(
    values: Sequence[DegreeValue], along: Axes, new_key: Callable[[], int]
) -> tuple[dict[Mark, Divisor], dict[Mark, int]]:
    """Return the divisors and roots of a value each of whose elements is one of ``values``.

    The choice among them changes ``along`` some axes. Marks that all values have are kept. The
    others are paired in order: the i-th divisor of the result is, element by element, the i-th one
    of the chosen value.

    Returns:
        A pair of the divisors and the numbers of roots, each by mark.
    """
    shared = {
        m
        for m in values[0].divisors
        if all(v.divisors.get(m) == values[0].divisors[m] for v in values)
    }
    divisors = {m: values[0].divisors[m] for m in values[0].divisors if m in shared}
    lists = [[(m, d) for m, d in v.divisors.items() if m not in shared] for v in values]
    for i in range(max(map(len, lists))):
        column = [entries[i] for entries in lists if i < len(entries)]
        polynomial = ONE
        for _, divisor in column:
            polynomial = polynomial.either(divisor.total)
        divisors[Mark(new_key(), along.union(*(m.varies for m, _ in column)))] = Divisor(polynomial)
    common = {
        m for m in values[0].roots if all(v.roots.get(m) == values[0].roots[m] for v in values)
    }
    roots = {m: values[0].roots[m] for m in values[0].roots if m in common}
    most = max(sum(n for m, n in v.roots.items() if m not in common) for v in values)
    if most:
        axes = along.union(*(m.varies for v in values for m in v.roots))
        roots[Mark(new_key(), axes)] = most
    return divisors, roots


def both(a: Mapping[Mark, int], b: Mapping[Mark, int]) -> dict[Mark, int]:
    """Return the roots of two values that are combined: equal marks are the same roots."""
    return {m: max(a.get(m, 0), b.get(m, 0)) for m in (*a, *(m for m in b if m not in a))}


def compared_with_zero(comparison: Comparison, a: DegreeValue, b: DegreeValue) -> bool | None:
    """Return the outcome of a comparison with 0 of what is never negative; None for others."""
    if a.number == 0 and b.number != 0:
        a, b, comparison = b, a, MIRRORED[comparison]
    if b.number != 0 or Sign.NONNEGATIVE not in a.sign:
        return None
    outcomes = {"ge": True, "lt": False}
    if Sign.NEVER_ZERO in a.sign:
        outcomes |= {"gt": True, "ne": True, "le": False, "eq": False}
    return outcomes.get(comparison)
