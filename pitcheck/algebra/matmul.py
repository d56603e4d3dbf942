"""Exact products of matrices of residues below 2^31, out of int64 or float64 arithmetic.

Residues are balanced first, so that their size is below 2^30. With at most 8 terms an int64 dot product is below 8 * 2^60 = 2^63: it cannot overflow. Longer
ones go through float64: one operand is split into 16 low bits (balanced, at most 2^15 in size) and the rest (at most 2^14), and a dot product of 192 terms is
at most 192 * 2^15 * 2^30 < 2^53, where float64 holds every integer. The split parts are stacked, so that one GEMM does both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pitcheck.algebra.backend import small_product

if TYPE_CHECKING:
    from pitcheck.algebra.modular import Modular

INT64_TERMS = 8
FLOAT64_TERMS = 192
_SPLIT = 16


class MatrixProduct:
    """Matrix products modulo the primes of one chain."""

    def __init__(self, xp: Any, modular: Modular) -> None:
        self.xp = xp
        self.modular = modular
        self.small = small_product(xp)

    def __call__(self, a: Any, b: Any, low: int) -> Any:
        """``a @ b`` for residues of shape (levels, ..., m, k) and (levels, ..., k, n)."""
        if self.small is not None and self.small.fits(a, b):
            return self.small(a, b, self.modular.primes(low, a.shape[0], 1))
        terms = a.shape[-1]
        x, y = self._balanced(a, low), self._balanced(b, low)
        if terms <= INT64_TERMS:
            return self.modular.reduce(x @ y, low)
        result = self._product(x[..., :FLOAT64_TERMS], y[..., :FLOAT64_TERMS, :], low)
        for start in range(FLOAT64_TERMS, terms, FLOAT64_TERMS):
            stop = start + FLOAT64_TERMS
            result = self.modular.add(result, self._product(x[..., start:stop], y[..., start:stop, :], low), low)
        return result

    def _balanced(self, a: Any, low: int) -> Any:
        """Representatives in [-(p-1)/2, (p-1)/2]."""
        p = self.modular.primes(low, a.shape[0], a.ndim)
        return a - p * (a > p >> 1)

    def _product(self, x: Any, y: Any, low: int) -> Any:
        rows = x.shape[-2]
        upper = (x + (1 << (_SPLIT - 1))) >> _SPLIT
        parts = self.xp.concatenate([upper, x - (upper << _SPLIT)], axis=-2).astype(np.float64)
        both = (parts @ y.astype(np.float64)).astype(np.int64)
        high = self.modular.reduce(both[..., :rows, :].copy(), low)
        high <<= _SPLIT
        high += both[..., rows:, :]
        return self.modular.reduce(high, low)
