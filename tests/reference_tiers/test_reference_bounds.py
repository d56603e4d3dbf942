"""Bounds against exact arithmetic: no number of the fast code is more hopeful than the fractions.

The log2 of the fast code may be at most 1e-6 below that of the exact number. What may be above it
by how much is said at each test.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

import galois
import numpy as np
import pytest
from reference_tiers.exact_bounds import (
    PRIME,
    Quotient,
    Symbols,
    bad_primes,
    evaluation,
    expanded,
    log2,
    product,
    redraws,
    total,
)
from reference_tiers.fast_sides import evaluated, primes_of
from reference_tiers.formulas import (
    NAMES,
    REDUCTIONS,
    Formula,
    Growth,
    exchanged,
    literal,
    pair_of,
    two,
    walk,
)

from pitcheck.algebra.bound.degree_bounds import (
    Degree,
    DrawError,
    Heights,
    Polynomial,
    difference,
    draw_error,
)
from pitcheck.algebra.bound.degrees import DegreeAlgebra
from pitcheck.algebra.bound.free_degrees import FreeDegreeAlgebra
from pitcheck.algebra.residues.drawn_primes import DrawnPrimes, Family, is_prime
from pitcheck.prove.bounds.redraws import Redraws
from pitcheck.prove.error_budget import Attempts, ErrorBudget

CLOSE = 1e-6
NO_COUNT = np.zeros((0, 0), dtype=np.int64)
DAY, NIGHT = range(60), range(1000, 4000)
DAY_ERRORS, NIGHT_ERRORS = range(800), range(1000, 21000)
SPLIT = frozenset(("sub", "neg", "literal"))
UNKNOWN = frozenset(("picked", "log", "sqrt", "max", "min", "top", "where"))


def _both(first: float, second: float) -> None:
    """Two log2 are the same."""
    assert first == pytest.approx(second, abs=CLOSE, rel=1e-9)


# --- the error of one draw with tables


def _follows_laws(root: Formula) -> bool:
    """True if a formula has a function with laws, which the exact degrees here leave aside."""
    return any(
        term.kind in UNKNOWN
        or (term.kind == "exp" and any(t.kind in SPLIT for t in walk(term.operands[0])))
        for term in walk(root)
    )


def errors(seeds: Iterable[int]) -> list[float]:
    """The bits by which the bound on a draw is above what exact degrees give."""
    primes, found = primes_of(3).primes, []
    for seed in seeds:
        pair = pair_of(random.Random(f"errors {seed}"))
        if any(_follows_laws(each) for each in (pair.first, pair.second)):
            continue
        try:
            exact = Symbols(seed).error(pair.first, pair.second, primes)
        except ZeroDivisionError:
            continue
        if not exact:
            continue
        algebra = FreeDegreeAlgebra()
        targets = [(evaluated(algebra, pair.first), evaluated(algebra, pair.second))]
        heights = Heights(math.inf, (30.0,) * len(primes), False)
        bound, _ = algebra.draw_error(targets, primes, heights)
        above = bound.log2 - log2(exact)
        assert above >= -CLOSE, (seed, str(pair.first), str(pair.second), bound, log2(exact))
        found.append(above)
    return found


def test_the_error_of_a_draw_is_no_less_than_that_of_exact_degrees() -> None:
    found = errors(DAY_ERRORS)
    assert len(found) > 15
    assert sorted(found)[len(found) // 2] < 1, "half of all bounds are within a bit"
    assert max(found) < 16, "none is above by more than 16 bits"


@pytest.mark.slow
@pytest.mark.nightly
def test_the_error_of_thousands_of_draws_is_no_less_than_that_of_exact_degrees() -> None:
    found = errors(NIGHT_ERRORS)
    assert len(found) > 500
    assert sorted(found)[len(found) // 2] < 1, "half of all bounds are within a bit"
    assert max(found) < 16, "none is above by more than 16 bits"


def test_quotients_are_reduced_as_galois_reduces_them() -> None:
    field = galois.GF(PRIME, primitive_element=37, verify=False)
    rng = random.Random(1)
    for _ in range(20):
        shared, top, bottom = (
            Quotient(tuple(rng.randrange(1, PRIME) for _ in range(rng.randint(1, 4))))
            for _ in range(3)
        )
        found = Quotient.of(shared.times(top).top, shared.times(bottom).top)
        whole, below = (
            galois.Poly(list(map(int, reversed(each.times(shared).top))), field=field)
            for each in (top, bottom)
        )
        common = galois.gcd(whole, below)
        reduced, under = whole // common, below // common
        scale = under.coeffs[0]
        assert [int(c / scale) for c in reduced.coeffs] == list(reversed(found.top))
        assert [int(c / scale) for c in under.coeffs] == list(reversed(found.bottom))


# --- heights


def _with_large_literals(root: Formula, rng: random.Random) -> Formula:
    """Exchange literals for larger ones, and sums along the vector for their operand."""
    for term in list(walk(root)):
        if term.kind == "literal":
            top, bottom = rng.randint(1, 10 ** rng.randint(1, 30)), rng.choice((1, 7, 10**9))
            root = exchanged(root, term, literal(Fraction(top, bottom)))
    while any(t.kind in REDUCTIONS for t in walk(root)):
        term = next(t for t in walk(root) if t.kind in REDUCTIONS)
        root = exchanged(root, term, term.operands[0])
    return root


def heights(seeds: Iterable[int]) -> Counter[int]:
    """Compare bad primes of random quotients; count how many the bound fears.

    A number that divides numerator and denominator is cancelled. As many primes are bad as the
    rest of what divides all coefficients of the numerator has room for.
    """
    counts: Counter[int] = Counter()
    source = DrawnPrimes(5).heights(Family(3, False, 1), 0)
    for seed in seeds:
        rng = random.Random(f"heights {seed}")
        sides = [
            _with_large_literals(
                Growth(rng, functions=False, decides=False).formula(rng.randint(1, 3)), rng
            )
            for _ in range(2)
        ]
        if seed % 3 == 0:
            # Both sides agree modulo some of the primes that are drawn.
            number = math.prod(_large_primes(rng, rng.randint(1, 4)))
            more = two("mul", literal(number), sides[1])
            sides[1] = two("add", sides[0], more)
        try:
            (a, c), (b, d) = (expanded(each, NAMES) for each in sides)
        except ZeroDivisionError:
            continue
        numerator = total(product(a, d), product(b, c), -1)
        if not numerator:
            continue
        shared = math.gcd(*product(c, d).values())
        content = math.gcd(*numerator.values())
        content, common = content // math.gcd(content, shared), math.gcd(content, shared)
        algebra = DegreeAlgebra()
        degree = difference(*(evaluated(algebra, each).degree for each in sides))
        most = max(sum(e) for e in numerator)
        said = (seed, *map(str, sides))
        if not any(t.kind == "div" for each in sides for t in walk(each)):
            # Without divisors nothing is shared: degree and height are those of this numerator.
            size = sum(map(abs, numerator.values()))
            assert degree.top.degree >= most, said
            assert degree.top.height_log2 >= math.log2(size // common) - CLOSE, said
        least = 1 << 30
        share = source.bad(degree, 0).log2
        exact = bad_primes(content, least)
        assert not exact or share >= math.log2(exact / source.count) - CLOSE, said
        counts[bad_primes(math.floor(2 ** min(degree.top.height_log2, 900)), least)] += 1
    return counts


def test_no_more_primes_are_bad_than_heights_say() -> None:
    assert sum(heights(DAY).values()) > 30


@pytest.mark.slow
@pytest.mark.nightly
def test_no_more_primes_are_bad_than_heights_say_in_thousands_of_formulas() -> None:
    counts = heights(NIGHT)
    assert sum(counts.values()) > 2000
    assert len(counts) > 4


def _large_primes(rng: random.Random, count: int) -> list[int]:
    """Small ones among the primes that are drawn: just above 2^30."""
    found: list[int] = []
    number = (1 << 30) + 1 + 2 * rng.randrange(100)
    while len(found) < count:
        if is_prime(number):
            found.append(number)
        number += 2
    return found


@pytest.mark.parametrize("count", [0, 1, 2, 3, 8, 20])
def test_a_literal_made_of_primes_has_as_many_bad_ones(count: int) -> None:
    """x + 1 and x + 1 + p1 p2 ... agree modulo each of these primes, and that is feared."""
    source = DrawnPrimes(5).heights(Family(3, False, 1), 0)
    number = math.prod(_large_primes(random.Random(count), count))
    algebra = DegreeAlgebra()
    x = algebra.fresh("x", ())
    sides = [algebra.add(x, algebra.constant(Fraction(1 + more))) for more in (0, number)]
    share = source.bad(difference(*(side.degree for side in sides)), 0).log2
    exact = bad_primes(number + 4, 1 << 30)
    assert exact >= count
    assert (not exact and share == -math.inf) or share >= math.log2(exact / source.count) - CLOSE


@pytest.mark.parametrize("seed", range(20))
def test_bad_primes_are_counted_as_by_integers(seed: int) -> None:
    """The share is that of an exact count, for heights that are no power of the least prime.

    With r roots the height is raised to the power 2^r.
    """
    rng = random.Random(seed)
    least, count = rng.choice((28, 29, 30)), rng.randrange(10**4, 10**7)
    height, roots = rng.randrange(3, 10 ** rng.randint(1, 200)), rng.randrange(3)
    heights_of = Heights(float(count), (float(least),), False)
    degree = Degree(Polynomial(1, height_log2=math.log2(height)), roots=roots)
    share = Fraction(bad_primes(height**2**roots, 1 << least), count)
    found = heights_of.bad(degree, 0)
    if share:
        _both(found.log2, log2(share))
    else:
        assert found.log2 == -math.inf


# --- draws and redraws


def _drawn_error(rng: random.Random) -> tuple[list[Fraction], Fraction, DrawError]:
    """Random errors of levels and a share of bad primes, exact and as the fast code has them."""
    levels = [
        Fraction(rng.randint(1, 2 ** rng.randint(0, 25)), rng.randint(2**29, 2**31))
        for _ in range(rng.randint(1, 3))
    ]
    bad = Fraction(rng.choice((0, 0, 1, 3, 50)), rng.randint(10**4, 10**7))
    return levels, bad, DrawError(tuple(map(log2, levels)), float(bad), False)


def _evaluations(seeds: Iterable[int]) -> int:
    done = 0
    for seed in seeds:
        rng = random.Random(f"redraws {seed}")
        levels, bad, one = _drawn_error(rng)
        draws = rng.randint(1, 40)
        _both(one.agreeing(draws), log2(evaluation(levels, bad, draws)))
        together = Redraws()
        for _ in range(rng.randint(1, 5)):
            together.add(np.array([rng.random() < 0.8 for _ in range(rng.randint(1, 12))]))
        for counts_voids in (False, True):
            exact = redraws(levels, bad, together.agreed, together.voided, counts_voids)
            _both(together.error(one, counts_voids, NO_COUNT, 0.0), log2(exact))
        once = one._replace(levels=(one.log2,), bad=0.0, once=True)
        error = min(Fraction(1), draws * math.prod(levels))
        _both(once.agreeing(draws), log2(error))
        done += 1
    return done


def test_redraws_multiply_as_fractions_do() -> None:
    assert _evaluations(DAY) == len(DAY)


@pytest.mark.slow
@pytest.mark.nightly
def test_thousands_of_redraws_multiply_as_fractions_do() -> None:
    assert _evaluations(NIGHT) == len(NIGHT)


@pytest.mark.parametrize("seed", range(20))
def test_the_error_of_a_draw_without_functions_is_a_product_of_quotients(seed: int) -> None:
    """Degree over prime at every level, in the product; with linked primes that may be bad, one."""
    rng = random.Random(seed)
    primes = primes_of(seed).primes
    sides = [Degree(Polynomial(rng.randint(1, 999))) for _ in range(2)]
    degree = max(side.numerator for side in sides)
    count, height = 10**5, rng.choice((0.0, 100.0))
    sides[0] = Degree(Polynomial(sides[0].numerator, height_log2=height))
    for linked in (False, True):
        found = draw_error(*sides, primes, (0, 1, 2), Heights(count, (30.0,) * 3, linked))
        levels = [Fraction(degree, p) for p in primes]
        if linked and height:
            levels = [min(levels)]
        _both(found.log2, log2(math.prod(levels, start=Fraction(1))))
        assert found.bad == pytest.approx((3 if height else 0) / count)


# --- the ledger


def _ledger(seed: int) -> None:
    rng = random.Random(f"ledger {seed}")
    accepted = -rng.randint(20, 80)
    budget, exact, number = ErrorBudget(float(accepted)), Fraction(0), 0
    aside = Fraction(rng.choice((0, 1, 3)), 8) * Fraction(2) ** accepted
    budget.set_aside("earlier", log2(aside) if aside else -math.inf)
    for statement in range(rng.randint(1, 30)):
        allowance = accepted - rng.randint(1, 9)
        attempts, spent = Attempts(str(statement), float(allowance)), []
        for _ in range(rng.randint(1, 6)):
            less = rng.choice((0, 0, 6))
            attempt = attempts.reserve("sizes", float(less))
            own = Fraction(2) ** (allowance - less)
            if rng.random() < 0.5:
                own *= Fraction(rng.randint(1, 10**6), 10**6)
                attempts.settle(attempt, log2(own))
            spent.append(own)
        _both(attempts.spent_log2, log2(sum(spent, Fraction(0))))
        budget.enter(str(statement), attempts.spent_log2, attempts.count)
        exact, number = exact + sum(spent), number + len(spent)
    whole = exact + aside
    _both(budget.spent_log2, log2(whole))
    assert budget.attempts == number
    limit = Fraction(2) ** accepted
    assert budget.holds == (whole <= limit) or abs(log2(whole) - accepted) < CLOSE
    more = Fraction(5, 8) * limit
    assert budget.allows_more == (whole <= more) or abs(log2(whole / more)) < CLOSE
    # As many attempts once more, each with the new allowance, use at most half of what is left,
    # and at least an eighth of it.
    again = Fraction(2) ** accepted - aside
    next_log2 = budget.again() + math.log2(number)
    assert log2(again) - 3 - CLOSE <= next_log2 <= log2(again) - 1 + CLOSE


@pytest.mark.parametrize("seed", range(20))
def test_the_ledger_adds_up_as_fractions_do(seed: int) -> None:
    _ledger(seed)


@pytest.mark.slow
@pytest.mark.nightly
def test_thousands_of_ledgers_add_up_as_fractions_do() -> None:
    for seed in NIGHT:
        _ledger(seed)
