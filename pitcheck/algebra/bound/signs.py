"""The signs of numbers, and which are finite, operation by operation.

An exponential is 0 only at minus infinity, which stands for what a mask hides. So an exponential of
finite numbers is never 0, and where nothing is hidden a softmax is positive.

>>> algebra = SignAlgebra()
>>> x = algebra.fresh("x", (3,))
>>> Sign.NEVER_ZERO in algebra.exp(x).sign
True
>>> hidden = algebra.where(algebra.compare("gt", x, x), x, algebra.constant(float("-inf")))
>>> algebra.exp(hidden).sign & (Sign.NEVER_ZERO | Sign.FINITE)
<Sign.FINITE: 64>
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from operator import and_

from pitcheck.algebra.bound.degree_bounds import ONE, Polynomial
from pitcheck.algebra.bound.degree_values import Axes, DegreeValue, Sign, compared_with_zero
from pitcheck.algebra.bound.degrees import DegreeAlgebra
from pitcheck.algebra.interface import Comparison, Kind

ENDS = Sign.BELOW_INFINITY | Sign.FINITE


class SignAlgebra(DegreeAlgebra):
    """Degrees whose signs also say what is finite, if it has a value at all."""

    def __init__(self) -> None:
        super().__init__()
        self._outcomes: dict[int, bool] = {}
        """The outcomes of comparisons that have one for all inputs, by identity."""

    # --- making values
    def _value(
        self, kind: Kind, shape: tuple[int, ...], instances: int = 1, top: Polynomial = ONE
    ) -> DegreeValue:
        return _with(super()._value(kind, shape, instances, top), ENDS)

    def _known(self, value: DegreeValue, number: Fraction | None) -> DegreeValue:
        found = super()._known(value, number)
        return found if number is None else _with(found, ENDS)

    def constant(self, number: Fraction | float, kind: Kind = "field") -> DegreeValue:
        """Return a constant; minus infinity is below infinity."""
        value = super().constant(number, kind)
        if isinstance(number, Fraction) or math.isfinite(number):
            return value
        return _with(value, Sign.BELOW_INFINITY if number < 0 else Sign(0))

    # --- ring and field
    def add(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return a sum, which is as finite as both terms."""
        return _with(super().add(a, b), a.sign & b.sign)

    def subtract(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return a difference: only minus infinity less what is finite stays below infinity."""
        ends = a.sign if Sign.FINITE in b.sign else Sign(0)
        return _with(super().subtract(a, b), ends)

    def negate(self, a: DegreeValue) -> DegreeValue:
        """Return the negative, which is finite if the operand is."""
        return _with(super().negate(a), _if_finite(a))

    def multiply(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return a product, which is finite if both factors are."""
        return _with(super().multiply(a, b), _if_finite(a, b))

    def divide(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return a quotient, which is finite if both operands are, and 0 over infinity."""
        found = _with(super().divide(a, b), _if_finite(a, b))
        return (
            found if Sign.FINITE in b.sign else replace(found, sign=found.sign & ~Sign.NEVER_ZERO)
        )

    def power(self, a: DegreeValue, exponent: int) -> DegreeValue:
        """Return a power, which is finite if the base is."""
        return _with(super().power(a, exponent), _if_finite(a))

    # --- beyond the ring
    def exp(self, a: DegreeValue) -> DegreeValue:
        """Return an exponential: not 0 of finite numbers, and finite of all but plus infinity."""
        found = super().exp(a)
        if Sign.FINITE in a.sign:
            found = replace(found, sign=found.sign | Sign.NEVER_ZERO)
        return _with(found, ENDS if Sign.BELOW_INFINITY in a.sign else Sign(0))

    def log(self, a: DegreeValue) -> DegreeValue:
        """Return a logarithm, which is minus infinity of 0."""
        found = super().log(a)
        return found if Sign.NEVER_ZERO in a.sign else _with(found, Sign.BELOW_INFINITY & a.sign)

    def _opaque(self, use: str, shape: tuple[int, ...], *arguments: DegreeValue) -> DegreeValue:
        return _with(super()._opaque(use, shape, *arguments), _if_finite(*arguments))

    # --- choices
    def compare(self, comparison: Comparison, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return the outcome, and note it where signs alone decide.

        It must be that of what has no value, too: of that x >= 0 is false.
        """
        found = super().compare(comparison, a, b)
        outcome = compared_with_zero(comparison, a, b)
        if outcome is (comparison == "ne"):
            self._outcomes[found.identity] = outcome
        return found

    def where(self, condition: DegreeValue, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return one of two values; what is never negative is its absolute value."""
        found = super().where(condition, a, b)
        outcome = self._outcomes.get(condition.identity)
        return found if outcome is None else replace(found, sign=(a if outcome else b).sign)

    def _decided(self, kind: Kind, shape: tuple[int, ...], *arguments: DegreeValue) -> DegreeValue:
        return _with(super()._decided(kind, shape, *arguments), ENDS)

    def _one_of(
        self,
        kind: Kind,
        shape: tuple[int, ...],
        values: Sequence[DegreeValue],
        along: Axes,
        *deciding: DegreeValue,
    ) -> DegreeValue:
        found = super()._one_of(kind, shape, values, along, *deciding)
        return _with(found, reduce(and_, (value.sign for value in values)))


def _with(value: DegreeValue, ends: Sign) -> DegreeValue:
    """Return a value of which no more is known than ``ends`` about how large it may be."""
    return replace(value, sign=value.sign & ~ENDS | ends & ENDS)


def _if_finite(*values: DegreeValue) -> Sign:
    """Return that a result is finite, if all values are."""
    return ENDS if all(Sign.FINITE in value.sign for value in values) else Sign(0)
