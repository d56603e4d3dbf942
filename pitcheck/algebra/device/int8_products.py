"""Large products of residues on the int8 tensor cores of a GPU (``kernels/int8_digits.cu``).

A residue has four balanced digits in base 256. The sixteen products of digits are seven GEMMs of
int8 with int32 sums, one for each diagonal.

>>> run(0), run(3)
(Run(first=0, second=3, digits=1), Run(first=0, second=0, digits=4))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pitcheck.algebra.device.kernels import Kernels
from pitcheck.algebra.device.layouts import grid_of

DIGITS = 4
DIAGONALS = 2 * DIGITS - 1
MOST_TERMS = 1 << 14
"""The terms of a GEMM at once: sums of 4 * 2^14 products of 2^14 are at most 2^30 in size."""
WORKSPACE = 1 << 31
"""The bytes of the diagonals that are held at a time, where a single row does not take more."""
_PADDED = 16
"""The multiple that tensor cores want of every size."""

Gemm = Callable[[Any, int, Any, int, Any, tuple[int, int, int, int]], None]
"""A function (a, first place, b, first place, out, (m, n, k, row length)) that writes a @ b^T."""


class Run(NamedTuple):
    """The digits of a diagonal: the first of one operand, the first of the other, how many."""

    first: int
    second: int
    digits: int


def run(diagonal: int) -> Run:
    """Return the digits whose places sum to ``diagonal``; those of the other are reversed."""
    first = max(0, diagonal - DIGITS + 1)
    return Run(first, max(DIGITS - 1 - diagonal, 0), min(diagonal, DIGITS - 1) - first + 1)


class Int8Product:
    """Products modulo primes as seven GEMMs of int8. ``gemm`` computes them, cuBLAS if None."""

    def __init__(
        self, kernels: Kernels, gemm: Gemm | None = None, workspace: int = WORKSPACE
    ) -> None:
        self.kernels = kernels
        self.xp = kernels.xp
        self.workspace = workspace
        self._gemm = gemm or _cublas

    def __call__(self, a: Any, b: Any, primes: Sequence[int]) -> Any:
        """Return ``a @ b`` modulo ``primes``, int64 residues.

        The operands have shapes (levels, ..., m, k) and (levels, ..., k, n), and their ...
        broadcast. Each is below the prime of its level.
        """
        xp = self.xp
        shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        out = xp.empty((*shape, a.shape[-2], b.shape[-1]), dtype=np.int64)
        x, y = (xp.broadcast_to(array, shape + array.shape[-2:]) for array in (a, b))
        for place in np.ndindex(*shape):
            self._product(x[place], y[place], primes[place[0]], out[place])
        return out

    def _product(self, a: Any, b: Any, p: int, out: Any) -> None:
        """Write ``a @ b`` modulo ``p`` into ``out``: shapes (m, k), (k, n) and (m, n), with k > 0.

        Terms and rows are taken in pieces: sums must be exact, and diagonals fit the workspace.
        """
        rows = max(_PADDED, self.workspace // (4 * DIAGONALS * max(1, b.shape[1])))
        for first in range(0, a.shape[1], MOST_TERMS):
            terms = slice(first, first + MOST_TERMS)
            second = self._digits(b[terms].T, p, 1)
            for top in range(0, a.shape[0], rows):
                part = slice(top, top + rows)
                self._add(self._digits(a[part, terms], p, 0), second, p, out[part], first > 0)

    def _add(self, first: Any, second: Any, p: int, out: Any, add: bool) -> None:
        """Write or add the product modulo ``p`` of operands given by their digits."""
        rows, columns, length = first.shape[0], second.shape[0], first.shape[2]
        diagonals = self.xp.empty((DIAGONALS, rows, columns), dtype=np.int32)
        for diagonal in range(DIAGONALS):
            each = run(diagonal)
            sizes = rows, columns, each.digits * length, DIGITS * length
            places = each.first * length, each.second * length
            self._gemm(first, places[0], second, places[1], diagonals[diagonal], sizes)
        numbers = [np.int64(n) for n in (p, *out.shape, rows, columns)]
        arguments = (diagonals, out, *numbers, np.int32(add))
        self.kernels.run("join_digits", grid_of(out.size, 1), arguments)

    def _digits(self, matrix: Any, p: int, reverse: int) -> Any:
        """Return the digits of a matrix, int8 of shape (padded rows, 4, padded terms)."""
        rows, terms = matrix.shape
        padded = [-(-n // _PADDED) * _PADDED for n in (rows, terms)]
        digits = self.xp.empty((padded[0], DIGITS, padded[1]), dtype=np.int8)
        strides = [stride // matrix.itemsize for stride in matrix.strides]
        numbers = [np.int64(n) for n in (p, rows, terms, *strides, *padded)]
        arguments = (matrix, digits, *numbers, np.int32(reverse))
        self.kernels.run("split_digits", grid_of(padded[0] * padded[1], 1), arguments)
        return digits


def _cublas(
    a: Any, a_place: int, b: Any, b_place: int, out: Any, sizes: tuple[int, int, int, int]
) -> None:
    """Write a @ b^T by cuBLAS, which counts in columns: to it this is b^T' a."""
    from cupy.cuda import cublas, device  # noqa: PLC0415  CuPy is an extra

    rows, columns, terms, length = sizes
    one, zero = np.ones(1, np.int32), np.zeros(1, np.int32)
    cublas.gemmEx(
        device.get_cublas_handle(),
        cublas.CUBLAS_OP_T,
        cublas.CUBLAS_OP_N,
        columns,
        rows,
        terms,
        one.ctypes.data,
        b.data.ptr + b_place,
        _INT8,
        length,
        a.data.ptr + a_place,
        _INT8,
        length,
        zero.ctypes.data,
        out.data.ptr,
        _INT32,
        columns,
        _COMPUTE_INT32,
        _ANY_TENSOR_CORE,
    )


_INT8, _INT32 = 3, 10
"""CUDA_R_8I and CUDA_R_32I of library_types.h."""
_COMPUTE_INT32 = 72
"""CUBLAS_COMPUTE_32I of cublas_api.h."""
_ANY_TENSOR_CORE = 99
"""CUBLAS_GEMM_DEFAULT_TENSOR_OP of cublas_api.h."""
