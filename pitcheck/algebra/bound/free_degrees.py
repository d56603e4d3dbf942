"""Degrees where functions are tables of random residues, and the error of a draw of these.

A value of a function is a variable: its degree is 1, however deep its arguments lie. What that
costs is that two different arguments may have one residue, at all levels of a draw at once. So the
arguments of every table are counted, with the greatest degree among them.
``docs/mathematics.md`` has the theorem; :mod:`pitcheck.algebra.residues.free_functions` evaluates.

>>> algebra = FreeDegreeAlgebra()
>>> y = algebra.exp(algebra.exp(algebra.fresh("x", (3,))))
>>> y.degree.numerator, algebra.tables["exp"].entries
(1, 6)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod

from pitcheck.algebra.bound.degree_bounds import (
    ONE,
    Degree,
    Division,
    DrawError,
    Heights,
    Polynomial,
    difference,
    log2_sum,
)
from pitcheck.algebra.bound.degree_values import (
    Axes,
    DegreeValue,
    Divisor,
    Mark,
    Sign,
    compared_with_zero,
    log2_of,
    sign_of_choice,
    wide_axes,
)
from pitcheck.algebra.bound.degrees import DegreeAlgebra
from pitcheck.algebra.bound.function_tables import Guards, Table
from pitcheck.algebra.interface import Comparison, Kind
from pitcheck.algebra.residues.free_functions import LARGEST_FACTOR
from pitcheck.algebra.residues.free_outcomes import ASCENDING, BELOW, DESCENDING, EQUAL
from pitcheck.algebra.residues.keyed_functions import EVEN, ODD
from pitcheck.algebra.shape_checks import broadcast

_LINE = Polynomial(1)
"""The bounds for one variable that is drawn."""
_HALF = Fraction(1, 2)
_MASK = frozenset({"mask"})
"""The use of a boolean that is made of outcomes of comparisons."""
WHOLE_LOG2 = 20
"""The log2 of the largest integers that are told apart by their residues, far below all primes."""
ORDERED_LOG2 = 7
"""The log2 of the largest integers that stand in the order of their residues' balanced
representatives.
"""
_TERMS = 4
"""The terms of a polynomial of outcomes: 1 - a, a b, a + b - a b, a + b - 2 a b."""


class FreeDegreeAlgebra(DegreeAlgebra):
    """Degree bounds over tables.

    ``line`` has the bounds for one variable. ``tables`` has the arguments of every function by its
    name. ``ordered`` says that something depends on the order of numbers, which no table knows, and
    ``compares`` that something depends on outcomes of comparisons, which are entries of tables.
    ``numbers`` has, for every site, the rational of which each of its roots is taken, or None for
    anything else.
    """

    line = _LINE

    def __init__(self, weighted: Mapping[int, int] | None = None) -> None:
        super().__init__(weighted)
        self.tables: dict[str, Table] = {}
        self.guarded = Guards()
        self.ordered = False
        self.compares = False
        self.numbers: dict[str, list[Fraction | None]] = {}
        self._whole: set[str] = set()
        self._drawn: set[str] = set()
        self._by_sign: dict[str, set[bool | None]] = {}

    @property
    def whole(self) -> frozenset[str]:
        """The sites that compare nothing but small integers, which residues hold as they are."""
        return frozenset(self._whole - self._drawn)

    @property
    def decided(self) -> dict[str, bool]:
        """The outcomes of the sites that compare numbers with 0, where signs alone decide."""
        return {
            site: outcome
            for site, (outcome, *others) in self._by_sign.items()
            if outcome is not None and not others
        }

    def _enter(self, name: str, entries: int, degree: Degree, shape: tuple[int, ...]) -> None:  # noqa: ARG002
        """Enter arguments of a degree, which are elements of a tensor of ``shape``."""
        table = self.tables.setdefault(name, Table(name in ODD or name in EVEN))
        table.add(entries, degree)

    def _variable(self, like: DegreeValue, sign: Sign) -> DegreeValue:
        """Return bounds for one variable at every element."""
        return replace(self._value("field", like.shape, like.instances, self.line), sign=sign)

    # --- making values
    def constant(self, number: Fraction | float, kind: Kind = "field") -> DegreeValue:
        """Return bounds for a 0-d constant; that it is infinite or NaN is among its signs."""
        value = super().constant(number, kind)
        finite = isinstance(number, Fraction) or math.isfinite(number)
        return value if finite else replace(value, sign=value.sign | Sign.INFINITE)

    def draw(self, stream: str, index: DegreeValue) -> DegreeValue:
        """Return bounds for random draws: a variable for every index."""
        return replace(super().draw(stream, index), top=self.line)

    # --- exponentials of sums
    def _sum(self, result: DegreeValue, a: DegreeValue, b: DegreeValue, sign: int) -> DegreeValue:
        """Return a sum or difference with bounds for its exponential."""
        if result.kind != "field":
            return result
        (first, below), power = self._power(a), self._power(b)
        up, down = power if sign > 0 else (power[1], power[0])
        is_log = a.is_log or b.is_log
        if sign > 0 and not (a.splits or b.splits or is_log):
            return result
        if result.number is not None:
            for term in (a, b):
                self._enter("exp", 0, term.degree, term.shape)
        return self._powered(result, first.times(up), below.times(down), is_log)

    def _power(self, value: DegreeValue) -> tuple[Polynomial, Polynomial]:
        """Return the bounds for numerator and denominator of the exponential of an element."""
        return value.power or (self.line, ONE)

    def _powered(
        self, value: DegreeValue, up: Polynomial, down: Polynomial, is_log: bool
    ) -> DegreeValue:
        """Return ``value`` with the bounds for its exponential, which is a variable at least.

        That of a logarithm may be looked up, and so may those of its other parts.
        """
        power = (up.either(self.line), down)
        value = replace(value, power=None if power == (self.line, ONE) else power, is_log=is_log)
        if is_log:
            self._enter("log", value.elements, Degree(*power), value.shape)
            self._enter("exp", value.elements * _factors(value), value.degree, value.shape)
        return value

    def add(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds for a sum; the exponentials of split operands multiply."""
        return self._sum(super().add(a, b), a, b, 1)

    def subtract(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds for a difference; the exponentials are divided."""
        return self._sum(super().subtract(a, b), a, b, -1)

    def negate(self, a: DegreeValue) -> DegreeValue:
        """Return the same bounds, and those of the inverse exponential."""
        up, down = self._power(a)
        return self._powered(super().negate(a), down, up, a.is_log)

    def multiply(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds for a product; a literal is a power of the exponential."""
        product = super().multiply(a, b)
        if product.kind != "field":
            return product
        first, second = self._power(a), self._power(b)
        power = (first[0].either(second[0]), first[1].either(second[1]))
        is_log = False
        for one, other in ((a, b), (b, a)):
            number = other.number
            if number is not None and number.denominator == 1 and abs(number) <= LARGEST_FACTOR:
                own = self._power(one)
                both = own if number > 0 else (own[1], own[0])
                times = max(abs(int(number)), 1)
                scaled = (both[0].to_the(times), both[1].to_the(times))
                power = (power[0].either(scaled[0]), power[1].either(scaled[1]))
                is_log = is_log or one.is_log
        return self._powered(self._rooted(product, a, b), *power, is_log)

    def _rooted(self, result: DegreeValue, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return a product or quotient; that of two formal roots is the root of a new argument."""
        if a.is_root and b.is_root:
            whole = result.top.times(result.bottom)
            self._enter("sqrt", result.elements, Degree(whole, whole), result.shape)
        return replace(result, is_root=a.is_root and b.is_root)

    def divide(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds for a quotient; its divisor is counted among the guards."""
        if not b.is_constant:
            self.guarded.add(b.elements, b.degree, sure=b.sign.divides)
        quotient = super().divide(a, b)
        return replace(self._rooted(quotient, a, b), power=a.power, is_log=False)

    def sum(self, a: DegreeValue, axes: Sequence[int]) -> DegreeValue:
        """Return bounds for a sum over ``axes``, which is split if it has one term."""
        if a.splits:
            self._enter("exp", a.elements, a.degree, a.shape)
        return replace(super().sum(a, axes), is_log=False, is_root=False)

    def _one_of(
        self,
        kind: Kind,
        shape: tuple[int, ...],
        values: Sequence[DegreeValue],
        along: Axes,
        *deciding: DegreeValue,
    ) -> DegreeValue:
        """Return bounds for elements each of which is one of ``values``."""
        chosen = super()._one_of(kind, shape, values, along, *deciding)
        up, down = self._power(values[0])
        for value in values[1:]:
            own = self._power(value)
            up, down = up.either(own[0]), down.either(own[1])
        chosen = replace(chosen, is_root=any(v.is_root for v in values))
        return self._powered(chosen, up, down, any(v.is_log for v in values))

    # --- functions
    def exp(self, a: DegreeValue) -> DegreeValue:
        """Return bounds for a product of variables other than 0, and of their inverses."""
        up, down = self._power(a)
        self._enter("exp", a.elements * _factors(a), a.degree, a.shape)
        divisors = (
            {Mark(self._key(), wide_axes(a.shape)): Divisor(down)}
            if down.degree or down.height_log2
            else {}
        )
        sign = Sign.NONNEGATIVE | Sign.POSITIVE
        return replace(self._variable(a, sign), top=up.either(self.line), divisors=divisors)

    def log(self, a: DegreeValue) -> DegreeValue:
        """Return bounds for a variable whose exponential is the argument."""
        sure = Sign.POSITIVE in a.sign
        self._guard("log", sure)
        self.guarded.add(a.elements, a.degree, sure=sure)
        self.divisions.append(Division(Degree(a.top), a.elements))
        result = self._variable(a, Sign(0))
        return self._powered(result, a.top, a.bottom, is_log=True)

    def function(self, name: str, *arguments: DegreeValue) -> DegreeValue:
        """Return bounds for a variable."""
        if name == "normal_cdf" and len(arguments) == 1:
            return self._normal_cdf(arguments[0])
        shape = broadcast(*(a.shape for a in arguments))
        instances = max(a.instances for a in arguments)
        for argument in arguments:
            entries = 0 if argument is not arguments[0] else prod(shape) * instances
            self._enter(name, entries, argument.degree, shape)
        return self._value("field", shape, instances, self.line)

    def _normal_cdf(self, a: DegreeValue) -> DegreeValue:
        """Return bounds for (1 + erf(x / sqrt 2)) / 2."""
        scaled = self.multiply(replace(a, sign=Sign(0)), self.sqrt(self.constant(_HALF)))
        erf = self.function("erf", scaled)
        half = self.constant(_HALF)
        return self.multiply(half, self.add(self.constant(Fraction(1)), erf))

    def sqrt(self, a: DegreeValue) -> DegreeValue:
        """Return bounds for a variable, or for a formal root, of which the square may be taken.

        Over the numerator and the denominator of the argument both have a numerator of this degree.
        """
        sure = Sign.NONNEGATIVE in a.sign
        self.numbers.setdefault(self.site, []).append(a.number)
        if a.is_constant:
            self.roots_of.add(
                0 if a.number is None else abs(a.number.numerator) * a.number.denominator or 1
            )
        self._guard("sqrt", sure)
        self.guarded.add(a.elements, a.degree, sure=sure)
        self._enter("sqrt", a.elements, a.degree, a.shape)
        return replace(
            a,
            identity=self._key(),
            top=a.top.times(a.bottom).times(self.line),
            number=None,
            sign=a.sign & ~Sign.KNOWN,
            power=None,
            is_log=False,
            is_root=True,
        )

    # --- order
    def _decided(self, kind: Kind, shape: tuple[int, ...], *arguments: DegreeValue) -> DegreeValue:
        """Return bounds for a discrete value; note if numbers are compared for it."""
        if any(a.kind == "field" or _is_mask(a) for a in arguments):
            self.ordered |= not self._are_whole(*arguments)
        return super()._decided(kind, shape, *arguments)

    def _are_whole(self, *values: DegreeValue, most_log2: float = WHOLE_LOG2) -> bool:
        """Return True if all values are integers of a size at most, and note what the site has.

        They are made of integers, booleans and sizes alone.
        """
        found = all(
            v.is_constant
            and v.bottom == ONE
            and v.top.height_log2 <= most_log2
            and Sign.INFINITE not in v.sign
            for v in values
        )
        (self._whole if found else self._drawn).add(self.site)
        return found

    def order(self, a: DegreeValue, axis: int, descending: bool) -> DegreeValue:
        """Return bounds for places in a random order, a table for all numbers along the axis.

        Places are drawn as integers are: their degree is 0.
        """
        if a.kind != "field":
            return super().order(a, axis, descending)
        self._enter(DESCENDING if descending else ASCENDING, a.elements, a.degree, a.shape)
        self.sorts = True
        places = Polynomial(height_log2=log2_of(a.shape[axis]))
        value = self._value("int", a.shape, a.instances, places)
        return replace(value, sign=Sign.NONNEGATIVE)

    def compare(self, comparison: Comparison, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds for an outcome; against infinity it is no matter of residues."""
        shape, instances = broadcast(a.shape, b.shape), max(a.instances, b.instances)
        if Sign.INFINITE in a.sign | b.sign:
            return self._value("bool", shape, instances)
        if a.kind == "bool" and (_is_mask(a) or _is_mask(b)):
            return self._polynomial(a, b)
        if a.kind != "field":
            return super().compare(comparison, a, b)
        outcome = compared_with_zero(comparison, a, b)
        # It must be that of what has no value, too: of that x >= 0 is false.
        decided = outcome is (comparison == "ne")
        self._by_sign.setdefault(self.site, set()).add(outcome if decided else None)
        if decided:
            return replace(self._value("bool", shape, instances), sign=Sign(0))
        equal = comparison in ("eq", "ne")
        if self._are_whole(a, b, most_log2=WHOLE_LOG2 if equal else ORDERED_LOG2):
            return super().compare(comparison, a, b)
        self.compares = True
        name = EQUAL if equal else BELOW
        self.tables.setdefault(name, Table(symmetric=equal))
        self._enter(name, prod(shape) * instances, self.subtract(a, b).degree, shape)
        return replace(self._value("bool", shape, instances, self.line), uses=_MASK, sign=Sign(0))

    def _polynomial(self, *masks: DegreeValue) -> DegreeValue:
        """Return bounds for a polynomial of outcomes, of degree 1 in each of at most two."""
        top = ONE
        for mask in masks:
            top = top.times(mask.top)
        shape, instances = broadcast(*(m.shape for m in masks)), max(m.instances for m in masks)
        return replace(
            self._value("bool", shape, instances, top.summed(_TERMS)), uses=_MASK, sign=Sign(0)
        )

    def logical_and(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds for a boolean; of outcomes it is a polynomial."""
        return self._polynomial(a, b) if _is_mask(a) or _is_mask(b) else super().logical_and(a, b)

    logical_or = logical_and

    def logical_not(self, a: DegreeValue) -> DegreeValue:
        """Return bounds for a boolean; of an outcome it is a polynomial."""
        return self._polynomial(a) if _is_mask(a) else super().logical_not(a)

    def cast(self, a: DegreeValue, kind: Kind) -> DegreeValue:
        """Return bounds in another kind; an outcome embeds into a field only."""
        if a.kind == "field" and kind == "bool":
            return self.compare("ne", a, self.constant(Fraction(0)))
        if kind == "int" and _is_mask(a):
            return self._decided(kind, a.shape, a)
        return super().cast(a, kind)

    def where(self, condition: DegreeValue, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds for a choice; that by an outcome c is b + c (a - b)."""
        if not _is_mask(condition):
            return super().where(condition, a, b)
        if a.kind == "int":
            self.ordered = True
            return super().where(condition, a, b)
        mask, first, second = (replace(v, kind="field") for v in (condition, a, b))
        apart = self.subtract(first, second)
        found = self.add(second, self.multiply(mask, apart))
        if a.kind == "field":
            # The choice may be an extremum, if the condition is the comparison of what is chosen.
            self._enter(BELOW, 2 * prod(found.shape) * found.instances, apart.degree, found.shape)
            for value in (first, second):
                self._compared(value, found.shape)
            found = replace(found, top=found.top.either(found.bottom.times(self.line)))
        return replace(
            found,
            kind=a.kind,
            number=None,
            uses=found.uses | _MASK if a.kind == "bool" else found.uses,
            sign=sign_of_choice((a.sign, b.sign), (Sign(0),)),
            power=None,
            is_log=False,
            is_root=False,
        )

    def maximum(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds for one of two values, or for a variable."""
        for value in (a, b):
            self._compared(value, broadcast(a.shape, b.shape))
        largest = super().maximum(a, b)
        return replace(largest, sign=largest.sign & ~Sign.KNOWN)

    def minimum(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return bounds as of the maximum; a minimum does not show that it is 0."""
        result = self.maximum(a, b)
        return _unshown(replace(result, sign=result.sign & a.sign & b.sign))

    def reduce_max(self, a: DegreeValue, axis: int) -> DegreeValue:
        """Return bounds for one of the elements along the axis, or for a variable."""
        self._compared(a, a.shape)
        return super().reduce_max(a, axis)

    def reduce_min(self, a: DegreeValue, axis: int) -> DegreeValue:
        """Return bounds as of the maximum; a minimum does not show that it is 0."""
        return _unshown(self.reduce_max(a, axis))

    def _compared(self, value: DegreeValue, shape: tuple[int, ...]) -> None:
        if value.kind == "field":
            self._enter("max", prod(shape) * value.instances, value.degree, shape)

    def _extreme(self, shape: tuple[int, ...], *values: DegreeValue) -> DegreeValue:
        """Return bounds for an extremum, which is an entry of a table.

        Integers in a field may make it 0 without a draw showing it. A maximum of what cannot be
        negative is 0 only if all operands are, and is then no entry.
        """
        result = super()._extreme(shape, *values)
        if result.kind != "field":
            return result
        top = result.top.either(result.bottom.times(self.line))
        return replace(
            result, top=top, uses=frozenset(), sign=result.sign & ~Sign.KNOWN, is_log=False
        )

    # --- the error of a draw
    def draw_error(
        self,
        targets: Sequence[tuple[DegreeValue, DegreeValue]],
        primes: Sequence[int],
        heights: Heights,
    ) -> tuple[DrawError, float]:
        """Return the error of one draw, and a bound on the share of void draws.

        The error is the sum of these probabilities, each a product over the levels:

        - a false target agrees;
        - two different arguments of a table have one residue, or an argument is 0;
        - a divisor or the argument of a logarithm is 0 at all levels, as integers make it;
        - an operand is taken for one of the reference.
        """
        levels = _Levels(primes, heights, len(self._radicals()))
        tables = {**self.tables, "exp": replace(self.tables.get("exp", Table()))}
        for value in (v for pair in targets if any(own.is_log for own in pair) for v in pair):
            # Logarithms are compared by their exponentials, which are looked up for it.
            tables["exp"].add(value.elements * _factors(value), value.degree)
        main = max((levels.log2(_apart(a, b)) for a, b in targets), default=-math.inf)
        terms = [(table.meetings, table.apart) for table in tables.values()]
        terms += [(d.elements, d.degree.top) for d in self.divisions]
        guards = self.guarded
        matches = guards.unsure * guards.entries
        terms.append((matches, guards.top.times(guards.bottom).summed(2)))
        error = log2_sum(
            [main, *(_log2(count) + levels.log2(polynomial) for count, polynomial in terms)]
        )
        void = sum(
            d.elements * levels.share(d.degree.top, level)
            for d in self.divisions
            for level in range(len(primes))
        )
        return DrawError((min(error, 0.0),), 0.0, False, levels.feared), void

    def _radicals(self) -> set[int]:
        """Return the primes whose roots may be residues."""
        return {prime for number in self.roots_of for prime in _primes_of(number)}


def _is_mask(a: DegreeValue) -> bool:
    """Return True if a boolean is made of outcomes of comparisons of drawn numbers."""
    return a.kind == "bool" and not _MASK.isdisjoint(a.uses)


class _Levels:
    """The probability that a nonzero polynomial vanishes at all levels of a draw."""

    def __init__(self, primes: Sequence[int], heights: Heights, radicals: int) -> None:
        self._primes = primes
        self._heights = heights
        self._radicals = radicals
        self.feared = False
        """True once a prime might have divided a polynomial."""

    def share(self, polynomial: Polynomial, level: int) -> float:
        """Return the probability at a level: that of a bad prime, and that by degree.

        Variables take at least p - 1 values.
        """
        height = math.ldexp(polynomial.height_log2, self._radicals)
        primes = math.floor(min(height / self._heights.least_log2[level], 1e300))
        bad = primes / self._heights.count
        self.feared |= bad > 0
        return min(1.0, polynomial.degree / (self._primes[level] - 1) + bad)

    def log2(self, polynomial: Polynomial) -> float:
        """Return the log2 of the probability at all levels."""
        return sum(_log2(self.share(polynomial, level)) for level in range(len(self._primes)))


def _unshown(a: DegreeValue) -> DegreeValue:
    """Return the bounds of a value that may be 0 unless it never is."""
    unknown = Sign(0) if Sign.NEVER_ZERO in a.sign else Sign.POSITIVE
    return replace(a, sign=a.sign & ~unknown)


def _apart(a: DegreeValue, b: DegreeValue) -> Polynomial:
    """Return bounds for the numerator of a difference, or for that of the exponentials."""
    top = difference(a.degree, b.degree).top
    if a.is_log or b.is_log:
        powers = (Degree(*(value.power or (_LINE, ONE))) for value in (a, b))
        top = top.either(difference(*powers).top)
    return top.either(_LINE)


def _factors(value: DegreeValue) -> int:
    """Return the number of tabled exponentials of which that of an element is made, at most."""
    up, down = value.power or (_LINE, ONE)
    return min(up.degree + down.degree, 1 << 30)


def _log2(number: float) -> float:
    return math.log2(number) if number > 0 else -math.inf


def _primes_of(number: int) -> set[int]:
    """Return the primes that divide a positive integer an odd number of times."""
    found, left, divisor = set(), number, 2
    while divisor * divisor <= left and divisor < 1000:
        times = 0
        while left % divisor == 0:
            left //= divisor
            times += 1
        if times % 2:
            found.add(divisor)
        divisor += 1
    return found | ({left} if left > 1 else set())
