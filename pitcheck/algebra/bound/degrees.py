"""The algebra of degrees: an operator's meaning run on upper bounds of the degrees of its elements.

A value is a shape and, for every element, bounds on the quotient of exponential polynomials that it
is (:mod:`pitcheck.algebra.bound.degree_bounds`). Sums are brought over a common denominator: the
product of all divisors, where a divisor that does not vary along a summed axis, or is known to be
the same one in both terms, counts once. Shapes are those of the evaluation whose error is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from itertools import count
from math import prod
from operator import add, and_, mul, sub
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    sum_of_exponents,
    trial_error,
    trial_error_log2,
)
from pitcheck.algebra.bound.degree_values import (
    Axes,
    DegreeValue,
    Divisor,
    Mark,
    Sign,
    as_one,
    both,
    log2_of,
    sign_of_sum,
    wide_axes,
)
from pitcheck.algebra.interface import Comparison, Kind
from pitcheck.errors import BudgetError, ShapeError, UnsupportedError

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

Index = NDArray[np.int64]

_LARGEST_POWER = 60
"""Bits of an exponent beyond which a degree says nothing."""
_DOMAINS = {"any": 1, "nonzero": 1, "square": 2}


class DegreeAlgebra:
    """Every operation of :class:`~pitcheck.algebra.interface.Algebra` on degree bounds.
    ``divisions`` lists what must not vanish; integers drawn have degree 0.

    ``weighted``: the sizes of axes with a weight for every place, of degree 1, in sums.
    """

    def __init__(self, weighted: Collection[int] = ()) -> None:
        self.divisions: list[Division] = []
        self.guards: set[tuple[str, str]] = set()
        """(site, "div", "log" or "sqrt") of all that is computed there and may not be defined for
        all numbers.
        """
        self.exponential = False
        """Whether there is an exponential or a logarithm anywhere, for which primes must
        be linked.
        """
        self.roots_of: set[int] = set()
        """The positive integers, free of squares as far as they are known, of which roots are
        taken; 0 stands for one that is not known.
        """
        self.irrational = 0
        """How often a root of a number is taken that is not rational."""
        self._denominators: dict[int, int] = {}
        self._weighted = weighted
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
        """``value``, every element of which is a rational, if that is known."""
        if number is None:
            return value
        key = self._denominators.setdefault(number.denominator, self._key())
        return value.as_number(number, Mark(key, frozenset()))

    # --- what a value looks like
    def shape(self, a: DegreeValue) -> tuple[int, ...]:
        """Sizes."""
        return a.shape

    def kind(self, a: DegreeValue) -> Kind:
        """Field, int or bool."""
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
        """Inputs drawn anew: uniform field elements (degree 1), ones other than 0, or nonzero
        squares (degree 2 in what is drawn); integers have degree 0.

        Raises UnsupportedError for an unknown domain.
        """
        if domain not in _DOMAINS:
            raise UnsupportedError(
                f"the domain {domain!r} of input {key!r} is not known; known are "
                f"{', '.join(_DOMAINS)}"
            )
        degree = _DOMAINS[domain] if kind == "field" else 0
        if degree and domain != "any":
            self.divisions.append(Division(Degree(Polynomial(1)), prod(shape) * instances))
        return self._value(kind, tuple(int(n) for n in shape), instances, Polynomial(degree))

    def integers(self, array: Any) -> DegreeValue:
        """Integers or booleans of shape (trials, instances, *shape), of degree 0."""
        bools = array.dtype.kind == "b"
        largest = 1 if bools or not array.size else int(np.abs(array).max())
        return self._value(
            "bool" if bools else "int",
            tuple(array.shape[2:]),
            array.shape[1],
            Polynomial(height_log2=log2_of(largest)),
        )

    def constant(self, number: Fraction | float, kind: Kind = "field") -> DegreeValue:
        """A 0-d constant, of degree 0 and the height of its numerator and denominator."""
        exact = kind != "bool" and (isinstance(number, Fraction) or math.isfinite(number))
        return self._known(self._value(kind, ()), Fraction(number) if exact else None)

    def extent(self, a: DegreeValue, axes: Sequence[int]) -> DegreeValue:
        """A 0-d constant, of degree 0, or of degree 1 for every axis with weights."""
        size = prod(a.shape[axis] for axis in axes)
        weighted = sum(a.shape[axis] in self._weighted for axis in axes)
        return (
            self._value("field", (), top=Polynomial(weighted, height_log2=log2_of(size)))
            if weighted
            else self.constant(Fraction(size))
        )

    def arange(self, like: DegreeValue, axis: int) -> DegreeValue:
        """Positions, of degree 0."""
        return self._value(
            "int", (like.shape[axis],), 1, Polynomial(height_log2=log2_of(like.shape[axis]))
        )

    def boundary(self, like: DegreeValue, axis: int, offset: int) -> DegreeValue:  # noqa: ARG002
        """A 0-d constant, of degree 0."""
        return self.constant(Fraction(offset), "int")

    def draw(self, stream: str, index: DegreeValue) -> DegreeValue:  # noqa: ARG002
        """Draws of a random stream do not depend on fresh residues: degree 0."""
        return replace(self._value("field", index.shape, index.instances), sign=Sign(0))

    # --- ring and field
    def add(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Over the least common multiple of the divisors."""
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
        shape = _broadcast(a.shape, b.shape)
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
        """As ``add``."""
        return self._known(
            replace(self.add(a, b), number=None, sign=a.sign & b.sign & Sign.KNOWN),
            _of_both(sub, a, b),
        )

    def negate(self, a: DegreeValue) -> DegreeValue:
        """Degrees stay."""
        return replace(
            a,
            identity=self._key(),
            number=None if a.number is None else -a.number,
            sign=a.sign & Sign.KNOWN,
        )

    def multiply(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Degrees add."""
        divisors = dict(a.divisors)
        for mark, divisor in b.divisors.items():
            divisors[mark] = replace(
                divisor, count=divisor.count + (divisors[mark].count if mark in divisors else 0)
            )
        product = self._combined(
            a, b, a.top.times(b.top), divisors, sum_of_exponents(a.exponents, b.exponents)
        )
        squared = Sign.NONNEGATIVE if a.identity == b.identity else Sign(0)
        return self._known(replace(product, sign=a.sign & b.sign | squared), _of_both(mul, a, b))

    def divide(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Times the divisor's denominator over its numerator; the divisor is noted in
        ``divisions``, as it may vanish by chance.
        """
        if b.number:
            return self.multiply(a, self._known(replace(b, identity=self._key()), 1 / b.number))
        if b.is_constant:
            divisors = (
                {**a.divisors, Mark(b.identity, wide_axes(b.shape)): Divisor(b.top)}
                if b.top.height_log2
                else a.divisors
            )
            return replace(
                self._combined(a, b, a.top.times(b.bottom), divisors, a.exponents),
                sign=a.sign & b.sign,
            )
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
        return replace(quotient, sign=a.sign & b.sign)

    def power(self, a: DegreeValue, exponent: int) -> DegreeValue:
        """Degrees times the exponent; a negative one divides."""
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
            exponents=_repeated(a.exponents, exponent),
            number=number,
            sign=sign,
        )

    def sum(self, a: DegreeValue, axes: Sequence[int]) -> DegreeValue:
        """Divisors that vary along a summed axis of n elements are multiplied n times;
        others stay.
        """
        result = a
        for axis in sorted(axes, reverse=True):
            result = self._summed(result, axis - len(result.shape))
        return result

    def _summed(self, a: DegreeValue, axis: int) -> DegreeValue:
        size = a.shape[axis]
        if size in self._weighted and a.kind == "field":
            a = replace(a, top=a.top.times(Polynomial(1)))
        place = len(a.shape) + axis
        shape = a.shape[:place] + a.shape[place + 1 :]
        if size == 0:
            return self._known(self._value(a.kind, shape, a.instances), Fraction(0))
        varying = [mark for mark in a.divisors if axis in mark.varies]
        product = ONE
        for mark in varying:
            product = product.times(a.divisors[mark].total)
        divisors = {
            _without(mark, axis): d for mark, d in a.divisors.items() if mark not in varying
        }
        if varying:
            divisors[
                Mark(
                    self._key(),
                    _without_axis(frozenset().union(*(m.varies for m in varying)), axis),
                )
            ] = Divisor(product.to_the(size))
        roots: dict[Mark, int] = {}
        for mark, number in a.roots.items():
            moved = (
                Mark(self._key(), _without_axis(mark.varies, axis))
                if axis in mark.varies
                else _without(mark, axis)
            )
            roots[moved] = number * (size if axis in mark.varies else 1)
        exponents = _repeated(a.exponents, size) if product.powers else a.exponents
        top = a.top.times(product.to_the(size - 1)).summed(size)
        return replace(
            a,
            identity=self._key(),
            shape=shape,
            top=top,
            divisors=divisors,
            roots=roots,
            exponents=exponents,
            number=None,
        )

    def matmul(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """A product of (..., m, 1, k) and (..., n, k), summed over k."""
        if len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-2]:
            raise ShapeError(
                f"matmul takes (..., m, k) and (..., k, n), not {a.shape} and {b.shape}"
            )
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
        return self._summed(self.multiply(rows, wide), -1)

    # --- structure
    def _moved(
        self, a: DegreeValue, shape: tuple[int, ...], axes: Mapping[int, Axes], disturbed: Axes
    ) -> DegreeValue:
        """``axes`` says where every axis goes; marks that vary along ``disturbed`` ones are no
        longer known to be the same.
        """

        def move(mark: Mark) -> Mark:
            varies: Axes = frozenset().union(*(axes[i] for i in mark.varies))
            return Mark(
                self._key() if mark.varies & disturbed else mark.key, varies & wide_axes(shape)
            )

        return a.moved(self._key(), shape, move)

    def reshape(self, a: DegreeValue, shape: Sequence[int]) -> DegreeValue:
        """Marks go along with the runs of dimensions that are regrouped."""
        target = tuple(int(n) for n in shape)
        if prod(target) != prod(a.shape):
            raise ShapeError(
                f"a tensor of shape {a.shape} cannot be viewed as {target}: the number of "
                f"elements differs"
            )
        axes, kept = _runs(a.shape, target)
        return self._moved(a, target, axes, frozenset(axes) - kept)

    def transpose(self, a: DegreeValue, permutation: Sequence[int]) -> DegreeValue:
        """Marks stay the same where the axes along which they vary keep their order."""
        number = len(a.shape)
        to = {axis - number: list(permutation).index(axis) - number for axis in range(number)}

        def move(mark: Mark) -> Mark:
            order = [to[i] for i in sorted(mark.varies)]
            return Mark(mark.key if order == sorted(order) else self._key(), frozenset(order))

        return a.moved(self._key(), tuple(a.shape[i] for i in permutation), move)

    def expand(self, a: DegreeValue, shape: Sequence[int]) -> DegreeValue:
        """Repeats: nothing varies along new axes."""
        return replace(a, identity=self._key(), shape=tuple(int(n) for n in shape))

    def slice(self, a: DegreeValue, axis: int, start: int, stop: int, step: int = 1) -> DegreeValue:
        """Marks that vary along the axis are others."""
        size = len(range(start, stop, step))
        if (start, stop, step) == (0, a.shape[axis], 1):
            return a
        return self._moved(
            a,
            (*a.shape[:axis], size, *a.shape[axis + 1 :]),
            _same_axes(a),
            frozenset({axis - len(a.shape)}),
        )

    def flip(self, a: DegreeValue, axis: int) -> DegreeValue:
        """Marks that vary along the axis are others."""
        return self._moved(a, a.shape, _same_axes(a), frozenset({axis - len(a.shape)}))

    def concatenate(self, values: Sequence[DegreeValue], axis: int) -> DegreeValue:
        """One of the parts, which one changes along the axis."""
        first = values[0]
        shape = (*first.shape[:axis], sum(v.shape[axis] for v in values), *first.shape[axis + 1 :])
        return self._one_of(first.kind, shape, values, frozenset({axis - len(shape)}))

    def _one_of(
        self,
        kind: Kind,
        shape: tuple[int, ...],
        values: Sequence[DegreeValue],
        along: Axes,
        *deciding: DegreeValue,
    ) -> DegreeValue:
        """Every element is one of ``values``, which one changes ``along`` axes; what decides is
        counted with its degree where fresh residues enter it.
        """
        divisors, roots = as_one(values, along & wide_axes(shape), self._key)
        chosen = [*values, *(d for d in deciding if not d.is_constant)]
        top = ONE
        for value in chosen:
            top = top.either(value.top)
        return DegreeValue(
            kind,
            shape,
            self._key(),
            max(v.instances for v in (*values, *deciding)),
            top,
            divisors,
            roots,
            either(v.exponents for v in chosen),
            frozenset().union(*(v.uses for v in chosen)),
            None,
            reduce(and_, (v.sign for v in values)),
        )

    # --- indexing
    def take(self, a: DegreeValue, axis: int, indices: DegreeValue) -> DegreeValue:
        """Elements of ``a``; marks that vary along the axis are others, and vary along the axes of
        the indices.
        """
        before, after = a.shape[:axis], a.shape[axis + 1 :]
        shape = (*before, *indices.shape, *after)
        new = frozenset(range(-len(after) - len(indices.shape), -len(after)))
        axes = {i: frozenset({i}) for i in range(-len(after), 0)}
        axes |= {i - len(a.shape): frozenset({i - len(shape)}) for i in range(axis)}
        axes[axis - len(a.shape)] = new
        taken = self._moved(a, shape, axes, frozenset({axis - len(a.shape)}))
        return self._one_of(a.kind, shape, [taken], new, indices)

    def take_along(self, a: DegreeValue, axis: int, indices: DegreeValue) -> DegreeValue:
        """Elements of ``a``; marks that vary along the axis are others, and vary along all axes."""
        place = axis - len(a.shape)
        everywhere = wide_axes(indices.shape)
        axes = {i: everywhere if i == place else frozenset({i}) for i in range(-len(a.shape), 0)}
        taken = self._moved(a, indices.shape, axes, frozenset({place}))
        return self._one_of(a.kind, indices.shape, [taken], everywhere, indices)

    def add_at(
        self, base: DegreeValue, axis: int, indices: DegreeValue, source: DegreeValue
    ) -> DegreeValue:
        """At most all elements of the source along the axes of the indices are added to one
        element.
        """
        added = self.sum(source, range(axis, axis + len(indices.shape)))
        spread = self.reshape(added, (*base.shape[:axis], 1, *base.shape[axis + 1 :]))
        return self.add(
            base, self._one_of(base.kind, base.shape, [spread], wide_axes(base.shape), indices)
        )

    def add_along(
        self, base: DegreeValue, axis: int, indices: DegreeValue, source: DegreeValue
    ) -> DegreeValue:
        """At most all elements of the source along the axis are added to one element."""
        added = self.sum(source, (axis,))
        spread = self.reshape(added, (*base.shape[:axis], 1, *base.shape[axis + 1 :]))
        return self.add(
            base, self._one_of(base.kind, base.shape, [spread], wide_axes(base.shape), indices)
        )

    # --- beyond the ring
    def exp(self, a: DegreeValue) -> DegreeValue:
        """One exponential term without a coefficient, whose exponent has the degree of the
        argument.
        """
        self.exponential = True
        # Of minus infinity, which masks are, it is 0: where integers say so.
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
        """Heuristic: the degree of the argument."""
        self.exponential = True
        self._guard("log", Sign.POSITIVE in a.sign)
        return self._opaque("log", a.shape, a)

    def function(self, name: str, *arguments: DegreeValue) -> DegreeValue:  # noqa: ARG002
        """Heuristic: the degree of the arguments."""
        return self._opaque("keyed", _broadcast(*(a.shape for a in arguments)), *arguments)

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
        """sqrt(N/D) = y/D with y^2 = N D adjoined: y has half the degree of N D, and the norm of an
        element with r roots has 2^r times its degree.
        """
        bottom = a.bottom
        under = a.top.times(bottom)
        top = Polynomial(
            (under.degree + 1) // 2, under.terms_log2, under.powers, under.height_log2 / 2
        )
        if a.is_constant:
            root = _rational_root(a.number)
            # A rational root counts, too: residues take the root of 4 that is a square, which is 2
            # only if 2 is a square.
            self.roots_of.add(
                abs(a.number.numerator) * a.number.denominator
                if a.number
                else 0
                if a.number is None
                else 1
            )
            if root is None:
                self.irrational += 1
            return self._known(replace(a, identity=self._key(), top=top, number=None), root)
        self._guard("sqrt", Sign.NONNEGATIVE in a.sign)
        identity = self._key()
        roots = {**a.roots, Mark(identity, wide_axes(a.shape)): 1}
        return replace(
            a,
            identity=identity,
            top=top,
            roots=roots,
            exponents=_repeated(a.exponents, 2),
            uses=a.uses | {"root"},
        )

    # --- order, decisions
    def _decided(self, kind: Kind, shape: tuple[int, ...], *arguments: DegreeValue) -> DegreeValue:
        """A discrete value that depends on the order of its arguments: heuristic where fresh
        residues enter.
        """
        if all(a.is_constant for a in arguments):
            height = (
                0.0
                if kind == "bool"
                else max(*(a.top.height_log2 for a in arguments), log2_of(max(shape, default=1)))
            )
            return self._value(
                kind, shape, max(a.instances for a in arguments), Polynomial(height_log2=height)
            )
        if any(a.kind == "field" for a in arguments):
            return replace(self._opaque("order", shape, *arguments), kind=kind)
        return replace(self._one_of(kind, shape, arguments, wide_axes(shape)), kind=kind)

    def compare(self, comparison: Comparison, a: DegreeValue, b: DegreeValue) -> DegreeValue:  # noqa: ARG002
        """Heuristic where fresh residues are compared: the degree of the operands."""
        return self._decided("bool", _broadcast(a.shape, b.shape), a, b)

    def where(self, condition: DegreeValue, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """One of two."""
        shape = _broadcast(condition.shape, a.shape, b.shape)
        return self._one_of(a.kind, shape, (a, b), wide_axes(shape), condition)

    def logical_and(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """As the operands."""
        return self._decided("bool", _broadcast(a.shape, b.shape), a, b)

    def logical_or(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """As the operands."""
        return self._decided("bool", _broadcast(a.shape, b.shape), a, b)

    def logical_not(self, a: DegreeValue) -> DegreeValue:
        """As the operand."""
        return replace(a, identity=self._key())

    def _extreme(self, shape: tuple[int, ...], *values: DegreeValue) -> DegreeValue:
        result = self._one_of(values[0].kind, shape, values, wide_axes(shape))
        if values[0].kind != "field" or all(v.is_constant for v in values):
            return result
        return replace(result, uses=result.uses | {"order"})

    def maximum(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """One of two, by order."""
        return self._extreme(_broadcast(a.shape, b.shape), a, b)

    def minimum(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """One of two, by order."""
        return self._extreme(_broadcast(a.shape, b.shape), a, b)

    def reduce_max(self, a: DegreeValue, axis: int) -> DegreeValue:
        """One of the elements along the axis, by order."""
        place = axis - len(a.shape)
        shape = a.shape[:axis] + a.shape[axis + 1 :]

        def move(mark: Mark) -> Mark:
            return (
                Mark(self._key(), wide_axes(shape))
                if place in mark.varies
                else _without(mark, place)
            )

        return self._extreme(shape, a.moved(self._key(), shape, move))

    def reduce_min(self, a: DegreeValue, axis: int) -> DegreeValue:
        """As ``reduce_max``."""
        return self.reduce_max(a, axis)

    def shift(self, a: DegreeValue, axis: int) -> DegreeValue:
        """Zero."""
        return self._value("field", a.shape[:axis] + a.shape[axis + 1 :], 1, Polynomial(0))

    def order(self, a: DegreeValue, axis: int, descending: bool) -> DegreeValue:  # noqa: ARG002
        """Heuristic where fresh residues are sorted: the degree of the argument."""
        return self._decided("int", a.shape, a)

    # --- integers
    def floor_divide(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """As the operands."""
        return self._decided("int", _broadcast(a.shape, b.shape), a, b)

    def remainder(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """As the operands."""
        return self._decided("int", _broadcast(a.shape, b.shape), a, b)

    def cast(self, a: DegreeValue, kind: Kind) -> DegreeValue:
        """Integers and bools embed; a field value that becomes discrete is decided by order."""
        if a.kind == "field" and kind != "field":
            return self._decided(kind, a.shape, a)
        return (
            a
            if a.kind == kind
            else replace(
                a,
                kind=kind,
                identity=self._key(),
                number=None if "bool" in (kind, a.kind) else a.number,
            )
        )

    # --- batches
    def gather(self, a: DegreeValue, index: Index) -> DegreeValue:
        """Chosen instances; marks are others where the choice is not all in order."""
        if a.instances == len(index) and np.array_equal(index, np.arange(a.instances)):
            return a
        chosen = a.moved(self._key(), a.shape, lambda m: Mark(self._key(), m.varies))
        return replace(chosen, instances=len(index))

    def boxes(self, a: DegreeValue, places: Sequence[Index], count: int) -> DegreeValue:
        """Boxes as instances: every element is one of the value's."""
        axes = frozenset(range(-len(a.shape), 0)) & wide_axes(a.shape)
        chosen = a.moved(
            self._key(),
            tuple(own.shape[1] for own in places),
            lambda m: Mark(self._key(), m.varies | axes),
        )
        return replace(chosen, instances=count)

    def stack(self, a: DegreeValue, index: Index) -> DegreeValue:
        """Instances stacked by an index (instances, members) along a new leading axis, along which
        marks vary.
        """
        shape = (int(index.shape[1]), *a.shape)
        front: Axes = frozenset({-len(shape)}) & wide_axes(shape)
        stacked = a.moved(self._key(), shape, lambda m: Mark(self._key(), m.varies | front))
        return replace(stacked, instances=int(index.shape[0]))

    def join(
        self, parts: Sequence[DegreeValue], counts: Sequence[int] | None = None
    ) -> DegreeValue:
        """Instances beside each other; ``counts`` says for how many rows each part stands."""
        joined = self._one_of(parts[0].kind, parts[0].shape, parts, frozenset())
        renamed = joined.moved(self._key(), joined.shape, lambda m: Mark(self._key(), m.varies))
        return replace(renamed, instances=sum(counts or [p.instances for p in parts]))


def _varying(a: DegreeValue) -> set[Mark]:
    """The divisors that are no mere numbers."""
    return {
        mark
        for mark, divisor in a.divisors.items()
        if divisor.polynomial.degree or divisor.polynomial.powers
    }


def _of_both(
    operation: Callable[[Fraction, Fraction], Fraction], a: DegreeValue, b: DegreeValue
) -> Fraction | None:
    """The number that an operation makes of two values, where both are known."""
    return None if a.number is None or b.number is None else operation(a.number, b.number)


def _rational_root(number: Fraction | None) -> Fraction | None:
    """The root of a rational, where it is one."""
    if number is None or number < 0:
        return None
    root = Fraction(math.isqrt(number.numerator), math.isqrt(number.denominator))
    return root if root * root == number else None


def _missing(a: DegreeValue, merged: Mapping[Mark, Divisor]) -> Polynomial:
    """What the numerator of ``a`` is multiplied by to stand over the common denominator."""
    result = ONE
    for mark, divisor in merged.items():
        held = a.divisors[mark].count if mark in a.divisors else 0
        result = result.times(divisor.polynomial.to_the(divisor.count - held))
    return result


def _repeated(exponents: Degree | None, times: int) -> Degree | None:
    """Bounds for a sum of ``times`` exponents."""
    if exponents is None or times < 2 or exponents.denominator == 0:
        return exponents
    return replace(
        exponents,
        top=exponents.top.times(exponents.bottom.to_the(times - 1)),
        bottom=exponents.bottom.to_the(times),
    )


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise ShapeError(f"shapes {' and '.join(map(str, shapes))} do not broadcast") from None


def _without_axis(axes: Axes, axis: int) -> Axes:
    """Axes after ``axis`` has disappeared."""
    return frozenset(i + 1 if i < axis else i for i in axes if i != axis)


def _without(mark: Mark, axis: int) -> Mark:
    return Mark(mark.key, _without_axis(mark.varies, axis))


def _same_axes(a: DegreeValue) -> dict[int, Axes]:
    return {i: frozenset({i}) for i in range(-len(a.shape), 0)}


def _runs(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[dict[int, Axes], Axes]:
    """Where a reshape takes every axis: (old axis -> new axes, the old axes that stay as
    they are).
    """
    everywhere: Axes = frozenset(range(-len(new), 0))
    if 0 in old:
        return dict.fromkeys(range(-len(old), 0), everywhere), frozenset()
    axes: dict[int, Axes] = {i - len(old): frozenset() for i in range(len(old))}
    kept: set[int] = set()
    left = [i for i, n in enumerate(old) if n != 1]
    right = [i for i, n in enumerate(new) if n != 1]
    while left:
        some, others, have, want = [left.pop(0)], [right.pop(0)], 1, 1
        have, want = old[some[0]], new[others[0]]
        while have != want:
            if have < want:
                some.append(left.pop(0))
                have *= old[some[-1]]
            else:
                others.append(right.pop(0))
                want *= new[others[-1]]
        for i in some:
            axes[i - len(old)] = frozenset(j - len(new) for j in others)
        if len(some) == len(others) == 1:
            kept.add(some[0] - len(old))
    return axes, frozenset(kept)
