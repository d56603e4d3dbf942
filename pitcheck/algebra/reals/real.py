"""The algebra of float64: the results of a plan on ordinary numbers.

NaN and infinity are those of IEEE 754.

>>> algebra = RealAlgebra(np, seed=0, trials=(0,))
>>> one, zero = algebra.constant(Fraction(1)), algebra.constant(Fraction(0))
>>> algebra.divide(one, zero).data.item()
inf
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.backend import to_host
from pitcheck.algebra.batched import Domain
from pitcheck.algebra.discrete import COMPARISONS, Discrete
from pitcheck.algebra.interface import Comparison, Kind
from pitcheck.algebra.keyed import hash_words, key_of, lane_keys, uniform_words, unit_interval
from pitcheck.algebra.shape_checks import check_matmul
from pitcheck.algebra.structure import aligned
from pitcheck.algebra.value import LEADING, Value
from pitcheck.errors import ShapeError, UnsupportedError

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _normal_quantile(x: float) -> float:
    if 0.0 < x < 1.0:
        return NormalDist().inv_cdf(x)
    return {0.0: -math.inf, 1.0: math.inf}.get(x, math.nan)


_quantile = np.vectorize(_normal_quantile, otypes=[np.float64])

_LARGEST_POWER = 1000
"""The bits of an exponent up to which it has a float64."""

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "erf": _erf,
    # (1 + erf(x / sqrt 2)) / 2 without its cancellation
    "normal_cdf": lambda x: 0.5 * _erfc(-x / math.sqrt(2.0)),
    "normal_density": lambda x: np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi),
    "normal_quantile": _quantile,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
}
"""The functions known by name, on NumPy arrays."""


class RealAlgebra(Discrete):
    """float64 numbers for trial numbers ``trials``.

    Fresh values are normal with standard deviation ``scale``. By default that is 1 / sqrt(last
    dimension) for tensors of two and more dimensions, so that products of matrices keep their size,
    and 1 for others. Squares are squares of such values (not scaled twice); nonzero ones keep a
    distance from 0. ``tolerance`` is relative to the largest finite element of both tensors, per
    trial and instance.
    """

    def __init__(
        self,
        xp: Any,
        seed: int,
        trials: Sequence[int],
        tolerance: float = 1e-9,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.xp = xp
        self.seed = seed
        self.trials = tuple(trials)
        self.tolerance = tolerance
        self.scale = scale

    @property
    def void(self) -> NDArray[np.bool_]:
        """False for every trial, shape (trials,): no trial of real numbers is ever void."""
        return np.zeros(len(self.trials), dtype=np.bool_)

    # --- making values
    def fresh(
        self, key: str, shape: Sequence[int], instances: int = 1, domain: Domain = "any"
    ) -> Value:
        xp = self.xp
        first, second = (
            unit_interval(xp, self._words(key, part, shape, instances)) for part in (0, 1)
        )
        normal = xp.sqrt(-2.0 * xp.log(first)) * xp.cos(2.0 * math.pi * second)
        scale = (
            self.scale
            if self.scale is not None
            else 1.0 / math.sqrt(shape[-1])
            if len(shape) > 1 and shape[-1]
            else 1.0
        )
        if domain == "any":
            return Value("field", normal * scale)
        apart = xp.where(normal < 0, normal - 0.125, normal + 0.125)
        return Value("field", apart * scale if domain == "nonzero" else apart * apart * scale)

    def _words(self, key: str, part: int, shape: Sequence[int], instances: int) -> Any:
        lanes = lane_keys(self.xp, key_of(self.seed, "fresh", key, part), range(1), self.trials)
        return uniform_words(self.xp, lanes, instances, shape)

    def constant(self, number: Fraction | float, kind: Kind = "field") -> Value:
        if kind != "field":
            return self._discrete_constant(number, kind)
        try:
            return Value("field", self.xp.full((1, 1, 1), float(number)))
        except OverflowError:
            digits = math.log10(abs(Fraction(number).numerator))
            raise UnsupportedError(
                f"a number of {digits:.0f} digits has no float64, so that nothing with it is "
                f"tried on real numbers"
            ) from None

    def _embedded(self, a: Value) -> Value:
        return Value("field", a.data.astype(np.float64))

    def _truncated(self, a: Value) -> Value:
        if not bool((abs(a.data) < 2.0**63).all()):
            raise UnsupportedError("NaN, infinity and numbers beyond int64 cannot be cast to int")
        return Value("int", a.data.astype(np.int64))

    # --- ring and field
    def _field(self, what: str, *operands: Value) -> None:
        for a in operands:
            if a.kind != "field":
                raise self._wrong_kind(what, a, "field")

    def _binary(self, what: str, operation: Callable[[Any, Any], Any], a: Value, b: Value) -> Value:
        if a.kind == "int":
            return self._int_binary(what, operation, a, b)
        self._field(what, a, b)
        with np.errstate(all="ignore"):
            return Value("field", self._broadcast(operation, a, b))

    def _unary(self, what: str, operation: Callable[[Any], Any], a: Value) -> Value:
        self._field(what, a)
        with np.errstate(all="ignore"):
            return Value("field", operation(a.data))

    def add(self, a: Value, b: Value) -> Value:
        return self._binary("add", self.xp.add, a, b)

    def subtract(self, a: Value, b: Value) -> Value:
        return self._binary("subtract", self.xp.subtract, a, b)

    def multiply(self, a: Value, b: Value) -> Value:
        return self._binary("multiply", self.xp.multiply, a, b)

    def negate(self, a: Value) -> Value:
        return (
            Value("int", -a.data) if a.kind == "int" else self._unary("negate", self.xp.negative, a)
        )

    def divide(self, a: Value, b: Value) -> Value:
        self._field("divide", a, b)
        return self._binary("divide", self._quotient, a, b)

    def _quotient(self, x: Any, y: Any) -> Any:
        return x / y

    def power(self, a: Value, exponent: int) -> Value:
        if exponent.bit_length() > _LARGEST_POWER:
            raise UnsupportedError(
                "a power has an exponent without a float64, so that nothing with it is tried on "
                "real numbers"
            )
        return self._unary("power", lambda x: self._powered(x, exponent), a)

    def _powered(self, x: Any, exponent: int) -> Any:
        return x ** float(exponent)

    def sum(self, a: Value, axes: Sequence[int]) -> Value:
        places = tuple(LEADING + axis for axis in axes)
        if a.kind == "int":
            return Value("int", a.data.sum(axis=places))
        return self._unary("sum", lambda x: x.sum(axis=places), a)

    def matmul(self, a: Value, b: Value) -> Value:
        self._field("matmul", a, b)
        check_matmul(self.shape(a), self.shape(b))
        return self._binary("matmul", self.xp.matmul, a, b)

    # --- beyond the ring
    def exp(self, a: Value) -> Value:
        return self._unary("exp", self.xp.exp, a)

    def log(self, a: Value) -> Value:
        return self._unary("log", self.xp.log, a)

    def sqrt(self, a: Value) -> Value:
        return self._unary("sqrt", self.xp.sqrt, a)

    def function(self, name: str, *arguments: Value) -> Value:
        known = self._functions().get(name)
        if known is None or len(arguments) != 1:
            raise UnsupportedError(
                f"the function {name!r} of {len(arguments)} arguments is not known on real "
                f"numbers; known are {', '.join(self._functions())}"
            )
        return self._unary(
            name, lambda x: self.xp.asarray(known(to_host(self.xp, x))), arguments[0]
        )

    def _functions(self) -> dict[str, Callable[[Any], Any]]:
        return FUNCTIONS

    def draw(self, stream: str, index: Value) -> Value:
        if index.kind != "int":
            raise ShapeError(f"the index of a draw is an int value, not a {index.kind} value")
        lanes = lane_keys(self.xp, key_of(self.seed, "draw", stream), range(1), self.trials)
        start = lanes.reshape(lanes.shape + (1,) * (index.rank + 1))
        return Value(
            "field",
            self._from_float(
                unit_interval(self.xp, hash_words(self.xp, start, [index.data.view(np.uint64)]))
            ),
        )

    def _from_float(self, array: Any) -> Any:
        return array

    # --- order
    def _keys(self, values: tuple[Value, ...], nan_first: bool = False) -> list[Any]:
        if any(v.kind != "field" for v in values):
            return super()._keys(values, nan_first)
        if not any(self._any_nan(v.data) for v in values):
            return [v.data for v in values]
        return [self._key(v.data, nan_first) for v in values]

    def _any_nan(self, x: Any) -> bool:
        return bool(self.xp.isnan(x).any())

    def _key(self, x: Any, nan_first: bool) -> Any:
        """Return keys of the same order, with a NaN above (or below) everything, infinities too."""
        largest = np.finfo(np.float64).max
        finite_order = self.xp.where(
            self.xp.isinf(x),
            self.xp.sign(x) * largest,
            self.xp.clip(x, -0.5 * largest, 0.5 * largest),
        )
        return self.xp.where(self.xp.isnan(x), -np.inf if nan_first else np.inf, finite_order)

    def _compare_field(self, comparison: Comparison, a: Value, b: Value) -> Value:
        outcome = self._broadcast(getattr(self.xp, COMPARISONS[comparison]), a, b)
        self._record(outcome, self.xp.zeros_like(outcome))
        return Value("bool", outcome)

    # --- comparison of results
    def differs(self, a: Value, b: Value) -> NDArray[np.bool_]:
        self._same_kind("a comparison of results", a, b)
        rank = max(a.rank, b.rank)
        x, y = aligned(a.data, rank), aligned(b.data, rank)
        if a.kind != "field":
            different = x != y
        else:
            bound = self.tolerance * self.xp.maximum(self._largest(x), self._largest(y))
            with np.errstate(all="ignore"):
                close = (abs(x - y) <= bound) | (x == y) | (self._nan(x) & self._nan(y))
            different = ~close
        host = to_host(self.xp, different[0])
        result: NDArray[np.bool_] = np.broadcast_to(host, (len(self.trials), *host.shape[1:]))
        return result

    def _largest(self, x: Any) -> Any:
        """Return the largest finite size per trial and instance, 0 for no element.

        Logical axes are kept at size 1.
        """
        finite = self.xp.where(self._finite(x), abs(x), 0.0)
        return finite.max(axis=tuple(range(LEADING, x.ndim)), keepdims=True, initial=0.0)

    def _finite(self, x: Any) -> Any:
        return self.xp.isfinite(x)

    def _nan(self, x: Any) -> Any:
        return self.xp.isnan(x)
