"""The listed chains have the properties that the arithmetic relies on."""

import galois
import pytest

from pitcheck.algebra.residues.chains import Chain, chains_of
from pitcheck.errors import UsageError

SQUARES_UP_TO = {1: 37, 2: 29, 3: 17, 4: 13}
"""By length of a chain, a bound: all primes up to it are squares modulo every member."""

ALL = [(length, chain) for length in (1, 2, 3, 4) for chain in chains_of(length)]


def legendre(a: int, p: int) -> int:
    return pow(a, (p - 1) // 2, p)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_every_property_is_derived_anew(length: int) -> None:
    chains = chains_of(length)
    assert len(set(chains)) == len(chains) >= 8
    for chain in chains:
        assert len(chain) == length
        for below, above in zip(chain.primes, chain.primes[1:], strict=False):
            assert above == 2 * below + 1
        for p in chain.primes:
            assert galois.is_prime(p) and p < 2**31 and p % 4 == 3
            q = 2
            while q <= SQUARES_UP_TO[length]:
                assert legendre(q, p) == 1, (q, p)
                q = galois.next_prime(q)


def test_the_measured_chains_are_listed() -> None:
    assert (888679679, 1777359359) in [c.primes for c in chains_of(2)]
    assert (479486279, 958972559, 1917945119) in [c.primes for c in chains_of(3)]
    assert (251891639, 503783279, 1007566559, 2015133119) in [c.primes for c in chains_of(4)]


@pytest.mark.parametrize("primes", [(), (11, 22), (11, 24), (2**31 + 11,), (2,), (47, 23)])
def test_what_is_no_chain_is_refused(primes: tuple[int, ...]) -> None:
    with pytest.raises(UsageError):
        Chain(primes)


def test_unknown_lengths_are_refused() -> None:
    with pytest.raises(UsageError, match="not of 5"):
        chains_of(5)
