"""The order of residues: by the balanced representative of a fixed multiple of the top residue.

Any order of a finite field is arbitrary, but programs can rely on this one. It is total, so maximum
is associative, commutative and idempotent, and max + min = a + b. It is odd, so max(-a, -b) =
-min(a, b) and relu(x) - relu(-x) = x. x is first multiplied by a number with many divisors. So
integers up to p / 1,260,000 (hundreds) and rationals between them with small denominators (1/2,
1/10, 3/4) stand in their true order.

>>> import numpy as np
>>> prime = 2147483647
>>> half = pow(2, -1, prime)
>>> order_key(np, np.array([prime - 1, 0, half, 1]), prime).argsort().tolist()
[0, 1, 2, 3]
"""

from __future__ import annotations

from typing import Any

from pitcheck.algebra.value import NAN, NEGATIVE_INFINITY, POSITIVE_INFINITY

_SCALE = 630_000
"""The number 2^4 3^2 5^4 7, a multiple of the denominators of common literals."""

INFINITE = 1 << 40
"""The key of infinity, beyond those of all residues."""


def scale_for(prime: int) -> int:
    """Return the multiplier used modulo ``prime``, never 0: one that leaves room for integers."""
    return _SCALE if prime > 1024 * _SCALE else 1


def key_of_nan(first: bool) -> int:
    """Return the key of NaN, below all others or above them."""
    return -2 * INFINITE if first else 2 * INFINITE


def order_key(xp: Any, top: Any, prime: int, special: Any = None, nan_first: bool = False) -> Any:
    """Return integers in [-(p-1)/2, (p-1)/2] that compare as the residues ``top`` do.

    They have the shape of ``top``. Infinities lie beyond; NaN lies above everything, or with
    ``nan_first`` below, so that both maximum and minimum hand it on.
    """
    key = top * scale_for(prime)
    key -= (key + prime // 2) // prime * prime
    if special is None:
        return key
    nan = key_of_nan(nan_first)
    for code, place in ((NAN, nan), (POSITIVE_INFINITY, INFINITE), (NEGATIVE_INFINITY, -INFINITE)):
        key = xp.where(special == code, place, key)
    return key
