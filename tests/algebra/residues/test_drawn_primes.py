"""Primes that are drawn: what they are, that a seed repeats them, and how many there are."""

from __future__ import annotations

import galois
import pytest

from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.drawn_primes import (
    SQUARES,
    DrawnPrimes,
    Family,
    is_prime,
    squares_for,
)
from pitcheck.errors import UsageError

FAMILIES = [
    Family(3, False),
    Family(3, False, 3),
    Family(1, False, 7),
    Family(3),
    Family(3, True, 2),
    Family(3, True, 4),
    Family(4),
    Family(2, True, 5),
]
SEED = (1 << 127) + 12345


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_draws_are_chains_of_the_family_and_all_different(family: Family) -> None:
    source = DrawnPrimes(SEED)
    chains = [source.chain(family, number) for number in range(5)]
    primes = [p for chain in chains for p in chain.primes]
    assert len(set(primes)) == 5 * family.length
    for chain in chains:
        assert chain.linked == family.linked
        assert 1 << 30 < chain.primes[-1] < 1 << 31
        assert all(galois.is_prime(p) and p % 12 == 11 for p in chain.primes)
        assert all(p >= 2 ** family.least_log2(level) for level, p in enumerate(chain.primes))
        assert all(
            pow(small, (p - 1) // 2, p) == 1
            for small in SQUARES[: family.squares]
            for p in chain.primes
        )


def test_a_seed_gives_the_same_primes_in_whatever_order_they_are_asked_for() -> None:
    one, other = DrawnPrimes(SEED), DrawnPrimes(SEED)
    other.chain(Family(3), 0), other.chain(Family(3, False), 4)
    assert [one.chain(Family(3), n) for n in (2, 0)] == [other.chain(Family(3), n) for n in (2, 0)]
    assert one.chain(Family(3), 0) != DrawnPrimes(SEED + 1).chain(Family(3), 0)


def test_is_prime_agrees_with_galois() -> None:
    numbers = [
        *range(49, 3001, 2),
        *range((1 << 31) - 2001, 1 << 31, 2),
        3215031751 % (1 << 31) | 1,
        1373653,
        25326001,
    ]
    assert [n for n in numbers if is_prime(n) != galois.is_prime(n)] == []


def test_squares_are_asked_for_as_far_as_roots_need_them() -> None:
    assert squares_for(()) == 1
    assert (
        squares_for({9}),
        squares_for({36}),
        squares_for({8}),
        squares_for({20}),
        squares_for({3, 17}),
    ) == (1, 2, 2, 3, 7)
    assert squares_for({0}) == 4


@pytest.mark.parametrize(("length", "squares"), [(5, 1), (0, 1), (3, 8), (4, 7)])
def test_a_family_that_is_empty_or_not_counted_is_refused(length: int, squares: int) -> None:
    with pytest.raises(UsageError):
        Family(length, True, squares)


def test_unlinked_primes_are_different() -> None:
    with pytest.raises(UsageError, match="two are the same"):
        Chain((11, 11), linked=False)
    assert Chain((11, 47), linked=False).primes == (11, 47)
