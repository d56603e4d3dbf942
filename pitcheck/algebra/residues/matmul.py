"""Exact products of matrices of residues below 2^31, out of int64 or float64 arithmetic.

The size of balanced residues is below 2^30. So an int64 dot product of at most 8 terms is below 8 *
2^60 = 2^63: it cannot overflow. Longer ones go through float64. One operand is split into a low
part of size at most 2^15 and a high part of size at most 2^14 (times 2^16). A dot product of 192
terms is at most 192 * 2^15 * 2^30 < 2^52.6, and float64 holds every such integer. The two parts are
stacked, so that one GEMM does both. Batches are cut into pieces that stay in the cache through all
of these steps.

>>> from pitcheck.algebra.residues.chains import Chain
>>> from pitcheck.algebra.residues.modular import Modular
>>> product = MatrixProduct(np, Modular(np, Chain((101,))))
>>> product(np.array([[[100, 2]]]), np.array([[[3], [4]]]), low=0).tolist()
[[[5]]]
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pitcheck.algebra.residues.modular import Modular

INT64_TERMS = 8
FLOAT64_TERMS = 192
_SPLIT = 1 << 16
_CACHED = 1 << 18
"""The elements of operands and result together (2 MiB) up to which everything stays in the
second-level cache.
"""


class MatrixProduct:
    """Products of matrices modulo the primes of one chain."""

    def __init__(self, xp: Any, modular: Modular) -> None:
        self.xp = xp
        self.modular = modular

    def __call__(self, a: Any, b: Any, low: int) -> Any:
        """Return ``a @ b`` for residues of shapes (levels, ..., m, k) and (levels, ..., k, n).

        Both have equally many axes, which broadcast.
        """
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        (m, k), n = a.shape[-2:], b.shape[-1]
        size = prod(lead) * (m * k + k * n + m * n)
        if size > _CACHED and prod(lead) > 1:
            return self._in_pieces(a, b, low, lead, size)
        return self._in_int64(a, b, low) if k <= INT64_TERMS else self._in_float64(a, b, low)

    def _in_pieces(self, a: Any, b: Any, low: int, lead: tuple[int, ...], size: int) -> Any:
        """Return the product of a batch, cut along its first long axis; pieces fit the cache."""
        axis = next(i for i, extent in enumerate(lead) if extent > 1)
        piece = max(1, lead[axis] * _CACHED // size) if axis else 1
        parts = []
        for start in range(0, lead[axis], piece):
            cut = (slice(None),) * axis + (slice(start, start + piece),)
            x, y = (array[cut] if array.shape[axis] > 1 else array for array in (a, b))
            parts.append(self(x, y, low if axis else low + start))
        return self.xp.concatenate(parts, axis=axis)

    def _in_int64(self, a: Any, b: Any, low: int) -> Any:
        return self.modular.reduce(self._balanced(a, low) @ self._balanced(b, low), low)

    def _in_float64(self, a: Any, b: Any, low: int) -> Any:
        x, y = self._balanced(a, low), self._balanced(b, low)
        high = (x + (_SPLIT >> 1)) // _SPLIT
        split = self.xp.concatenate([high, x - high * _SPLIT], axis=-2).astype(np.float64)
        y = y.astype(np.float64)
        result = self._product(split[..., :FLOAT64_TERMS], y[..., :FLOAT64_TERMS, :], low)
        for start in range(FLOAT64_TERMS, a.shape[-1], FLOAT64_TERMS):
            stop = start + FLOAT64_TERMS
            result = self.modular.add(
                result, self._product(split[..., start:stop], y[..., start:stop, :], low), low
            )
        return result

    def _balanced(self, a: Any, low: int) -> Any:
        """Return representatives in [-(p-1)/2, (p-1)/2]."""
        p = self.modular.primes(low, a.shape[0], a.ndim)
        return a - p * (a > p >> 1)

    def _product(self, split: Any, y: Any, low: int) -> Any:
        """Return 2^16 times the product of the high parts plus that of the low parts, reduced.

        It is below 2^47 + 2^53 before the second reduction.
        """
        both = (split @ y).astype(np.int64)
        rows = split.shape[-2] // 2
        high = self.modular.reduce(both[..., :rows, :], low)
        high *= _SPLIT
        high += both[..., rows:, :]
        return self.modular.reduce(high, low)
