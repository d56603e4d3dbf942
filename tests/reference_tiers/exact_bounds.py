"""The error of a draw from exact degrees, and the ledger in fractions: nothing is rounded.

A formula is followed along a random line: inputs, and entries of tables, are a + b t modulo
2^61 - 1, and every value is a quotient of two polynomials in t in lowest terms. For random lines
the degrees in t are those of the formula. ``docs/mathematics.md`` (sections 1 and 2) has what is
made of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from reference_tiers.formulas import COMPARISONS, PLACES, Formula, walk

PRIME = (1 << 61) - 1

Line = tuple[int, ...]
"""Coefficients of a polynomial in t, the constant one first; () is 0."""


def log2(number: Fraction) -> float:
    """The log2 of a positive fraction, however large its terms are."""
    return math.log2(number.numerator) - math.log2(number.denominator)


def _line(coefficients: Iterable[int]) -> Line:
    found = [c % PRIME for c in coefficients]
    while found and not found[-1]:
        found.pop()
    return tuple(found)


def _plus(a: Line, b: Line, sign: int = 1) -> Line:
    size = max(len(a), len(b))
    wide = [[*each, *[0] * (size - len(each))] for each in (a, b)]
    return _line(x + sign * y for x, y in zip(*wide, strict=True))


def _times(a: Line, b: Line) -> Line:
    found = [0] * max(len(a) + len(b) - 1, 0)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            found[i + j] += x * y
    return _line(found)


def _divided(a: Line, b: Line) -> tuple[Line, Line]:
    """Quotient and remainder."""
    rest, inverse = list(a), pow(b[-1], -1, PRIME)
    quotient = [0] * max(len(a) - len(b) + 1, 0)
    for place in reversed(range(len(quotient))):
        factor = quotient[place] = rest[place + len(b) - 1] * inverse % PRIME
        for i, y in enumerate(b):
            rest[place + i] = (rest[place + i] - factor * y) % PRIME
    return _line(quotient), _line(rest)


@dataclass(frozen=True)
class Quotient:
    """A rational function of t in lowest terms; the denominator's first coefficient is 1."""

    top: Line
    bottom: Line = (1,)

    @classmethod
    def of(cls, top: Line, bottom: Line) -> Quotient:
        """Reduce a quotient. Raises ZeroDivisionError."""
        if not bottom:
            raise ZeroDivisionError
        a, b = top, bottom
        while b:
            a, b = b, _divided(a, b)[1]
        top, bottom = _divided(top, a)[0], _divided(bottom, a)[0]
        scale = pow(bottom[-1], -1, PRIME)
        return cls(_times(top, (scale,)), _times(bottom, (scale,)))

    def plus(self, other: Quotient, sign: int = 1) -> Quotient:
        """The sum, or with sign -1 the difference."""
        top = _plus(_times(self.top, other.bottom), _times(other.top, self.bottom), sign)
        return Quotient.of(top, _times(self.bottom, other.bottom))

    def times(self, other: Quotient) -> Quotient:
        """The product."""
        return Quotient.of(_times(self.top, other.top), _times(self.bottom, other.bottom))

    def over(self, other: Quotient) -> Quotient:
        """The quotient. Raises ZeroDivisionError."""
        return Quotient.of(_times(self.top, other.bottom), _times(self.bottom, other.top))

    @property
    def degree(self) -> int:
        """The degree of the numerator."""
        return max(len(self.top) - 1, 0)


ZERO = Quotient(())
SYMMETRIC = frozenset(("erf", "cos", "equal"))
Cells = list[Quotient]


class Symbols:
    """Formulas over variables, one for each different argument of a function.

    Exponentials are looked up as a whole here: no law but that of equal arguments is used.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._inputs: dict[tuple[str, int], Quotient] = {}
        self.tables: dict[str, dict[Quotient, Quotient]] = {}
        self._known: dict[Formula, Cells] = {}

    def _variable(self) -> Quotient:
        return Quotient(_line(self._rng.randrange(1, PRIME) for _ in range(2)))

    def _entry(self, name: str, argument: Quotient) -> Quotient:
        table = self.tables.setdefault(name, {})
        if argument not in table:
            table[argument] = self._variable()
        return table[argument]

    def value(self, root: Formula) -> Cells:
        """The elements of a formula. Raises ZeroDivisionError."""
        for term in walk(root):
            if term not in self._known:
                self._known[term] = self._applied(term, [self._known[e] for e in term.operands])
        return self._known[root]

    def _applied(self, term: Formula, operands: list[Cells]) -> Cells:
        if term.kind == "input":
            keys = [(term.name, place) for place in range(PLACES)]
            return [self._inputs.setdefault(key, self._variable()) for key in keys]
        if term.number is not None:
            number = term.number
            return [Quotient(_line([number.numerator * pow(number.denominator, -1, PRIME)]))]
        if term.kind == "sum":
            total = ZERO
            for cell in operands[0]:
                total = total.plus(cell)
            return [total]
        wide = [cells * (term.size // len(cells)) for cells in operands]
        return [self._element(term.kind, *cells) for cells in zip(*wide, strict=True)]

    def _element(self, kind: str, a: Quotient, b: Quotient = ZERO) -> Quotient:
        if kind in COMPARISONS:
            return self._outcome(kind, a, b)
        if kind in ("exp", "erf", "cos"):
            return self._entry(kind, a)
        one = Quotient((1,))
        return {
            "add": lambda: a.plus(b),
            "sub": lambda: a.plus(b, -1),
            "mul": lambda: a.times(b),
            "div": lambda: a.over(b),
            "neg": lambda: ZERO.plus(a, -1),
            "square": lambda: a.times(a),
            "number": lambda: a,
            "and": lambda: a.times(b),
            "or": lambda: a.plus(b).plus(a.times(b), -1),
            "not": lambda: one.plus(a, -1),
        }[kind]()

    def _outcome(self, kind: str, a: Quotient, b: Quotient) -> Quotient:
        if kind in ("gt", "le"):
            a, b = b, a
        name = "equal" if kind in ("eq", "ne") else "below"
        entry = self._entry(name, a.plus(b, -1))
        return Quotient((1,)).plus(entry, -1) if kind in ("ne", "le", "ge") else entry

    def error(self, first: Formula, second: Formula, primes: Sequence[int]) -> Fraction | None:
        """Return the error of one draw by the theorem; None if both formulas are equal.

        The difference is that of the element which agrees most easily. Counted are the pairs of
        different arguments of one table, for symmetric functions also sums, and arguments beside 0.
        """
        pairs = zip(self.value(first), self.value(second), strict=True)
        apart = [d for d in (x.plus(y, -1) for x, y in pairs) if d != ZERO]
        if not apart:
            return None
        total = _share(max(d.degree for d in apart), primes)
        for name, table in self.tables.items():
            arguments = list(table)
            for place, t in enumerate(arguments):
                total += _share(t.degree, primes) if t != ZERO else 0
                for other in arguments[:place]:
                    total += _share(t.plus(other, -1).degree, primes)
                    together = t.plus(other)
                    if name in SYMMETRIC and together != ZERO:
                        total += _share(together.degree, primes)
        return total


def _share(degree: int, primes: Sequence[int]) -> Fraction:
    """A product over the levels of deg/(p - 1)."""
    return math.prod((Fraction(degree, p - 1) for p in primes), start=Fraction(1))


def bad_primes(height: int, least: int) -> int:
    """The number of primes from ``least`` on that may divide an integer of at most ``height``."""
    found, product = 0, least
    while product <= height:
        found, product = found + 1, product * least
    return found


def evaluation(levels: Sequence[Fraction], bad: Fraction, draws: int) -> Fraction:
    """Bound the agreement of ``draws`` complete draws over the same primes.

    Errors multiply. With bad primes it is twice the sum of their share and of the product, at each
    level.
    """
    result = Fraction(1)
    for level in levels:
        result *= 2 * (bad + level**draws) if bad else level**draws
    return min(result, Fraction(1))


def redraws(
    levels: Sequence[Fraction],
    bad: Fraction,
    agreed: Sequence[int],
    voided: Sequence[int],
    counts_voids: bool,
) -> Fraction:
    """The product over all evaluations; n agreeing draws among v void ones count as choices."""
    result = Fraction(1)
    for n, v in zip(agreed, voided, strict=True):
        choices = math.comb(n + v, v) * 2 ** (v + 1) if counts_voids else 1
        result *= evaluation(levels, bad, n) * choices
    return result


Polynomial = dict[tuple[int, ...], int]
"""Exponents of the variables to integer coefficients."""


def product(a: Polynomial, b: Polynomial) -> Polynomial:
    """The product of two polynomials."""
    found: Polynomial = {}
    for (e, x), (f, y) in ((p, q) for p in a.items() for q in b.items()):
        place = tuple(i + j for i, j in zip(e, f, strict=True))
        found[place] = found.get(place, 0) + x * y
    return {e: x for e, x in found.items() if x}


def total(a: Polynomial, b: Polynomial, sign: int = 1) -> Polynomial:
    """The sum of two polynomials, or their difference."""
    found = {e: a.get(e, 0) + sign * b.get(e, 0) for e in {*a, *b}}
    return {e: x for e, x in found.items() if x}


def expanded(root: Formula, names: Sequence[str]) -> tuple[Polynomial, Polynomial]:
    """Numerator and denominator of a formula of one element, with nothing cancelled but literals.

    Divisors are multiplied as they come, so the numerator may have factors in common with the
    denominator: no prime divides all coefficients of the reduced one that does not divide all of
    these.
    """
    known: dict[Formula, tuple[Polynomial, Polynomial]] = {}
    for term in walk(root):
        known[term] = _fraction(term, [known[e] for e in term.operands], names)
    return known[root]


def _fraction(
    term: Formula, operands: list[tuple[Polynomial, Polynomial]], names: Sequence[str]
) -> tuple[Polynomial, Polynomial]:
    none = (0,) * len(names)
    if term.kind == "input":
        return {tuple(int(term.name == name) for name in names): 1}, {none: 1}
    if term.number is not None:
        top = {none: term.number.numerator} if term.number else {}
        return top, {none: term.number.denominator}
    a, c = operands[0]
    if term.kind == "neg":
        return {e: -x for e, x in a.items()}, c
    b, d = operands[-1]
    if term.kind in ("mul", "square"):
        return product(a, b), product(c, d)
    if term.kind == "div":
        if not b:
            raise ZeroDivisionError
        return product(a, d), product(c, b)
    sign = -1 if term.kind == "sub" else 1
    return total(product(a, d), product(b, c), sign), product(c, d)
