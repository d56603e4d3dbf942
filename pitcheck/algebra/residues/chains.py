"""Chains of primes P(i+1) = 2 P(i) + 1 (Cunningham chains of the first kind) below 2^31.

In every listed chain all members are 3 modulo 4, so that x^((p+1)/4) is a square root of every
square x. All primes up to a bound are squares modulo every member, so that square roots of
constants with small prime factors are exact.

>>> below, above = chains_of(2)[0].primes
>>> above == 2 * below + 1
True
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pitcheck.errors import UsageError

LARGEST = 1 << 31


@dataclass(frozen=True)
class Chain:
    """Primes P(0) < P(1) < ... with P(i+1) = 2 P(i) + 1, below 2^31.

    The caller answers for it that they are prime. Without ``linked`` they are different primes
    without relation to each other: there is no exponential between them.

    Raises:
        UsageError: if the rule between neighbours or the range is broken.
    """

    primes: tuple[int, ...]
    linked: bool = True

    def __post_init__(self) -> None:
        if not self.primes:
            raise UsageError("a chain needs at least one prime")
        for prime in self.primes:
            if not 2 < prime < LARGEST:
                raise UsageError(f"a chain's primes lie between 3 and 2^31 - 1; {prime} does not")
        if not self.linked and len(set(self.primes)) < len(self.primes):
            raise UsageError(
                f"unlinked primes are different, and of {self.primes} two are the same"
            )
        for below, above in zip(self.primes, self.primes[1:], strict=False):
            if self.linked and above != 2 * below + 1:
                raise UsageError(
                    f"in a chain every prime is twice the one before and one more: after {below} "
                    f"comes {2 * below + 1}, not {above}"
                )

    def __len__(self) -> int:
        return len(self.primes)


_ONE = """
2147481311 2147366399 2147260631 2147161799 2147072639 2146780919 2146664519 2146607399
2146517831 2146496351 2146303871 2146229279 2146180559 2146174631 2145695639 2145509159
"""
_TWO = """
975808679 970283159 888679679 839878199 823727519 802706519 543181799 480479159 478479119
445885439 437924759 352986479 311031839 248735759 227201519
"""
_THREE = """
529609079 490810319 479486279 476516039 444050879 437924759 429549119 396876479 394834439
392071679 390750359 330810479 329489159 265465199 256903919 251891639 232792559 219218999
203090159
"""
_FOUR = """
251891639 236155919 198438239 162522359 160600439 137417279 136576439 132492359 116396279
115195079 103783679 101741639
"""
_FIRST_PRIMES: Mapping[int, tuple[int, ...]] = {
    length: tuple(map(int, text.split()))
    for length, text in enumerate((_ONE, _TWO, _THREE, _FOUR), start=1)
}


def chains_of(length: int) -> tuple[Chain, ...]:
    """Return the listed chains of ``length`` primes (1 to 4), with ``length - 1`` levels of exp.

    Raises:
        UsageError: if the length is another one.
    """
    if length not in _FIRST_PRIMES:
        raise UsageError(
            f"there are chains of {min(_FIRST_PRIMES)} to {max(_FIRST_PRIMES)} primes, not of "
            f"{length}"
        )
    return tuple(
        Chain(tuple(((first + 1) << i) - 1 for i in range(length)))
        for first in _FIRST_PRIMES[length]
    )
