"""NumPy arrays as an independent judge of shapes, with the operations that these tests use."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class NumpyShapes:
    """Operations of the algebra on arrays of float64; NumPy raises where shapes do not fit."""

    def shape(self, a: Array) -> tuple[int, ...]:
        return a.shape

    def kind(self, a: Array) -> str:
        return {"f": "field", "i": "int", "b": "bool"}[a.dtype.kind]

    def constant(self, number: Fraction | float, kind: str = "field") -> Array:
        return np.array({"field": float, "int": int, "bool": bool}[kind](number))

    def add(self, a: Array, b: Array) -> Array:
        return a + b

    def multiply(self, a: Array, b: Array) -> Array:
        return a * b

    def matmul(self, a: Array, b: Array) -> Array:
        return a @ b

    def sum(self, a: Array, axes: Sequence[int]) -> Array:
        return a.sum(tuple(axes))

    def reshape(self, a: Array, shape: Sequence[int]) -> Array:
        return a.reshape(tuple(shape))

    def transpose(self, a: Array, permutation: Sequence[int]) -> Array:
        return a.transpose(tuple(permutation))

    def expand(self, a: Array, shape: Sequence[int]) -> Array:
        return np.broadcast_to(a, tuple(shape))

    def slice(self, a: Array, axis: int, start: int, stop: int, step: int = 1) -> Array:
        assert 0 <= start <= stop <= a.shape[axis]
        index: list[Any] = [slice(None)] * a.ndim
        index[axis] = slice(start, stop, step)
        return a[tuple(index)]

    def concatenate(self, values: Sequence[Array], axis: int) -> Array:
        return np.concatenate(list(values), axis)

    def flip(self, a: Array, axis: int) -> Array:
        return np.flip(a, axis)
