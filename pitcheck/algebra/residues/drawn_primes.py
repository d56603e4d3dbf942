"""Primes drawn anew for every few redraws, by rejection.

A number that vanishes modulo one of them is not known before they are drawn. All primes are 11
modulo 12. So they are 3 modulo 4 (a square x has the root x^((p+1)/4)), and 3 is a square modulo
each. Other small primes are squares if a family asks for them, so that roots of constants made of
these are exact.

>>> primes = DrawnPrimes(seed=7)
>>> first, second = (primes.chain(Family(length=2), number).primes for number in (0, 1))
>>> first[1] == 2 * first[0] + 1, set(first).isdisjoint(second)
(True, True)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import shake_128
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.bound.degree_bounds import Heights
from pitcheck.algebra.residues.chains import LARGEST, Chain
from pitcheck.errors import UsageError

SQUARES = (3, 2, 5, 7, 11, 13, 17)
"""The small primes in the order in which families ask for them as squares."""
_COUNTS = {
    1: (12_674_228, 6_337_432, 3_169_353, 1_584_536, 792_084, 395_713, 197_980),
    2: (817_344, 408_266, 136_356, 27_225, 9_182, 2_503, 519),
    3: (44_661, 22_350, 11_304, 2_872, 728, 95, 13),
    4: (2_323, 1_129, 1_129, 285, 39, 7, 0),
}
"""By length, the numbers of chains whose last prime lies above 2^30 and modulo all members of which
the first 1, 2, ... of ``SQUARES`` are squares. They were counted by a sieve.
"""
_UNKNOWN = 4
"""The number of small primes made squares if roots of unknown numbers are taken."""
_STEP = 12
_BATCH, _LARGE_BATCH = 1 << 11, 1 << 16
_COMMON = 1000
"""The size of a family above which few candidates are enough to find a chain."""
_TRIAL_DIVISORS = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)
_WITNESSES = (2, 3, 5, 7)
"""The bases for which the test of Miller and Rabin is exact below 3.2 * 10^9."""


@dataclass(frozen=True)
class Family:
    """A set to draw primes from: chains of ``length`` primes, or as many unlinked ones.

    The last prime of a chain lies between 2^30 and 2^31, as all unlinked ones do. The first
    ``squares`` of ``SQUARES`` are squares modulo each.

    Raises:
        UsageError: if the family was not counted, or is empty.
    """

    length: int
    linked: bool = True
    squares: int = 1

    def __post_init__(self) -> None:
        if self.length not in _COUNTS or not 0 < self.squares <= len(SQUARES) or not self.count:
            raise UsageError(
                f"no chains of {self.length} primes with {self.squares} small squares are known: "
                f"lengths go from 1 to 4, squares from 1 to 7"
            )

    @property
    def count(self) -> int:
        """The number of chains in the family; for unlinked primes, the number of single ones."""
        return _COUNTS[self.length if self.linked else 1][self.squares - 1]

    def least_log2(self, level: int) -> int:
        """Return the log2 of a number below all primes of a level."""
        return 30 - (self.length - 1 - level if self.linked else 0)


class PrimeSource(Protocol):
    """The origin of the primes of a run."""

    def chain(self, family: Family, number: int) -> Chain:
        """Return the primes of draw ``number`` of a family.

        Those of different draws differ at every level.
        """
        ...

    def heights(self, family: Family, irrational: int) -> Heights:
        """Return from how many primes, and from which size on, the next ones are drawn.

        This holds whatever was drawn before. ``irrational`` numbers occur in a stage.
        """
        ...


class DrawnPrimes:
    """Chains drawn without replacement, by a generator keyed with the run's seed.

    The same seed gives the same chains, in whatever order they are asked for.
    """

    MOST = 1 << 9
    """The number of draws of a family that are counted as made before."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._found: dict[Family, list[Chain]] = {}
        self._more: dict[Family, Iterator[Chain]] = {}

    def chain(self, family: Family, number: int) -> Chain:
        """Return the primes of draw ``number``; in a family that has fewer, they begin again."""
        number %= max(1, family.count if family.linked else family.count // family.length)
        found = self._found.setdefault(family, [])
        more = self._more.setdefault(family, _draws(family, self._seed))
        while len(found) <= number:
            found.append(next(more))
        return found[number]

    def heights(self, family: Family, irrational: int) -> Heights:
        """Return the heights of a family, less the primes that earlier draws may have taken."""
        count = max(
            family.count // 2, family.count - self.MOST * (1 if family.linked else family.length)
        )
        least = tuple(float(family.least_log2(level)) for level in range(family.length))
        return Heights(float(count), least, family.linked, irrational)


def _draws(family: Family, seed: int) -> Iterator[Chain]:
    """Yield different chains for ever, or until there are no more."""
    length = family.length if family.linked else 1
    taken: set[int] = set()
    waiting: list[int] = []
    number = 0
    while True:
        for first in _candidates(family, length, f"{seed}:primes:{family}:{number}"):
            primes = [((first + 1) << level) - 1 for level in range(length)]
            if first not in taken and all(map(is_prime, primes)):
                taken.add(first)
                waiting += primes
                if len(waiting) == family.length:
                    yield Chain(tuple(waiting), family.linked)
                    waiting = []
        number += 1


def _candidates(family: Family, length: int, key: str) -> list[int]:
    """Return numbers 11 modulo 12, each uniform, at which chains may begin.

    No member has a small divisor, and the squares are those of the family.
    """
    last = _STEP << (length - 1)
    low, high = -(-(LARGEST // 2) // last), LARGEST // last
    words = np.frombuffer(
        shake_128(key.encode()).digest(8 * (_BATCH if family.count > _COMMON else _LARGE_BATCH)),
        dtype="<u8",
    )
    first = (words % np.uint64(high - low + 1)).astype(np.int64) + low
    first = first * _STEP - 1
    first = first[((first + 1) << (length - 1)) - 1 < LARGEST]
    # The last small square decides about most.
    for small in reversed(SQUARES[1 : family.squares]):
        for level in range(length):
            first = first[_has_square(small, ((first + 1) << level) - 1)]
    for level in range(length):
        for divisor in _TRIAL_DIVISORS:
            first = first[((first + 1) << level) % divisor != 1]
    numbers: list[int] = first.tolist()
    return numbers


def _has_square(small: int, primes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return True for each prime, 3 modulo 4, modulo which a small prime is a square.

    The rule is quadratic reciprocity. The result has the shape of ``primes``.
    """
    if small == 2:
        return np.asarray(primes % 8 == 7)
    squares = {n * n % small for n in range(1, small)}
    rest = [n for n in range(1, small) if (n in squares) == (small % 4 == 1)]
    return np.isin(primes % small, rest)


def is_prime(number: int) -> bool:
    """Return True if an odd number between 48 and 2^31 is prime."""
    odd = number - 1
    twos = (odd & -odd).bit_length() - 1
    odd >>= twos
    for base in _WITNESSES:
        power = pow(base, odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def squares_for(numbers: Iterable[int]) -> int:
    """Return how many of ``SQUARES`` must be squares for roots of positive integers to be exact.

    They are exact as far as the integers are made of these primes. 0 stands for integers that are
    not known: mostly places along reduced dimensions, which are small.
    """
    needed = 1
    for number in numbers:
        left = number
        if not left:
            needed = max(needed, _UNKNOWN)
            continue
        for place, small in enumerate(SQUARES, start=1):
            times = 0
            while left % small == 0:
                left //= small
                times += 1
            # Residues take the root of m^2 that is a square: m rather than -m if m is a square.
            needed = max(needed, place if times else 1)
    return needed
