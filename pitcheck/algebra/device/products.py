"""Products of matrices of residues on a GPU: small ones in one launch, large ones as GEMMs.

Tensor cores multiply int8 so much faster than float64 that the largest products are made of int8
(:mod:`pitcheck.algebra.device.int8_products`), and those between of float64.
``kernels/modular_matmul.cu`` says why these are exact. A product of float64 takes three launches
for each piece that fits the memory set aside: two that split residues into exact float64 numbers,
one of them for all pieces of a matrix, the GEMMs, and one that joins the parts modulo the primes.

>>> chunks_of(8192)
(24, 344)
>>> chunks_of(100)
(1, 104)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.device.int8_products import Int8Product
from pitcheck.algebra.device.kernels import Kernels
from pitcheck.algebra.device.layouts import Operand, Plan, grid_of, planned

SMALL = 64
"""The most rows, terms and columns of matrices that are multiplied without float64."""
MOST_TERMS = 352
"""The terms of a dot product that float64 adds up exactly; a multiple of 8."""
LARGE = 1 << 30
"""The multiply-adds of a product from which on int8 was faster than float64 (docs/gpu.md)."""
WORKSPACE = 1 << 31
"""The bytes of float64 numbers that are held at a time, where a single row does not take more."""
_TILE = 64
"""The rows of a piece are a multiple, if they are more: GEMMs work by tiles."""

MATRIX = np.dtype(
    [("rows", np.uint64), ("columns", np.uint64), ("row", np.int64), ("column", np.int64)]
)


def chunks_of(terms: int) -> tuple[int, int]:
    """Return into how many chunks the terms are cut, and the terms of one, a multiple of 8."""
    chunks = -(-terms // MOST_TERMS)
    return chunks, -(-terms // (8 * chunks)) * 8


def _matrix(array: Any) -> NDArray[np.void]:
    size = array.dtype.itemsize
    row, column = (stride // size for stride in array.strides[-2:])
    return np.array([(*array.shape[-2:], row, column)], dtype=MATRIX)


def _batch(array: Any) -> Operand:
    """Return the operand of a batch of matrices, whose last two axes are left to the kernel."""
    return Operand(array.shape[:-2], array.strides[:-2], array.dtype.itemsize)


class DeviceProduct:
    """Products of matrices modulo primes."""

    def __init__(self, kernels: Kernels, workspace: int = WORKSPACE) -> None:
        self.kernels = kernels
        self.xp = kernels.xp
        self.workspace = workspace
        self._int8 = Int8Product(kernels)

    def __call__(self, a: Any, b: Any, primes: NDArray[np.void]) -> Any:
        """Return ``a @ b`` for int64 residues, (levels, ..., m, k) and (levels, ..., k, n).

        The axes ... broadcast. ``primes`` are those of the levels.

        Raises:
            ValueError: if the shapes do not fit.
        """
        if a.shape[-1] != b.shape[-2]:
            raise ValueError(f"matrices of shapes {a.shape} and {b.shape} have no product")
        (m, k), n = a.shape[-2:], b.shape[-1]
        plan = planned((_batch(a), _batch(b)))
        if plan.layout is None:
            a, b = (self._copied(x, plan.shape) for x in (a, b))
            plan = planned((_batch(a), _batch(b)))
        shape = (*plan.shape, m, n)
        if not prod(shape) or not k:
            return self.xp.zeros(shape, dtype=np.int64)
        if max(m, k, n) <= SMALL:
            return self._small(a, b, plan, primes)
        a, b = _folded(a, b)
        if a.shape[-2] * k * n >= LARGE:
            members = [int(p) for p in primes["of"][0, : plan.shape[0], 0]]
            return self._int8(a, b, members).reshape(shape)
        return self._large(a, b, primes).reshape(shape)

    def _copied(self, x: Any, lead: tuple[int, ...]) -> Any:
        full = self.xp.broadcast_to(x, (x.shape[0], *lead[1:], *x.shape[-2:]))
        return self.xp.ascontiguousarray(full)

    def _small(self, a: Any, b: Any, plan: Plan, primes: NDArray[np.void]) -> Any:
        out = self.xp.empty((*plan.shape, a.shape[-2], b.shape[-1]), dtype=np.int64)
        tiles = -(-a.shape[-2] // 2) * -(-b.shape[-1] // 2)
        self.kernels.run(
            "modular_matmul",
            grid_of(plan.size * tiles, plan.shape[0]),
            (a, b, out, plan.layout, _matrix(a), _matrix(b), primes),
        )
        return out

    def _large(self, a: Any, b: Any, primes: NDArray[np.void]) -> Any:
        """Return the product of batches that broadcast, (levels * batch, m, n), piece by piece."""
        plan = planned((_batch(a), _batch(b)))
        entries, n = plan.shape[0] * plan.size, b.shape[-1]
        out = self.xp.empty((entries, a.shape[-2], n), dtype=np.int64)
        at_once, rows, columns = self._pieces(entries, a.shape[-2], a.shape[-1], n)
        for first in range(0, entries, at_once):
            piece = _Piece(first, min(at_once, entries - first), plan.size, *chunks_of(a.shape[-1]))
            target = out[first : first + piece.entries]
            for start in range(0, n, columns):
                behind = b[..., start : start + columns]
                right = self._split("split_right", behind, a, primes, piece)
                for top in range(0, a.shape[-2], rows):
                    left = self._split("split_left", a[..., top : top + rows, :], b, primes, piece)
                    place = target[:, top : top + rows, start : start + columns]
                    self._join(self.xp.matmul(left, right), place, primes, piece)
        return out

    def _pieces(self, entries: int, m: int, k: int, n: int) -> tuple[int, int, int]:
        """Return how many entries, rows and columns are multiplied at a time."""
        chunks, terms = chunks_of(k)
        of_column, of_row = 8 * chunks * terms, 16 * chunks * terms
        whole = m * of_row + n * of_column + 16 * chunks * m * n
        if whole <= self.workspace:
            return min(entries, self.workspace // whole), m, n
        columns = max(1, min(n, self.workspace // 2 // of_column))
        rows = (self.workspace - columns * of_column) // (of_row + 16 * chunks * columns)
        return 1, max(1, min(m, rows // _TILE * _TILE if rows > _TILE else rows)), columns

    def _split(self, name: str, x: Any, other: Any, primes: NDArray[np.void], piece: _Piece) -> Any:
        """Return float64 parts of the matrices of some entries, (entries * chunks, ...)."""
        plan = planned((_batch(x), _batch(other)))
        left = name == "split_left"
        size = (x.shape[-2], piece.terms) if left else (piece.terms, x.shape[-1])
        batch = piece.entries * piece.chunks
        out = self.xp.empty((batch, (1 + left) * size[0], size[1]), dtype=np.float64)
        numbers = map(np.uint64, (piece.first, piece.entries, piece.chunks, piece.terms))
        self.kernels.run(
            name,
            grid_of(prod(size), batch),
            (x, out, plan.layout, _matrix(x), primes, *numbers),
        )
        return out

    def _join(self, products: Any, target: Any, primes: NDArray[np.void], piece: _Piece) -> None:
        _, rows, columns = target.shape
        apart, step, _ = (stride // target.dtype.itemsize for stride in target.strides)
        sizes = (piece.first, piece.entries, piece.batch, piece.chunks)
        numbers = map(np.uint64, (*sizes, rows * columns, columns, step, apart))
        self.kernels.run(
            "join_products",
            grid_of(rows * columns, piece.entries),
            (products, target, primes, *numbers),
        )


@dataclass(frozen=True)
class _Piece:
    """Entries that are multiplied at a time, counted over all levels, and how terms are cut.

    ``batch`` is the number of entries of one level.
    """

    first: int
    entries: int
    batch: int
    chunks: int
    terms: int


def _folded(a: Any, b: Any) -> tuple[Any, Any]:
    """Return operands of the same product with fewer matrices, if all are multiplied by one.

    Then their rows become the rows of one matrix: the GEMM is larger, and b is split once.
    """
    if prod(b.shape[1:-2]) != 1 or prod(a.shape[1:-2]) == 1:
        return a, b
    levels = a.shape[0]
    return (
        a.reshape(levels, 1, -1, a.shape[-1]),
        b.reshape(b.shape[0], 1, *b.shape[-2:]),
    )
