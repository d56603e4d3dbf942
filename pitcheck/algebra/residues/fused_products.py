"""Products of small matrices of residues on a GPU, in one kernel instead of a dozen launches.

>>> import numpy as np
>>> a, b = np.zeros((1, 8, LARGEST)), np.zeros((1, LARGEST, 2))
>>> FusedProduct.fits(a, b), FusedProduct.fits(b, np.zeros((1, 2, LARGEST + 1)))
(True, False)
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from pitcheck.resources import shipped

LARGEST = 64
"""The most terms and columns of matrices for the kernel: larger ones are faster as float64 GEMMs.
"""

_THREADS = 256
_BLOCKS = 1 << 16


class FusedProduct:
    """``kernels/modular_matmul.cu`` behind array shapes; ``xp`` is cupy."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        source = (shipped("kernels", "kernels") / "modular_matmul.cu").read_text()
        self.kernel = xp.RawModule(code=source).get_function("modular_matmul")

    @staticmethod
    def fits(a: Any, b: Any) -> bool:
        """Return True if the product of these arrays is a matrix small enough for the kernel."""
        return bool(
            0 < a.shape[-1] <= LARGEST and b.shape[-1] <= LARGEST and a.shape[-2] <= LARGEST
        )

    def __call__(self, a: Any, b: Any, primes: Any) -> Any:
        """Return ``a @ b`` modulo ``primes`` (levels,), int64 residues.

        The operands have shapes (levels, ..., m, k) and (levels, ..., k, n), and their ...
        broadcast.
        """
        xp = self.xp
        levels, m, k, n = a.shape[0], a.shape[-2], a.shape[-1], b.shape[-1]
        lead = np.broadcast_shapes(a.shape[1:-2], b.shape[1:-2])
        out = xp.empty((levels, *lead, m, n), dtype=np.uint32)
        if out.size == 0:
            return out.astype(np.int64)
        pairs = [self._pairs(array.shape[1:-2], lead) for array in (a, b)]
        arrays = [xp.ascontiguousarray(array, dtype=np.uint32) for array in (a, b)]
        sizes = [
            np.int64(v) for v in (prod(a.shape[1:-2]), prod(b.shape[1:-2]), prod(lead), levels)
        ] + [np.int32(v) for v in (m, k, n)]
        blocks = min(_BLOCKS, -(-out.size // _THREADS))
        self.kernel(
            (blocks,), (_THREADS,), (*arrays, out, *pairs, primes.astype(np.uint64), *sizes)
        )
        return out.astype(np.int64)

    def _pairs(self, shape: tuple[int, ...], lead: tuple[int, ...]) -> Any:
        """Return the number of the matrix that each entry of the broadcast batch uses."""
        own = self.xp.arange(prod(shape), dtype=np.int64).reshape(shape)
        return self.xp.ascontiguousarray(self.xp.broadcast_to(own, lead)).reshape(-1)
