"""Degrees of values, and the probability that different values agree at a random point.

Every element of a value is a quotient of two exponential polynomials in the fresh residues. These
are sums of terms c_j(x) w^(f_j(y)): the coefficients c_j live at the level of the value, the
exponents f_j one level below. x and y are residues for different primes, hence independent. Roots
are algebraic.

>>> line = Degree(Polynomial(degree=1))
>>> trial_error(line, line, primes=(2**16 + 1,), levels=(0,)).heuristic
False
>>> round(trial_error_log2(line, line, primes=(2**16 + 1,), levels=(0,)))
-16
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

SAFETY = 4
"""Factor on every bound with an exponential: measured false accepts at small primes were 0.95/q to
1.9/q.
"""

USEFUL_LOG2 = -3.0
"""The largest log2 of a bound by cases that is of use. Above it, the comparison is bounded as if
exponentials (or roots) were independent, and the bound is heuristic.
"""

USEFUL_SHARE = 2.0**-5
"""The largest share of bad primes that is of use. Above it, exponents and roots are taken as
independent, and the bound is heuristic.
"""

TWO_TERMS_LOG2 = 1.0
"""The log2 of the number of exponential terms up to which a bound is proven."""

PAIR_OF_ROOTS = 2
"""The number of roots in a difference up to which a bound is proven: one on either side."""

MOST = 1 << 128
"""The cap on degrees, terms (log2) and powers. Floats do not hold larger numbers, and all primes
are below 2^31.
"""

HEURISTIC = frozenset({"log", "order", "keyed"})
"""The uses that no bound by degrees covers: each makes a bound heuristic."""


@dataclass(frozen=True)
class Polynomial:
    """Upper bounds for an exponential polynomial.

    ``degree`` bounds the degree of its coefficients, ``terms_log2`` the log2 of its number of
    terms, and ``powers`` the exponentials multiplied in one term. ``height_log2`` bounds the log2
    of the height: the sum of the absolute values of all coefficients, which are integers. A
    coefficient other than 0 is at most the height, so few primes divide it.
    """

    degree: int = 0
    terms_log2: float = 0.0
    powers: int = 0
    height_log2: float = 0.0

    def times(self, other: Polynomial) -> Polynomial:
        """Return bounds for a product: degrees add, terms and heights multiply."""
        if self.degree == self.powers == self.terms_log2 == self.height_log2 == 0:
            return other
        height = self.height_log2 + other.height_log2
        return _capped(
            self.degree + other.degree,
            self.terms_log2 + other.terms_log2,
            self.powers + other.powers,
            height,
        )

    def to_the(self, exponent: int) -> Polynomial:
        """Return bounds for a product of ``exponent`` such polynomials, which need not be equal."""
        few = min(exponent, MOST)
        return _capped(
            self.degree * exponent,
            self.terms_log2 * few,
            self.powers * exponent,
            self.height_log2 * few,
        )

    def plus(self, other: Polynomial) -> Polynomial:
        """Return bounds for a sum: the greatest degree, and the sum of the heights.

        Numbers of terms add only if there are exponentials. A sum of plain polynomials is one term.
        """
        powers = max(self.powers, other.powers)
        height = log2_sum((self.height_log2, other.height_log2))
        return Polynomial(
            max(self.degree, other.degree),
            log2_sum((self.terms_log2, other.terms_log2)) if powers else 0.0,
            powers,
            height,
        )

    def summed(self, count: int) -> Polynomial:
        """Return bounds for a sum of ``count`` such polynomials."""
        if count < 2:
            return self
        more = math.log2(count)
        return replace(
            self,
            terms_log2=self.terms_log2 + more if self.powers else 0.0,
            height_log2=self.height_log2 + more,
        )

    def either(self, other: Polynomial) -> Polynomial:
        """Return bounds for a polynomial that is one of two."""
        height = max(self.height_log2, other.height_log2)
        return Polynomial(
            max(self.degree, other.degree),
            max(self.terms_log2, other.terms_log2),
            max(self.powers, other.powers),
            height,
        )


def _capped(degree: int, terms_log2: float, powers: int, height_log2: float) -> Polynomial:
    """Return bounds capped at MOST: every probability from larger ones is vacuous."""
    most = float(MOST)
    return Polynomial(
        min(degree, MOST), min(terms_log2, most), min(powers, MOST), min(height_log2, most)
    )


ONE = Polynomial()


@dataclass(frozen=True)
class Degree:
    """Upper bounds for every element of a value, numerator over denominator.

    ``roots`` is the number of different square roots in an element. ``exponents`` bounds the
    exponents of its exponentials, one level below. ``uses`` names the operations of its cone beyond
    those of a field: "exp", "log", "root", "order", "keyed".
    """

    top: Polynomial = ONE
    bottom: Polynomial = ONE
    roots: int = 0
    exponents: Degree | None = None
    uses: frozenset[str] = frozenset()

    @property
    def numerator(self) -> int:
        """The degree of the numerator's coefficients."""
        return self.top.degree

    @property
    def denominator(self) -> int:
        """The degree of the denominator's coefficients."""
        return self.bottom.degree

    @property
    def terms_log2(self) -> float:
        """The log2 of the number of exponential terms of numerator or denominator."""
        return max(self.top.terms_log2, self.bottom.terms_log2)

    @property
    def exponent(self) -> int:
        """The greatest degree of an exponent's numerator or denominator; 0 without exponentials."""
        return (
            0
            if self.exponents is None
            else max(self.exponents.numerator, self.exponents.denominator)
        )

    @property
    def heuristic(self) -> bool:
        """True if the cone has an operation that no bound by degrees covers."""
        return bool(self.uses & HEURISTIC) or (
            self.exponents is not None and self.exponents.heuristic
        )

    @property
    def has_root(self) -> bool:
        """True if the cone has a root."""
        return "root" in self.uses


def either(degrees: Iterable[Degree | None]) -> Degree | None:
    """Return bounds for a value that is one of several; None if none has bounds."""
    result: Degree | None = None
    for degree in degrees:
        if degree is None or result is None:
            result = result or degree
            continue
        result = Degree(
            result.top.either(degree.top),
            result.bottom.either(degree.bottom),
            max(result.roots, degree.roots),
            either((result.exponents, degree.exponents)),
            result.uses | degree.uses,
        )
    return result


def difference(a: Degree, b: Degree) -> Degree:
    """Return bounds for a - b over the common denominator, the product of both."""
    top = a.top.times(b.bottom).plus(b.top.times(a.bottom))
    return Degree(
        top,
        a.bottom.times(b.bottom),
        a.roots + b.roots,
        either((a.exponents, b.exponents)),
        a.uses | b.uses,
    )


def sum_of_exponents(a: Degree | None, b: Degree | None) -> Degree | None:
    """Return bounds for f and for f + g, if either may be the exponent of a product."""
    if a is None or b is None:
        return a or b
    if a.denominator == b.denominator == 0:
        return either((a, b))
    return difference(a, b)


class Bound(NamedTuple):
    """The log2 of a probability, and a flag that is True if the bound is heuristic."""

    log2: float
    heuristic: bool


def level_bound(value: Degree, primes: Sequence[int], level: int) -> Bound:
    """Bound the probability that a nonzero numerator vanishes at residues of prime ``level``.

    Without exponentials it is deg/p (Schwartz, Zippel, DeMillo and Lipton). With exponential terms
    c_j(x) w^(f_j(y)), let p be the prime of the level and q the one below:

    - one term vanishes with its coefficient, deg/p;
    - two terms vanish when w^(f_1 - f_2) = -c_2/c_1 =: w^t, or when both coefficients do. A
      coefficient is 0 with deg/p. For given x the polynomial f_1 - f_2 - t is not 0, or is a
      constant that the random base meets once: deg(f_1 - f_2 - t)/q. Proven;
    - k > 2 terms vanish with C(k, 2) deg(f_i - f_j)/q for exponents that coincide in some pair. If
      the exponents are distinct and the coefficients linearly independent, at most deg/p is added.
      If they depend on each other, a sum of powers with constant coefficients is left, which
      vanishes for about deg/q of the draws. A proof of that needs an exponent with a variable of
      its own. Degrees tell neither, so these bounds are heuristic.

    All bounds with exponentials are multiplied by the safety factor 4. Exponents with exponentials
    are bounded in turn, a level further down; t is one more term. With r roots, y^2 = q adjoined
    each, the norm has degree 2^r deg. It is not 0 if no product of arguments of different roots is
    a square. ``prove/legendre_symbols.py`` sees to single arguments and pairs; with more than two
    roots the bound is heuristic. If a bound by these cases is of no use, exponentials and roots are
    taken as independent variables, and the bound is heuristic.
    """
    return _ways(value, primes, level).chosen


class _Ways(NamedTuple):
    """Two bounds on one probability.

    ``exact`` is by cases. ``guess`` takes exponentials and roots as independent, and is always
    heuristic.
    """

    exact: float
    guess: float
    heuristic: bool

    @property
    def chosen(self) -> Bound:
        """The bound by cases if it is of use, else the smaller of the two."""
        if self.exact < 2.0**USEFUL_LOG2 or self.exact <= self.guess:
            return Bound(min(0.0, math.log2(self.exact)), self.heuristic)
        return Bound(min(0.0, math.log2(self.guess)), True)


def _ways(value: Degree, primes: Sequence[int], level: int) -> _Ways:
    """Return both bounds of :func:`level_bound`.

    A guess takes everything as independent, all the way down. Otherwise a bound by cases of the
    exponents that is just of use would make the whole vacuous, and fewer terms would be bounded
    worse than more.
    """
    plain = max(value.numerator, 1) / primes[max(level, 0)]
    exact, guess = plain * 2.0 ** min(value.roots, 1000), plain * (2 if value.roots else 1)
    heuristic = value.heuristic or value.roots > PAIR_OF_ROOTS
    if value.top.powers and value.exponents is not None and value.top.terms_log2 > 0:
        below = _ways(_apart(value.exponents), primes, level - 1)
        pairs_log2 = max(2 * value.top.terms_log2 - 1, 0.0)
        exact = SAFETY * (exact + 2.0 ** min(pairs_log2, 1000) * 2.0**below.chosen.log2)
        guess = SAFETY * (guess + value.top.powers * min(below.guess, 1.0))
        heuristic = heuristic or below.chosen.heuristic or value.top.terms_log2 > TWO_TERMS_LOG2
    elif value.top.powers:
        exact, guess = SAFETY * exact, SAFETY * guess
    return _Ways(exact, guess, heuristic)


def _apart(exponents: Degree) -> Degree:
    """Return bounds for the difference of two exponents less a constant."""
    apart = difference(exponents, exponents)
    return replace(apart, top=apart.top.plus(apart.bottom))


class DrawError(NamedTuple):
    """The probability that two different values agree at all levels of one draw.

    ``levels`` has its log2 for every level that counts by itself; ``heuristic`` says that a bound
    is heuristic. ``bad`` is the share of primes, at any of these levels, modulo which different
    values may be equal: those that divide all coefficients of the difference. It counts once for
    all draws over the same primes. With ``once``, bad primes are part of ``levels`` already, and of
    draws over the same primes only one counts.
    """

    levels: tuple[float, ...]
    bad: float
    heuristic: bool
    once: bool = False

    @property
    def log2(self) -> float:
        """The log2 of the probability that all levels agree, bad primes left aside."""
        return sum(self.levels)

    def larger(self, other: DrawError) -> DrawError:
        """Return bounds for draws with either error, of equally many levels."""
        return DrawError(
            tuple(max(pair) for pair in zip(self.levels, other.levels, strict=True)),
            max(self.bad, other.bad),
            self.heuristic or other.heuristic,
            self.once or other.once,
        )

    def agreeing(self, draws: float, log2: float | None = None) -> float:
        """Return the log2 of a bound, at most 0, on the agreement of ``draws`` complete draws.

        All draws are over the same primes. ``log2`` is their error if it is known from elsewhere.
        The number of complete draws may depend on the primes. So if there are bad ones, the bound
        is divided among both cases at every level, a bit for each.
        """
        errors = [draws * level for level in self.levels] if log2 is None else [log2]
        if self.once and 0 < draws < math.inf:
            # Some draw agrees with a probability of at most the sum over all draws.
            return min(0.0, self.log2 + math.log2(draws))
        if not self.bad:
            return sum(errors)
        return min(0.0, sum(1 + log2_sum((math.log2(self.bad), error)) for error in errors))


def draw_error(
    a: Degree,
    b: Degree,
    primes: Sequence[int],
    levels: Sequence[int],
    heights: Heights | None = None,
) -> DrawError:
    """Return the probability that two different values agree at all ``levels`` of one draw.

    Residues of one draw are independent only if the cone has no exponential, logarithm, root, order
    or keyed function. Otherwise only the best level counts. The same holds if there may be bad
    primes and the primes of a draw are linked: one that is bad at a level tells of those at others.
    The log2 is 0.0 if the bound is vacuous or ``levels`` is empty.
    """
    value = difference(a, b)
    bounds = [
        (
            level_bound(value, primes, level),
            Bound(-math.inf, False) if heights is None else heights.bad(value, level),
        )
        for level in levels
    ]
    if not bounds:
        return DrawError((0.0,), 0.0, value.heuristic)
    bad = max(2.0**share.log2 for _, share in bounds)
    heuristic = any(share.heuristic for _, share in bounds)
    if not value.uses and not (bad and heights is not None and heights.linked):
        return DrawError(
            tuple(bound.log2 for bound, _ in bounds), bad, value.heuristic or heuristic
        )
    best = min(bound for bound, _ in bounds)
    return DrawError((best.log2,), bad, best.heuristic or heuristic)


def trial_error(a: Degree, b: Degree, primes: Sequence[int], levels: Sequence[int]) -> Bound:
    """Return :func:`draw_error` of all levels as one bound, bad primes left aside."""
    error = draw_error(a, b, primes, levels)
    return Bound(error.log2, error.heuristic)


def trial_error_log2(a: Degree, b: Degree, primes: Sequence[int], levels: Sequence[int]) -> float:
    """Return the log2 of :func:`trial_error`, bad primes left aside."""
    return trial_error(a, b, primes, levels).log2


@dataclass(frozen=True)
class Heights:
    """The primes that a draw chooses from, and so how many of them may divide a difference.

    ``count`` is the number of primes to choose from at a level. ``least_log2`` bounds the log2 of
    these from below for every level. ``linked`` says that the primes of a draw depend on each
    other. ``irrational`` counts different irrational roots of numbers: with each, the norm of a
    coefficient has twice its height.
    """

    count: float
    least_log2: tuple[float, ...]
    linked: bool
    irrational: int = 0

    def bad(self, value: Degree, level: int) -> Bound:
        """Bound the share of bad primes of a level.

        A prime is bad if it divides all coefficients of a nonzero numerator, or makes two exponents
        one. An integer of at most 2^h has at most h / log2(p) prime factors from p on. Heights
        double with every root, as degrees do. If the bound is of no use, roots and pairs of
        exponents are left aside and it is heuristic.
        """
        level = max(level, 0)
        height = value.top.height_log2
        exact = self._share(math.ldexp(height, min(value.roots + self.irrational, 900)), level)
        guess, heuristic = self._share(height, level), False
        if value.top.powers and value.exponents is not None and value.top.terms_log2 > 0:
            below = self.bad(_apart(value.exponents), level - 1)
            exact += 2.0 ** min(below.log2 + max(2 * value.top.terms_log2 - 1, 0.0), 900.0)
            guess += min(value.top.powers, 1 << 30) * 2.0**below.log2
            heuristic = below.heuristic
        if exact <= USEFUL_SHARE or guess >= exact:
            return Bound(_log2(exact), heuristic)
        return Bound(_log2(guess), True)

    def _share(self, height_log2: float, level: int) -> float:
        return math.floor(min(height_log2 / self.least_log2[level], 1e300)) / self.count


def _log2(share: float) -> float:
    return math.log2(share) if share else -math.inf


@dataclass(frozen=True)
class Division:
    """``elements`` values of degree ``degree`` that must not vanish.

    They are divisors, or inputs drawn other than 0.
    """

    degree: Degree
    elements: int


def rejected_share(divisions: Iterable[Division], primes: Sequence[int]) -> float:
    """Bound the share of draws in which a divisor vanishes by chance at some level.

    The bound is the sum over divisors, elements and levels of their bounds. It is at least 1 if it
    is vacuous.
    """
    return float(
        sum(
            d.elements * 2.0 ** level_bound(d.degree, primes, level).log2
            for d in divisions
            for level in range(len(primes))
        )
    )


def log2_sum(logs: Iterable[float]) -> float:
    """Return the log2 of a sum of numbers given by their log2; -inf for none."""
    values = list(logs)
    top = max(values, default=-math.inf)
    if top == -math.inf:
        return top
    return top + math.log2(sum(2.0 ** (x - top) for x in values))
