"""The order of residues: by the balanced representative of a fixed multiple of the top residue.

Any order of a finite field is arbitrary, but this one keeps what programs rely on: it is total, so
maximum is associative, commutative and idempotent and max + min = a + b; it is odd, so max(-a, -b)
= -min(a, b) and relu(x) - relu(-x) = x; and because x is first multiplied by a number with many
divisors, integers up to p / 1,260,000 (hundreds) and rationals between them with small denominators
(1/2, 1/10, 3/4) stand in their true order.
"""

from __future__ import annotations

from typing import Any

from pitcheck.algebra.value import NAN, NEGATIVE_INFINITY, POSITIVE_INFINITY

_SCALE = 630_000
"""2^4 3^2 5^4 7: a multiple of the denominators of common literals."""

INFINITE = 1 << 40
"""The key of infinity: beyond those of all residues."""


def scale_for(prime: int) -> int:
    """The multiplier used modulo ``prime``: one that leaves room for integers, and never 0."""
    return _SCALE if prime > 1024 * _SCALE else 1


def order_key(xp: Any, top: Any, prime: int, special: Any = None, nan_first: bool = False) -> Any:
    """Integers that compare as the residues ``top`` modulo ``prime`` do, in [-(p-1)/2, (p-1)/2].

    Infinities lie beyond; NaN lies above everything, or with ``nan_first`` below, so that both
    maximum and minimum hand it on.
    """
    key = top * scale_for(prime)
    key -= (key + prime // 2) // prime * prime
    if special is None:
        return key
    nan = -2 * INFINITE if nan_first else 2 * INFINITE
    for code, place in ((NAN, nan), (POSITIVE_INFINITY, INFINITE), (NEGATIVE_INFINITY, -INFINITE)):
        key = xp.where(special == code, place, key)
    return key
