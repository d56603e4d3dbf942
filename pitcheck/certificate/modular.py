"""Plain arithmetic modulo primes between 2^30 and 2^31, on NumPy's 64-bit integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.certificate.forms import LEAST_PRIME, LEVELS, PRIME_LIMIT

Array = NDArray[Any]
_HALF = 16
_MOST_TERMS = 1 << 20


def is_prime(number: int) -> bool:
    """Return True for a prime below 2^32 (Miller and Rabin; these bases decide there)."""
    if number < 2 or any(number % small == 0 for small in (2, 3, 5, 7, 61) if number != small):
        return False
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 7, 61):
        power = pow(base, odd, number)
        if base % number == 0 or power in (1, number - 1):
            continue
        if not any((power := power * power % number) == number - 1 for _ in range(twos - 1)):
            return False
    return True


def draw_primes(generator: np.random.Generator) -> Array:
    """Return different primes, drawn uniformly, shape (levels,)."""
    found: list[int] = []
    while len(found) < LEVELS:
        number = int(generator.integers(LEAST_PRIME, PRIME_LIMIT)) | 1
        if number not in found and is_prime(number):
            found.append(number)
    return np.array(found, dtype=np.int64)


def inverse(a: Array, primes: Array) -> Array:
    """Return the inverses of residues other than 0, by Fermat's theorem."""
    result, power, exponent = np.ones_like(a), a % primes, primes - 2
    for bit in range(31):
        result = np.where((exponent >> bit) & 1, result * power % primes, result)
        power = power * power % primes
    return result


def matmul(a: Array, b: Array, primes: Array) -> Array:
    """Return the product of matrices of residues; sums of halves are exact in float64.

    Raises:
        OverflowError: more terms are added than float64 holds exactly.
    """
    if a.shape[-1] > _MOST_TERMS:
        raise OverflowError(f"a product of matrices adds up {a.shape[-1]} terms")
    mask = (1 << _HALF) - 1
    (a1, a0), (b1, b0) = (
        ((x >> _HALF).astype(np.float64), (x & mask).astype(np.float64)) for x in (a, b)
    )
    high, low = (np.matmul(x, y).astype(np.int64) % primes for x, y in ((a1, b1), (a0, b0)))
    middle = (np.matmul(a1, b0) + np.matmul(a0, b1)).astype(np.int64) % primes
    shift = np.int64(1 << _HALF)
    result: Array = ((high * shift + middle) % primes * shift + low) % primes
    return result
