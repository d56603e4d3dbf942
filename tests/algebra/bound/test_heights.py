"""Heights beside degrees.

They are an upper bound on the integer coefficients of every formula, and on how many primes divide
all of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from fractions import Fraction

import pytest

from pitcheck.algebra.bound.degree_bounds import Degree, DrawError, Heights, Polynomial, draw_error
from pitcheck.algebra.bound.degrees import DegreeAlgebra, DegreeValue

Laurent = Mapping[tuple[int, ...], Fraction]
"""Exponents of the variables -> coefficient."""
VARIABLES = 3
PRIMES = (1000000007, 1000000009, 1000000021)


def times(a: Laurent, b: Laurent) -> Laurent:
    found: dict[tuple[int, ...], Fraction] = {}
    for (e, x), (f, y) in ((p, q) for p in a.items() for q in b.items()):
        place = tuple(i + j for i, j in zip(e, f, strict=True))
        found[place] = found.get(place, Fraction(0)) + x * y
    return found


def plus(a: Laurent, b: Laurent, sign: int = 1) -> Laurent:
    return {e: a.get(e, Fraction(0)) + sign * b.get(e, Fraction(0)) for e in {*a, *b}}


def height(a: Laurent) -> int:
    """Return the sum of the sizes of all coefficients over their least common denominator."""
    over = math.lcm(*(c.denominator for c in a.values()))
    return int(sum(abs(c * over) for c in a.values()))


def grown(
    random_: random.Random, algebra: DegreeAlgebra, depth: int
) -> tuple[DegreeValue, Laurent]:
    """Return a random formula, as bounds and as a polynomial."""
    if not depth:
        if random_.random() < 0.4:
            number = Fraction(
                random_.randint(-(10**9), 10**9), random_.choice((1, 7, 10**6, 3**20))
            )
            return algebra.constant(number), {(0,) * VARIABLES: number}
        which = random_.randrange(VARIABLES)
        return algebra.fresh(f"x{which}", ()), {
            tuple(int(i == which) for i in range(VARIABLES)): Fraction(1)
        }
    (a, p), (b, q) = (grown(random_, algebra, depth - 1) for _ in range(2))
    monomial = len(q) == 1 and all(q.values())
    what = random_.choice(
        ("add", "subtract", "multiply", "power", "divide")
        if monomial
        else ("add", "subtract", "multiply", "power")
    )
    if what == "add":
        return algebra.add(a, b), plus(p, q)
    if what == "subtract":
        return algebra.subtract(a, b), plus(p, q, -1)
    if what == "multiply":
        return algebra.multiply(a, b), times(p, q)
    if what == "power":
        return algebra.power(a, 2), times(p, p)
    inverse = {tuple(-i for i in e): 1 / c for e, c in q.items()}
    return algebra.divide(a, b), times(p, inverse)


@pytest.mark.parametrize("seed", range(60))
def test_the_height_of_a_formula_is_within_the_bound(seed: int) -> None:
    algebra, random_ = DegreeAlgebra(), random.Random(seed)
    value, exact = grown(random_, algebra, random_.randint(1, 4))
    assert math.log2(max(height(exact), 1)) <= value.degree.top.height_log2 + 1e-6
    if value.number is not None:
        assert {e: c for e, c in exact.items() if c} in ({(0,) * VARIABLES: value.number}, {})


def test_sums_over_many_elements_and_means_have_the_height_of_their_number() -> None:
    algebra = DegreeAlgebra()
    x = algebra.fresh("x", (8, 6))
    assert algebra.sum(x, (0, 1)).top.height_log2 == pytest.approx(math.log2(48))
    mean = algebra.divide(algebra.sum(x, (0,)), algebra.extent(x, (0,)))
    assert (mean.top.height_log2, mean.bottom.height_log2) == (pytest.approx(3), pytest.approx(3))


def test_a_root_of_a_number_doubles_heights_and_a_rational_root_does_not() -> None:
    algebra = DegreeAlgebra()
    assert algebra.sqrt(algebra.constant(Fraction(9, 4))).number == Fraction(3, 2)
    assert (algebra.roots_of, algebra.irrational) == ({36}, 0)
    algebra.sqrt(algebra.constant(Fraction(2)))
    assert (algebra.roots_of, algebra.irrational) == ({2, 36}, 1)


def test_as_many_primes_are_bad_as_a_height_has_factors() -> None:
    heights = Heights(1000.0, (30.0,) * 3, False)
    assert heights.bad(Degree(Polynomial(1, height_log2=29.9)), 0).log2 == -math.inf
    assert heights.bad(Degree(Polynomial(1, height_log2=89.0)), 0).log2 == pytest.approx(
        math.log2(2 / 1000)
    )
    assert heights.bad(Degree(Polynomial(1, height_log2=40.0), roots=1), 0).log2 == pytest.approx(
        math.log2(2 / 1000)
    )


def test_levels_multiply_where_their_primes_have_nothing_to_do_with_each_other() -> None:
    large, small = Degree(Polynomial(1, height_log2=100.0)), Degree(Polynomial(1))
    unlinked, tied = (
        draw_error(large, small, PRIMES, (0, 1, 2), Heights(1000.0, (29.0,) * 3, linked))
        for linked in (False, True)
    )
    assert (len(unlinked.levels), len(tied.levels)) == (3, 1)
    assert unlinked.bad == tied.bad == pytest.approx(3 / 1000)


def test_redraws_over_the_same_primes_leave_the_share_of_bad_ones() -> None:
    one = DrawError((-29.0,), 2.0**-10, False)
    assert one.agreeing(1) == pytest.approx(-9, abs=1e-3)
    assert one.agreeing(50) == pytest.approx(-9, abs=1e-3)
    assert DrawError((-29.0,), 0.0, False).agreeing(2) == -58.0
