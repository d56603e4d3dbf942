"""Values along a line, in Python integers modulo a small prime.

Every element is a list of its values at the points t = 0, 1, 2, ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

PRIME = 1000003
Array = np.ndarray[Any, Any]


class LineAlgebra:
    """Field operations on object arrays of shape (points, *shape)."""

    def __init__(self, points: int, seed: int) -> None:
        self.points = points
        self._random = np.random.default_rng(seed)

    def fresh(self, shape: Sequence[int], squared: bool = False) -> Array:
        """Return a + b t with random a, b (or its square)."""
        a, b = (self._random.integers(1, PRIME, tuple(shape)).astype(object) for _ in range(2))
        line = np.stack([np.asarray((a + b * t) % PRIME, dtype=object) for t in range(self.points)])
        return line * line % PRIME if squared else line

    def add(self, a: Array, b: Array) -> Array:
        return self._both(a, b, lambda x, y: x + y)

    def subtract(self, a: Array, b: Array) -> Array:
        return self._both(a, b, lambda x, y: x - y)

    def multiply(self, a: Array, b: Array) -> Array:
        return self._both(a, b, lambda x, y: x * y)

    def divide(self, a: Array, b: Array) -> Array:
        inverse = np.array([pow(int(x), -1, PRIME) for x in b.reshape(-1)], dtype=object).reshape(
            b.shape
        )
        return self.multiply(a, inverse)

    def power(self, a: Array, exponent: int) -> Array:
        return np.array(
            [pow(int(x), exponent, PRIME) for x in a.reshape(-1)], dtype=object
        ).reshape(a.shape)

    def _both(self, a: Array, b: Array, compute: Any) -> Array:
        rank = max(a.ndim, b.ndim)
        wide = [x.reshape(x.shape[0], *(1,) * (rank - x.ndim), *x.shape[1:]) for x in (a, b)]
        return compute(*wide) % PRIME

    def sum(self, a: Array, axes: Sequence[int]) -> Array:
        result = a
        for axis in sorted(axes, reverse=True):
            result = result.sum(axis + 1) % PRIME
        return np.asarray(result, dtype=object)

    def matmul(self, a: Array, b: Array) -> Array:
        return np.stack(
            [np.asarray(x.dot(y) % PRIME, dtype=object) for x, y in zip(a, b, strict=True)]
        )

    def reshape(self, a: Array, shape: Sequence[int]) -> Array:
        return a.reshape(a.shape[0], *shape)

    def transpose(self, a: Array, permutation: Sequence[int]) -> Array:
        return a.transpose(0, *(i + 1 for i in permutation))

    def slice(self, a: Array, axis: int, start: int, stop: int, step: int = 1) -> Array:
        return a[(slice(None), *(slice(None),) * axis, slice(start, stop, step))]

    def flip(self, a: Array, axis: int) -> Array:
        return np.flip(a, axis + 1)

    def concatenate(self, values: Sequence[Array], axis: int) -> Array:
        return np.concatenate(list(values), axis + 1)


def is_quotient(values: Sequence[int], numerator: int, denominator: int) -> bool:
    """Return True if N(t) = v(t) D(t) at t = 0, 1, 2, ... for polynomials N, D, not both 0.

    Their degrees are at most the given ones. There are some if the linear system for their
    coefficients is singular.
    """
    rows = []
    for t, value in enumerate(values):
        powers = [pow(t, k, PRIME) for k in range(max(numerator, denominator) + 1)]
        rows.append(
            [
                *powers[: numerator + 1],
                *(-value * power % PRIME for power in powers[: denominator + 1]),
            ]
        )
    unknowns = numerator + denominator + 2
    if len(rows) < unknowns:
        raise ValueError("too few points to decide")
    return rank(rows) < unknowns


def rank(rows: list[list[int]]) -> int:
    """Rank modulo the prime, by elimination."""
    left = [row[:] for row in rows]
    found = 0
    for column in range(len(left[0])):
        pivot = next((i for i in range(found, len(left)) if left[i][column]), None)
        if pivot is None:
            continue
        left[found], left[pivot] = left[pivot], left[found]
        inverse = pow(left[found][column], -1, PRIME)
        left[found] = [x * inverse % PRIME for x in left[found]]
        for i in range(found + 1, len(left)):
            factor = left[i][column]
            if factor:
                left[i] = [
                    (x - factor * y) % PRIME for x, y in zip(left[i], left[found], strict=True)
                ]
        found += 1
    return found
