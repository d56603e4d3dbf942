"""Exact products of matrices of residues below 2^31, out of int64 or float64 arithmetic.

With balanced residues, whose size is below 2^30, an int64 dot product of at most 8 terms is below 8 * 2^60 = 2^63: it cannot overflow. Longer ones go through
float64: one operand is split into a low part of size at most 2^15 and a high part of size at most 2^14 (times 2^16), and a dot product of 192 terms is at most
192 * 2^15 * 2^30 < 2^52.6, where float64 holds every integer. The two parts are stacked, so that one GEMM does both.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from pitcheck.algebra.backend import small_product

if TYPE_CHECKING:
    from pitcheck.algebra.modular import Modular

INT64_TERMS = 8
FLOAT64_TERMS = 192
_SPLIT = 2.0**16
_CACHED = 1 << 18
"""Elements of operands and result together (2 MiB) up to which everything stays in the second-level cache."""


class MatrixProduct:
    """Matrix products modulo the primes of one chain."""

    def __init__(self, xp: Any, modular: Modular) -> None:
        self.xp = xp
        self.modular = modular
        self.small = small_product(xp)
        self._floats: dict[tuple[int, int, int], tuple[Any, Any]] = {}

    def __call__(self, a: Any, b: Any, low: int) -> Any:
        """``a @ b`` for residues of shapes (levels, ..., m, k) and (levels, ..., k, n) with equally many axes, which broadcast."""
        if self.small is not None and self.small.fits(a, b):
            return self.small(a, b, self.modular.primes(low, a.shape[0], 1))
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        (m, k), n = a.shape[-2:], b.shape[-1]
        size = prod(lead) * (m * k + k * n + m * n)
        if size > _CACHED and prod(lead) > 1:
            return self._in_pieces(a, b, low, lead, size)
        return self._in_int64(a, b, low) if k <= INT64_TERMS else self._in_float64(a, b, low)

    def _in_pieces(self, a: Any, b: Any, low: int, lead: tuple[int, ...], size: int) -> Any:
        """The batch cut into pieces that fit the cache, along its first axis that can be cut."""
        axis = next(i for i, extent in enumerate(lead) if extent > 1)
        piece = max(1, lead[axis] * _CACHED // size) if axis else 1
        parts = []
        for start in range(0, lead[axis], piece):
            cut = (slice(None),) * axis + (slice(start, start + piece),)
            x, y = (array[cut] if array.shape[axis] > 1 else array for array in (a, b))
            parts.append(self(x, y, low if axis else low + start))
        return self.xp.concatenate(parts, axis=axis)

    def _in_int64(self, a: Any, b: Any, low: int) -> Any:
        p = self.modular.primes(low, a.shape[0], a.ndim)
        return self.modular.reduce((a - p * (a > p >> 1)) @ (b - p * (b > p >> 1)), low)

    def _in_float64(self, a: Any, b: Any, low: int) -> Any:
        """Reduction in float64 too: the quotient's rounding error is far below 1, so a remainder is off by at most one p, put right at the end."""
        p, inverse = self._primes(low, a.shape[0], a.ndim)
        split, y = self._split(self._balanced(a, p)), self._balanced(b, p)
        result = self._product(split[..., :FLOAT64_TERMS], y[..., :FLOAT64_TERMS, :], p, inverse)
        for start in range(FLOAT64_TERMS, a.shape[-1], FLOAT64_TERMS):
            stop = start + FLOAT64_TERMS
            result += self._product(split[..., start:stop], y[..., start:stop, :], p, inverse)
            self._reduce(result, p, inverse)
        result += p * (result < 0)
        result -= p * (result >= p)
        return result.astype(np.int64)

    def _primes(self, low: int, count: int, ndim: int) -> tuple[Any, Any]:
        found = self._floats.get((low, count, ndim))
        if found is None:
            p = self.modular.primes(low, count, ndim).astype(np.float64)
            found = self._floats[low, count, ndim] = (p, 1.0 / p)
        return found

    def _balanced(self, a: Any, p: Any) -> Any:
        """Representatives of size at most (p - 1) / 2, as float64."""
        x = a.astype(np.float64)
        x -= p * (x > 0.5 * p)
        return x

    def _split(self, x: Any) -> Any:
        """High parts above low parts: x = 2^16 high + low, stacked along the rows."""
        high = self.xp.rint(x * (1.0 / _SPLIT))
        return self.xp.concatenate([high, x - high * _SPLIT], axis=-2)

    def _product(self, split: Any, y: Any, p: Any, inverse: Any) -> Any:
        both = split @ y
        rows = split.shape[-2] // 2
        result = self._reduce(both[..., :rows, :], p, inverse)
        result *= _SPLIT
        result += both[..., rows:, :]
        return self._reduce(result, p, inverse)

    def _reduce(self, t: Any, p: Any, inverse: Any) -> Any:
        """t minus a multiple of p, between -p and 2 p, for whole t of size below 2^53; overwrites ``t``."""
        quotient = t * inverse
        self.xp.floor(quotient, out=quotient)
        quotient *= p
        t -= quotient
        return t
