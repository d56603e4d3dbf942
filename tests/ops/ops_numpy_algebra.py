"""A plain float64 algebra, as a second opinion on the operators' formulas.

It shares no code with the algebras of the package.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np

from pitcheck.algebra.interface import Comparison, Kind

Array = np.ndarray[Any, Any]


class NumpyAlgebra:
    """Every operation as the NumPy function of the same meaning.

    There are no trials, ranks or levels.
    """

    dtypes: ClassVar[dict[str, Any]] = {"field": np.float64, "int": np.int64, "bool": np.bool_}

    def shape(self, a: Array) -> tuple[int, ...]:
        return a.shape

    def kind(self, a: Array) -> Kind:
        return "bool" if a.dtype == np.bool_ else "int" if a.dtype == np.int64 else "field"

    def constant(self, number: Fraction | float, kind: Kind = "field") -> Array:
        return np.array(float(number) if kind == "field" else int(number), dtype=self.dtypes[kind])

    def extent(self, a: Array, axes: Sequence[int]) -> Array:
        return np.array(float(math.prod(a.shape[i] for i in axes)))

    def arange(self, like: Array, axis: int) -> Array:
        return np.arange(like.shape[axis], dtype=np.int64)

    def boundary(self, like: Array, axis: int, offset: int) -> Array:
        return np.array(int(offset), dtype=np.int64)

    def _same(self, a: Array, b: Array) -> None:
        assert self.kind(a) == self.kind(b), (a.dtype, b.dtype)

    def add(self, a: Array, b: Array) -> Array:
        self._same(a, b)
        return np.asarray(a + b)

    def subtract(self, a: Array, b: Array) -> Array:
        self._same(a, b)
        with np.errstate(invalid="ignore"):
            return np.asarray(a - b)

    def multiply(self, a: Array, b: Array) -> Array:
        self._same(a, b)
        return np.asarray(a * b)

    def negate(self, a: Array) -> Array:
        return np.asarray(-a)

    def divide(self, a: Array, b: Array) -> Array:
        assert self.kind(a) == self.kind(b) == "field"
        with np.errstate(all="ignore"):
            return np.asarray(a / b)

    def power(self, a: Array, exponent: int) -> Array:
        return np.asarray(a**exponent if exponent >= 0 else 1.0 / a**-exponent)

    def sum(self, a: Array, axes: Sequence[int]) -> Array:
        assert a.dtype != np.bool_
        return np.asarray(a.sum(axis=tuple(axes)))

    def matmul(self, a: Array, b: Array) -> Array:
        assert a.ndim >= 2 and b.ndim >= 2
        return np.asarray(a @ b)

    def reshape(self, a: Array, shape: Sequence[int]) -> Array:
        assert all(n >= 0 for n in shape)
        return np.asarray(a.reshape(tuple(shape)))

    def transpose(self, a: Array, permutation: Sequence[int]) -> Array:
        assert sorted(permutation) == list(range(a.ndim))
        return a.transpose(tuple(permutation))

    def expand(self, a: Array, shape: Sequence[int]) -> Array:
        return np.broadcast_to(a, tuple(shape))

    def slice(self, a: Array, axis: int, start: int, stop: int, step: int = 1) -> Array:
        assert 0 <= start <= stop <= a.shape[axis] and step >= 1 and axis >= 0
        return a[(slice(None),) * axis + (slice(start, stop, step),)]

    def concatenate(self, values: Sequence[Array], axis: int) -> Array:
        assert axis >= 0
        for v in values:
            self._same(values[0], v)
        return np.concatenate(values, axis)

    def flip(self, a: Array, axis: int) -> Array:
        assert axis >= 0
        return np.flip(a, axis)

    def take(self, a: Array, axis: int, indices: Array) -> Array:
        assert axis >= 0 and indices.dtype == np.int64 and (indices >= 0).all()
        return np.take(a, indices, axis)

    def add_at(self, base: Array, axis: int, indices: Array, source: Array) -> Array:
        result = base.copy()
        np.add.at(result, (slice(None),) * axis + (indices,), source)
        return result

    def take_along(self, a: Array, axis: int, indices: Array) -> Array:
        assert (indices >= 0).all()
        return np.take_along_axis(a, indices, axis)

    def add_along(self, base: Array, axis: int, indices: Array, source: Array) -> Array:
        assert indices.shape == source.shape
        result = base.copy()
        places = list(np.indices(indices.shape))
        places[axis] = indices
        np.add.at(result, tuple(places), source)
        return result

    def exp(self, a: Array) -> Array:
        return np.asarray(np.exp(a))

    def log(self, a: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(np.log(a))

    def sqrt(self, a: Array) -> Array:
        return np.asarray(np.sqrt(a))

    def function(self, name: str, *arguments: Array) -> Array:
        functions = {
            "erf": math.erf,
            "sin": math.sin,
            "cos": math.cos,
            "normal_cdf": lambda x: 0.5 * (1 + math.erf(x / math.sqrt(2))),
            "normal_quantile": NormalDist().inv_cdf,
            "normal_density": lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi),
        }
        return np.asarray(np.vectorize(functions[name], otypes=[np.float64])(*arguments))

    def draw(self, stream: str, index: Array) -> Array:
        seed = sum(ord(c) * 31**i for i, c in enumerate(stream))
        return np.asarray(
            np.vectorize(
                lambda i: np.random.default_rng([seed, int(i)]).random(), otypes=[np.float64]
            )(index)
        )

    def compare(self, comparison: Comparison, a: Array, b: Array) -> Array:
        self._same(a, b)
        functions = {
            "eq": np.equal,
            "ne": np.not_equal,
            "lt": np.less,
            "le": np.less_equal,
            "gt": np.greater,
            "ge": np.greater_equal,
        }
        return np.asarray(functions[comparison](a, b))

    def where(self, condition: Array, a: Array, b: Array) -> Array:
        assert condition.dtype == np.bool_
        self._same(a, b)
        return np.where(condition, a, b)

    def logical_and(self, a: Array, b: Array) -> Array:
        assert a.dtype == b.dtype == np.bool_
        return np.asarray(a & b)

    def logical_or(self, a: Array, b: Array) -> Array:
        assert a.dtype == b.dtype == np.bool_
        return np.asarray(a | b)

    def logical_not(self, a: Array) -> Array:
        assert a.dtype == np.bool_
        return np.asarray(~a)

    def maximum(self, a: Array, b: Array) -> Array:
        self._same(a, b)
        return np.asarray(np.maximum(a, b))

    def minimum(self, a: Array, b: Array) -> Array:
        self._same(a, b)
        return np.asarray(np.minimum(a, b))

    def reduce_max(self, a: Array, axis: int) -> Array:
        return np.asarray(a.max(axis))

    def shift(self, a: Array, axis: int) -> Array:
        return np.asarray(a.max(axis))

    def reduce_min(self, a: Array, axis: int) -> Array:
        return np.asarray(a.min(axis))

    def order(self, a: Array, axis: int, descending: bool) -> Array:
        return np.argsort(-a if descending else a, axis=axis, kind="stable")

    def floor_divide(self, a: Array, b: Array) -> Array:
        assert a.dtype == b.dtype == np.int64
        return np.asarray(a // b)

    def remainder(self, a: Array, b: Array) -> Array:
        assert a.dtype == b.dtype == np.int64
        return np.asarray(a % b)

    def cast(self, a: Array, kind: Kind) -> Array:
        return (a != 0) if kind == "bool" else a.astype(self.dtypes[kind])
