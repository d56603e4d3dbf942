"""The algebra of degrees: an operator's meaning run on upper bounds of the degrees of its elements.

A value is a shape and, for every element, bounds on the quotient of exponential polynomials that it
is (:mod:`pitcheck.algebra.bound.degree_bounds`). Shapes are those of the evaluation whose error is
bounded.

>>> algebra = DegreeAlgebra()
>>> x = algebra.fresh("x", (2, 5))
>>> algebra.matmul(x, algebra.exp(algebra.transpose(x, (1, 0)))).degree.exponent
1
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from operator import and_

from pitcheck.algebra.bound.degree_bounds import (
    ONE,
    Bound,
    Degree,
    Division,
    Polynomial,
    difference,
    either,
    level_bound,
    rejected_share,
    trial_error,
    trial_error_log2,
)
from pitcheck.algebra.bound.degree_moves import DegreeMoves
from pitcheck.algebra.bound.degree_ring import repeated_exponents, without
from pitcheck.algebra.bound.degree_values import (
    DegreeValue,
    Mark,
    Sign,
    as_one,
    log2_of,
    reshaped,
    sign_of_maximum,
    wide_axes,
)
from pitcheck.algebra.interface import Comparison, Kind
from pitcheck.algebra.residues.keyed_functions import TOTAL
from pitcheck.algebra.shape_checks import broadcast, check_matmul

__all__ = [
    "Bound",
    "Degree",
    "DegreeAlgebra",
    "DegreeValue",
    "Division",
    "difference",
    "level_bound",
    "rejected_share",
    "trial_error",
    "trial_error_log2",
]


class DegreeAlgebra(DegreeMoves):
    """Every operation of :class:`~pitcheck.algebra.interface.Algebra` on degree bounds."""

    # --- products of matrices
    def matmul(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds for a product of (..., m, 1, k) and (..., n, k), summed over k.

        Raises:
            ShapeError: if the operands are not (..., m, k) and (..., k, n).
        """
        check_matmul(a.shape, b.shape)
        rows = a.moved(
            self._key(),
            (*a.shape[:-1], 1, a.shape[-1]),
            lambda m: Mark(m.key, frozenset(i if i == -1 else i - 1 for i in m.varies)),
        )
        columns = self.transpose(b, (*range(len(b.shape) - 2), len(b.shape) - 1, len(b.shape) - 2))
        wide = columns.moved(
            self._key(),
            (*columns.shape[:-2], 1, *columns.shape[-2:]),
            lambda m: Mark(m.key, frozenset(i if i >= -2 else i - 1 for i in m.varies)),
        )
        rows = replace(rows, support=reshaped(a.support, a.shape, rows.shape))
        wide = replace(wide, support=reshaped(columns.support, columns.shape, wide.shape))
        return self._summed(self.multiply(rows, wide), -1)

    # --- beyond the ring
    def exp(self, a: DegreeValue) -> DegreeValue:
        """Return bounds for one exponential term without a coefficient.

        Its exponent has the degree of the argument.
        """
        self.exponential = True
        # exp is 0 only at minus infinity, which masks put where integers say so.
        sign = Sign.NONNEGATIVE | Sign.POSITIVE | a.sign & Sign.KNOWN
        return DegreeValue(
            "field",
            a.shape,
            self._key(),
            a.instances,
            Polynomial(0, 0.0, 1),
            {},
            {},
            a.degree,
            a.uses | {"exp"},
            None,
            sign,
        )

    def log(self, a: DegreeValue) -> DegreeValue:
        """Return the degree of the argument, a heuristic bound."""
        self.exponential = True
        self._guard("log", Sign.POSITIVE in a.sign)
        return self._opaque("log", a.shape, a)

    def function(self, name: str, *arguments: DegreeValue) -> DegreeValue:
        """Return the degree of the arguments, a heuristic bound."""
        self._guard(name, name in TOTAL)
        return self._opaque("keyed", broadcast(*(a.shape for a in arguments)), *arguments)

    def _opaque(self, use: str, shape: tuple[int, ...], *arguments: DegreeValue) -> DegreeValue:
        top = ONE
        for argument in arguments:
            top = top.either(argument.top.either(argument.bottom))
        if all(a.is_constant for a in arguments):
            return self._value(
                "field",
                shape,
                max(a.instances for a in arguments),
                Polynomial(height_log2=top.height_log2),
            )
        divisors, roots = as_one(
            [replace(a, divisors={}) for a in arguments], wide_axes(shape), self._key
        )
        uses = frozenset({use}).union(*(a.uses for a in arguments))
        exponents, sign = (
            either(a.exponents for a in arguments),
            reduce(and_, (a.sign for a in arguments)) & Sign.KNOWN,
        )
        return DegreeValue(
            "field",
            shape,
            self._key(),
            max(a.instances for a in arguments),
            top,
            divisors,
            roots,
            exponents,
            uses,
            None,
            sign,
        )

    def sqrt(self, a: DegreeValue) -> DegreeValue:
        """Return bounds for sqrt(N/D) = y/D with y^2 = N D adjoined.

        y has half the degree of N D, and the norm of an element with r roots has 2^r times its
        degree.
        """
        bottom = a.bottom
        under = a.top.times(bottom)
        top = Polynomial(
            (under.degree + 1) // 2, under.terms_log2, under.powers, under.height_log2 / 2
        )
        if a.is_constant:
            root = _rational_root(a.number)
            # A rational root counts, too: residues take the root of 4 that is a square, and that is
            # 2 only if 2 is a square.
            self.roots_of.add(
                abs(a.number.numerator) * a.number.denominator
                if a.number
                else 0
                if a.number is None
                else 1
            )
            if root is None:
                self.irrational += 1
            if a.number is None:
                self._guard("sqrt", Sign.NONNEGATIVE in a.sign)
            return self._known(replace(a, identity=self._key(), top=top, number=None), root)
        self._guard("sqrt", Sign.NONNEGATIVE in a.sign)
        identity = self._key()
        roots = {**a.roots, Mark(identity, wide_axes(a.shape)): 1}
        return replace(
            a,
            identity=identity,
            top=top,
            roots=roots,
            exponents=repeated_exponents(a.exponents, 2),
            uses=a.uses | {"root"},
        )

    # --- order, decisions
    def _decided(self, kind: Kind, shape: tuple[int, ...], *arguments: DegreeValue) -> DegreeValue:
        """Return bounds for a discrete value that depends on the order of its arguments.

        They are heuristic if fresh residues enter.
        """
        if all(a.is_constant for a in arguments):
            height = (
                0.0
                if kind == "bool"
                else max(*(a.top.height_log2 for a in arguments), log2_of(max(shape, default=1)))
            )
            value = self._value(
                kind, shape, max(a.instances for a in arguments), Polynomial(height_log2=height)
            )
            return replace(value, sign=reduce(and_, (a.sign for a in arguments)) & Sign.KNOWN)
        if any(a.kind == "field" for a in arguments):
            return replace(self._opaque("order", shape, *arguments), kind=kind)
        # Signs of operands say nothing about an outcome: a < b is 0 where both are positive.
        found = self._one_of(kind, shape, arguments, wide_axes(shape))
        return replace(found, kind=kind, sign=found.sign & Sign.KNOWN)

    def compare(self, comparison: Comparison, a: DegreeValue, b: DegreeValue) -> DegreeValue:  # noqa: ARG002
        """Return the degree of the operands, a heuristic bound if fresh residues are compared."""
        if a.kind == "field" and not (a.is_constant and b.is_constant):
            self.compared.add(self.site)
        return self._decided("bool", broadcast(a.shape, b.shape), a, b)

    def where(self, condition: DegreeValue, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds for one of two values."""
        shape = broadcast(condition.shape, a.shape, b.shape)
        return self._one_of(a.kind, shape, (a, b), wide_axes(shape), condition)

    def logical_and(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds as of the operands."""
        return self._decided("bool", broadcast(a.shape, b.shape), a, b)

    logical_or = logical_and

    def logical_not(self, a: DegreeValue) -> DegreeValue:
        """Return bounds as of the operand, whose sign and zeros say nothing about its opposite."""
        return self._decided("bool", a.shape, a)

    def _extreme(self, shape: tuple[int, ...], *values: DegreeValue) -> DegreeValue:
        result = self._one_of(values[0].kind, shape, values, wide_axes(shape))
        if values[0].kind != "field" or all(v.is_constant for v in values):
            return result
        self.extrema = True
        return replace(result, uses=result.uses | {"order"})

    def maximum(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds for one of two values, chosen by order."""
        result = self._extreme(broadcast(a.shape, b.shape), a, b)
        return replace(result, sign=sign_of_maximum(a.sign, b.sign))

    def minimum(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds for one of two values, chosen by order."""
        return self._extreme(broadcast(a.shape, b.shape), a, b)

    def reduce_max(self, a: DegreeValue, axis: int) -> DegreeValue:
        """Return bounds for one of the elements along the axis, chosen by order."""
        place = axis - len(a.shape)
        shape = a.shape[:axis] + a.shape[axis + 1 :]

        def move(mark: Mark) -> Mark:
            return (
                Mark(self._key(), wide_axes(shape))
                if place in mark.varies
                else without(mark, place)
            )

        return self._extreme(shape, a.moved(self._key(), shape, move))

    reduce_min = reduce_max

    def shift(self, a: DegreeValue, axis: int) -> DegreeValue:
        """Return bounds for 0."""
        return self._value("field", a.shape[:axis] + a.shape[axis + 1 :], 1, Polynomial(0))

    def order(self, a: DegreeValue, axis: int, descending: bool) -> DegreeValue:  # noqa: ARG002
        """Return the degree of the argument, a heuristic bound if fresh residues are sorted."""
        self.extrema = self.extrema or not a.is_constant
        self.sorts = self.sorts or a.kind == "field"
        return self._decided("int", a.shape, a)

    # --- integers
    def floor_divide(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds as of the operands; of two that are not negative the quotient is not.

        It may be 0 though no operand is.
        """
        found = self._decided("int", broadcast(a.shape, b.shape), a, b)
        return replace(found, sign=found.sign | a.sign & b.sign & Sign.NONNEGATIVE)

    remainder = floor_divide

    def cast(self, a: DegreeValue, kind: Kind) -> DegreeValue:
        """Return bounds in another kind: integers and bools embed.

        A field value that becomes discrete is decided by order. Truncated toward 0 it does not
        become negative.
        """
        if a.kind == "field" and kind != "field":
            found = self._decided(kind, a.shape, a)
            return replace(found, sign=found.sign | a.sign & Sign.NONNEGATIVE)
        if a.kind == kind:
            return a
        return replace(
            a,
            kind=kind,
            identity=self._key(),
            number=None if "bool" in (kind, a.kind) else a.number,
            sign=a.sign | (Sign.NONNEGATIVE if a.kind == "bool" else Sign(0)),
            support=self._supports.get(self.site),
        )


def _rational_root(number: Fraction | None) -> Fraction | None:
    """Return the root of a rational if it is one, else None."""
    if number is None or number < 0:
        return None
    root = Fraction(math.isqrt(number.numerator), math.isqrt(number.denominator))
    return root if root * root == number else None
