"""Degrees of rings and fields: how arithmetic changes upper bounds of degrees.

Sums are brought over a common denominator: the product of all divisors. A divisor that does not
vary along a summed axis, or is known to be the same one in both terms, counts once.

>>> algebra = DegreeRing()
>>> x, y = algebra.fresh("x", (3,)), algebra.fresh("y", (3,))
>>> algebra.multiply(x, algebra.add(x, y)).degree.numerator
2
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import count
from math import prod
from operator import add, mul, sub
from typing import Any

import numpy as np

from pitcheck.algebra.bound.degree_bounds import (
    ONE,
    Degree,
    Division,
    Polynomial,
    either,
    sum_of_exponents,
)
from pitcheck.algebra.bound.degree_values import (
    ABOVE_ZERO,
    Axes,
    DegreeValue,
    Divisor,
    Mark,
    Sign,
    Support,
    aligned,
    both,
    in_both,
    log2_of,
    sign_of_sum,
    wide_axes,
)
from pitcheck.algebra.interface import Kind
from pitcheck.algebra.shape_checks import broadcast
from pitcheck.errors import BudgetError, UnsupportedError

_LARGEST_POWER = 60
"""The bits of an exponent beyond which a degree says nothing."""
_DOMAINS = {"any": 1, "nonnegative": 1, "positive": 1, "nonzero": 1, "square": 2}
_SIGNS = {"nonnegative": Sign.NONNEGATIVE, "positive": ABOVE_ZERO}


class DegreeRing:
    """Arithmetic on degree bounds.

    ``divisions`` lists the values that must not vanish; integers that are drawn have degree 0.
    ``weighted`` has the degree of the weight of a place along axes whose sums are weighted, by
    their sizes. ``supports`` says of numbers that are made of integers or booleans, by the site
    that makes them, which are not 0.
    """

    def __init__(
        self,
        weighted: Mapping[int, int] | None = None,
        supports: Mapping[str, Support] | None = None,
    ) -> None:
        self.divisions: list[Division] = []
        self.guards: set[tuple[str, str]] = set()
        """The (site, "div", "log" or "sqrt") of all results that may not be defined for all
        numbers.
        """
        self.divided: dict[str, bool] = {}
        """The sites of all quotients by what integers make: True if it may be 0 for some of them.
        """
        self.exponential = False
        """True if there is an exponential or a logarithm anywhere, for which primes must be linked.
        """
        self.roots_of: set[int] = set()
        """The positive integers whose roots are taken, free of squares as far as they are known; 0
        stands for an unknown one.
        """
        self.irrational = 0
        """The number of times that a root of a number is taken that is not rational."""
        self.compared: set[str] = set()
        """The sites at which drawn numbers are compared."""
        self.extrema = False
        """True if there is an extremum or an order of drawn numbers."""
        self.sorts = False
        """True if numbers are ordered along an axis."""
        self.infinite = False
        """True if a constant is infinite or NaN."""
        self._denominators: dict[int, int] = {}
        self._weighted = weighted or {}
        self._supports = supports or {}
        self.site = ""
        self.seed = 0
        self.trials = (0,)
        self._keys = count()

    def _key(self) -> int:
        return next(self._keys)

    def _value(
        self, kind: Kind, shape: tuple[int, ...], instances: int = 1, top: Polynomial = ONE
    ) -> DegreeValue:
        known = Sign.KNOWN if top.degree == 0 else Sign(0)
        return DegreeValue(kind, shape, self._key(), instances, top, sign=known)

    def _guard(self, what: str, defined: bool) -> None:
        if not defined:
            self.guards.add((self.site, what))

    def _known(self, value: DegreeValue, number: Fraction | None) -> DegreeValue:
        """Return ``value`` with every element known to be ``number``, unless that is None."""
        if number is None:
            return value
        key = self._denominators.setdefault(number.denominator, self._key())
        return value.as_number(number, Mark(key, frozenset()))

    # --- properties
    def shape(self, a: DegreeValue) -> tuple[int, ...]:
        """Return the sizes."""
        return a.shape

    def kind(self, a: DegreeValue) -> Kind:
        """Return "field", "int" or "bool"."""
        return a.kind

    # --- making values
    def fresh(
        self,
        key: str,
        shape: Sequence[int],
        instances: int = 1,
        domain: str = "any",
        kind: Kind = "field",
    ) -> DegreeValue:
        """Return bounds for inputs that are drawn anew, shape (instances, *shape).

        They are uniform field elements (degree 1), which may stand for numbers that are positive,
        not negative or not 0, or for nonzero squares (degree 2 in what is drawn). Integers have
        degree 0.

        Raises:
            UnsupportedError: if the domain is unknown.
        """
        if domain not in _DOMAINS:
            raise UnsupportedError(
                f"the domain {domain!r} of input {key!r} is not known; known are "
                f"{', '.join(_DOMAINS)}"
            )
        degree = _DOMAINS[domain] if kind == "field" else 0
        if degree and domain in ("nonzero", "square"):
            self.divisions.append(Division(Degree(Polynomial(1)), prod(shape) * instances))
        value = self._value(kind, tuple(int(n) for n in shape), instances, Polynomial(degree))
        return replace(value, sign=value.sign | _SIGNS.get(domain, Sign(0)))

    def integers(self, array: Any) -> DegreeValue:
        """Return bounds for integers or booleans of shape (trials, instances, *shape): degree 0."""
        bools = array.dtype.kind == "b"
        largest = 1 if bools or not array.size else int(np.abs(array).max())
        return self._value(
            "bool" if bools else "int",
            tuple(array.shape[2:]),
            array.shape[1],
            Polynomial(height_log2=log2_of(largest)),
        )

    def constant(self, number: Fraction | float, kind: Kind = "field") -> DegreeValue:
        """Return bounds for a 0-d constant: degree 0, the height of numerator and denominator."""
        finite = isinstance(number, Fraction) or math.isfinite(number)
        self.infinite = self.infinite or not finite
        exact = kind != "bool" and finite
        return self._known(self._value(kind, ()), Fraction(number) if exact else None)

    def extent(self, a: DegreeValue, axes: Sequence[int]) -> DegreeValue:
        """Return bounds for a 0-d constant with the degree of the weights of all axes."""
        size = prod(a.shape[axis] for axis in axes)
        weighted = sum(self._weighted.get(a.shape[axis], 0) for axis in axes)
        if not weighted:
            return self.constant(Fraction(size))
        top = Polynomial(weighted, height_log2=log2_of(size))
        return replace(self._value("field", (), top=top), sign=ABOVE_ZERO)

    def arange(self, like: DegreeValue, axis: int) -> DegreeValue:
        """Return bounds for positions, which are counted from 0: degree 0."""
        size = like.shape[axis]
        value = self._value("int", (size,), 1, Polynomial(height_log2=log2_of(size)))
        return replace(value, sign=value.sign | Sign.NONNEGATIVE)

    def boundary(self, like: DegreeValue, axis: int, offset: int) -> DegreeValue:  # noqa: ARG002
        """Return bounds for a 0-d constant: degree 0."""
        return self.constant(Fraction(offset), "int")

    def draw(self, stream: str, index: DegreeValue) -> DegreeValue:  # noqa: ARG002
        """Return bounds for random draws: degree 0, for they do not depend on fresh residues."""
        return replace(self._value("field", index.shape, index.instances), sign=Sign(0))

    # --- ring and field
    def add(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds for a sum over the least common multiple of the divisors."""
        merged = dict(a.divisors)
        for mark, divisor in b.divisors.items():
            if mark not in merged or divisor.count > merged[mark].count:
                merged[mark] = divisor
        top = a.top.times(_missing(a, merged)).plus(b.top.times(_missing(b, merged)))
        crossed = _varying(a) != _varying(b)
        exponents = (
            sum_of_exponents(a.exponents, b.exponents)
            if crossed
            else either((a.exponents, b.exponents))
        )
        total = replace(
            self._combined(a, b, top, merged, exponents), sign=sign_of_sum(a.sign, b.sign)
        )
        return self._known(total, _of_both(add, a, b))

    def _combined(
        self,
        a: DegreeValue,
        b: DegreeValue,
        top: Polynomial,
        divisors: Mapping[Mark, Divisor],
        exponents: Degree | None,
    ) -> DegreeValue:
        shape = broadcast(a.shape, b.shape)
        return DegreeValue(
            a.kind,
            shape,
            self._key(),
            max(a.instances, b.instances),
            top,
            divisors,
            both(a.roots, b.roots),
            exponents,
            a.uses | b.uses,
        )

    def subtract(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds for a difference, as for ``add``."""
        return self._known(
            replace(self.add(a, b), number=None, sign=a.sign & b.sign & Sign.KNOWN),
            _of_both(sub, a, b),
        )

    def negate(self, a: DegreeValue) -> DegreeValue:
        """Return the same bounds."""
        return replace(
            a,
            identity=self._key(),
            number=None if a.number is None else -a.number,
            sign=a.sign & Sign.KNOWN,
        )

    def multiply(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds for a product: degrees add."""
        divisors = dict(a.divisors)
        for mark, divisor in b.divisors.items():
            divisors[mark] = replace(
                divisor, count=divisor.count + (divisors[mark].count if mark in divisors else 0)
            )
        product = self._combined(
            a, b, a.top.times(b.top), divisors, sum_of_exponents(a.exponents, b.exponents)
        )
        squared = Sign.NONNEGATIVE if a.identity == b.identity else Sign(0)
        product = replace(
            product,
            sign=a.sign & b.sign | squared,
            support=in_both(a.support, b.support, len(product.shape)),
        )
        return self._known(product, _of_both(mul, a, b))

    def divide(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds for ``a`` times the denominator of ``b`` over its numerator.

        The divisor is noted in ``divisions``, as it may vanish by chance.
        """
        if b.number:
            return self.multiply(a, self._known(replace(b, identity=self._key()), 1 / b.number))
        if b.is_constant:
            zero = Sign.NEVER_ZERO not in b.sign
            self.divided[self.site] = self.divided.get(self.site, False) or zero
            divisors = (
                {**a.divisors, Mark(b.identity, wide_axes(b.shape)): Divisor(b.top)}
                if b.top.height_log2
                else a.divisors
            )
            quotient = self._combined(a, b, a.top.times(b.bottom), divisors, a.exponents)
            support = aligned(a.support, len(quotient.shape))
            return replace(quotient, sign=a.sign & b.sign, support=support)
        self._guard("div", b.sign.divides)
        self.divisions.append(
            Division(
                Degree(b.top, ONE, sum(b.roots.values()), b.exponents, b.uses),
                prod(b.shape) * b.instances,
            )
        )
        divisors, top = dict(a.divisors), a.top
        for mark, divisor in b.divisors.items():
            held = divisors.pop(mark).count if mark in divisors else 0
            if held > divisor.count:
                divisors[mark] = replace(divisor, count=held - divisor.count)
            top = top.times(divisor.polynomial.to_the(max(divisor.count - held, 0)))
        own = Mark(b.identity, wide_axes(b.shape))
        divisors[own] = Divisor(b.top, 1 + (divisors[own].count if own in divisors else 0))
        quotient = self._combined(a, b, top, divisors, sum_of_exponents(a.exponents, b.exponents))
        support = aligned(a.support, len(quotient.shape))
        return replace(quotient, sign=a.sign & b.sign, support=support)

    def power(self, a: DegreeValue, exponent: int) -> DegreeValue:
        """Return bounds for a power: degrees times the exponent; a negative one divides.

        Raises:
            BudgetError: if the exponent has more than 60 bits.
        """
        if exponent < 0:
            return self.divide(self._value("field", ()), self.power(a, -exponent))
        if exponent == 0:
            return self._value(a.kind, a.shape, a.instances)
        if exponent.bit_length() > _LARGEST_POWER:
            raise BudgetError(
                "a power has so large an exponent that no bound by degrees is of use; write it "
                "with a smaller one"
            )
        divisors = {mark: replace(d, count=d.count * exponent) for mark, d in a.divisors.items()}
        number = None if a.number is None else a.number**exponent
        top = a.top.to_the(exponent)
        sign = a.sign if exponent % 2 else a.sign | Sign.NONNEGATIVE
        return replace(
            a,
            identity=self._key(),
            top=top,
            divisors=divisors,
            exponents=repeated_exponents(a.exponents, exponent),
            number=number,
            sign=sign,
        )

    def sum(self, a: DegreeValue, axes: Sequence[int]) -> DegreeValue:
        """Return bounds for a sum over ``axes``.

        A divisor that varies along a summed axis of n elements is multiplied n times; others stay.
        """
        result = a
        for axis in sorted(axes, reverse=True):
            result = self._summed(result, axis - len(result.shape))
        return result

    def _summed(self, a: DegreeValue, axis: int) -> DegreeValue:
        """Return bounds for a sum along an axis, counted from the end."""
        size, support, terms = a.shape[axis], a.support, a.shape[axis]
        if support is not None:
            if support.shape[axis] > 1:
                terms = max(1, int(support.sum(axis=axis).max(initial=1)))
            support = np.asarray(support.any(axis=axis))
        if size in self._weighted and a.kind == "field":
            a = replace(a, top=a.top.times(Polynomial(self._weighted[size])))
        place = len(a.shape) + axis
        shape = a.shape[:place] + a.shape[place + 1 :]
        if size == 0:
            return self._known(self._value(a.kind, shape, a.instances), Fraction(0))
        varying = [mark for mark in a.divisors if axis in mark.varies]
        product = ONE
        for mark in varying:
            product = product.times(a.divisors[mark].total)
        divisors = {without(mark, axis): d for mark, d in a.divisors.items() if mark not in varying}
        if varying:
            divisors[
                Mark(
                    self._key(),
                    without_axis(frozenset().union(*(m.varies for m in varying)), axis),
                )
            ] = Divisor(product.to_the(self._own_divisors(terms)))
        roots: dict[Mark, int] = {}
        for mark, number in a.roots.items():
            moved = (
                Mark(self._key(), without_axis(mark.varies, axis))
                if axis in mark.varies
                else without(mark, axis)
            )
            roots[moved] = number * (terms if axis in mark.varies else 1)
        exponents = repeated_exponents(a.exponents, terms) if product.powers else a.exponents
        top = a.top.times(product.to_the(self._own_divisors(terms) - 1)).summed(terms)
        return replace(
            a,
            identity=self._key(),
            shape=shape,
            top=top,
            divisors=divisors,
            roots=roots,
            exponents=exponents,
            number=None,
            support=support,
        )

    def _own_divisors(self, size: int) -> int:
        """Return how many terms of a sum of ``size`` have divisors of their own, if these vary."""
        return size


def _varying(a: DegreeValue) -> set[Mark]:
    """Return the divisors that are not mere numbers."""
    return {
        mark
        for mark, divisor in a.divisors.items()
        if divisor.polynomial.degree or divisor.polynomial.powers
    }


def _of_both(
    operation: Callable[[Fraction, Fraction], Fraction], a: DegreeValue, b: DegreeValue
) -> Fraction | None:
    """Return the number that an operation makes of two values; None unless both are known."""
    return None if a.number is None or b.number is None else operation(a.number, b.number)


def _missing(a: DegreeValue, merged: Mapping[Mark, Divisor]) -> Polynomial:
    """Return the factor that brings the numerator of ``a`` over the common denominator."""
    result = ONE
    for mark, divisor in merged.items():
        held = a.divisors[mark].count if mark in a.divisors else 0
        result = result.times(divisor.polynomial.to_the(divisor.count - held))
    return result


def repeated_exponents(exponents: Degree | None, times: int) -> Degree | None:
    """Return bounds for a sum of ``times`` exponents."""
    if exponents is None or times < 2 or exponents.denominator == 0:
        return exponents
    return replace(
        exponents,
        top=exponents.top.times(exponents.bottom.to_the(times - 1)),
        bottom=exponents.bottom.to_the(times),
    )


def without_axis(axes: Axes, axis: int) -> Axes:
    """Return ``axes`` (counted from the end) after ``axis`` has disappeared."""
    return frozenset(i + 1 if i < axis else i for i in axes if i != axis)


def without(mark: Mark, axis: int) -> Mark:
    """Return ``mark`` after ``axis`` has disappeared."""
    return Mark(mark.key, without_axis(mark.varies, axis))
