"""The algebra of real numbers with many decimal digits (mpmath).

It confirms differences that float64 cannot tell.

>>> algebra = PreciseAlgebra(digits=60)
>>> third = algebra.divide(algebra.constant(Fraction(1)), algebra.constant(Fraction(3)))
>>> algebra.context.nstr(third.data.item(), 30)
'0.333333333333333333333333333333'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import mpmath
import numpy as np

from pitcheck.algebra.interface import Kind
from pitcheck.algebra.reals.real import RealAlgebra
from pitcheck.algebra.value import LEADING, Value
from pitcheck.errors import UnsupportedError

_GUARD = 10
"""The digits that rounding may use up before two results count as different."""
_MOST_BITS = 2048
"""The bits before the point of what functions are taken of: twice those of float64. mpmath has no
overflow: of an exponential of an exponential it would compute all digits before the point.
"""


class PreciseAlgebra(RealAlgebra):
    """Numbers of ``digits`` decimal digits in object arrays.

    Fresh values are those of RealAlgebra with the same seed and trials, taken exactly.
    ``tolerance`` is 10^(10 - digits), relative to the largest element of both tensors.
    """

    def __init__(
        self,
        digits: int = 60,
        seed: int = 0,
        trials: Sequence[int] = (0,),
    ) -> None:
        super().__init__(np, seed, trials, 10.0 ** (_GUARD - digits))
        self.context = mpmath.MPContext()
        self.context.dps = digits
        self._known = self._by_name()
        number = self.context.mpf
        self._to_number = np.frompyfunc(number, 1, 1)
        self._is_nan = np.frompyfunc(self.context.isnan, 1, 1)
        self._is_infinite = np.frompyfunc(self.context.isinf, 1, 1)

    def _by_name(self) -> Mapping[str, Callable[[Any], Any]]:
        c = self.context
        functions: dict[str, Callable[[Any], Any]] = {
            "exp": c.exp,
            "erf": c.erf,
            "normal_cdf": lambda x: c.erfc(-x / c.sqrt(2)) / 2,
            "normal_density": lambda x: c.exp(-x * x / 2) / c.sqrt(2 * c.pi),
            "normal_quantile": lambda x: c.sqrt(2) * c.erfinv(2 * x - 1) if 0 <= x <= 1 else c.nan,
            "sin": c.sin,
            "cos": c.cos,
            "tan": c.tan,
            "floor": c.floor,
            "ceil": c.ceil,
            "round": c.nint,
        }
        return {name: partial(self._bounded, name, each) for name, each in functions.items()}

    def _bounded(self, name: str, function: Callable[[Any], Any], x: Any) -> Any:
        """Return a function of one number.

        Raises UnsupportedError if that has too many bits before the point.
        """
        if self.context.isfinite(x) and self.context.mag(x) > _MOST_BITS:
            raise UnsupportedError(f"{name} of a number beyond 2^{_MOST_BITS} has too many digits")
        return function(x)

    def number(self, array: Any) -> Value:
        """Return a field value of given float64 numbers, taken exactly.

        ``array`` has shape (trials or 1, instances or 1, *shape).
        """
        return Value("field", self._objects(np.asarray(array, dtype=np.float64))[None])

    def _objects(self, array: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.asarray(self._to_number(array), dtype=object).reshape(np.shape(array))

    def _from_float(self, array: Any) -> Any:
        return self._objects(array)

    def fresh(
        self, key: str, shape: Sequence[int], instances: int = 1, domain: Any = "any"
    ) -> Value:
        return Value("field", self._objects(super().fresh(key, shape, instances, domain).data))

    def constant(self, number: Fraction | float, kind: Kind = "field") -> Value:
        if kind != "field":
            return super().constant(number, kind)
        exact = (
            self.context.mpf(number.numerator) / number.denominator
            if isinstance(number, Fraction)
            else self.context.mpf(number)
        )
        return Value("field", np.full((1, 1, 1), exact, dtype=object))

    def _embedded(self, a: Value) -> Value:
        return Value("field", self._objects(a.data))

    def _truncated(self, a: Value) -> Value:
        if not bool((self._finite(a.data) & (abs(a.data) < 2**63)).all()):
            raise UnsupportedError("NaN, infinity and numbers beyond int64 cannot be cast to int")
        return Value("int", a.data.astype(np.int64))

    def _mapped(self, operation: Callable[..., Any], *arrays: Any) -> Any:
        broadcast = np.broadcast_arrays(*arrays)
        return np.asarray(np.frompyfunc(operation, len(arrays), 1)(*arrays), dtype=object).reshape(
            broadcast[0].shape
        )

    # --- cases in which mpmath raises or rounds differently from IEEE 754
    def _divided(self, x: Any, y: Any) -> Any:
        c = self.context
        if y != 0:
            return x / y
        return c.nan if x == 0 or c.isnan(x) else c.inf if x > 0 else c.ninf

    def _quotient(self, x: Any, y: Any) -> Any:
        return self._mapped(self._divided, x, y)

    def _powered(self, x: Any, exponent: int) -> Any:
        if exponent < 0:
            return self._quotient(self._objects(np.ones((1, 1, 1))), self._powered(x, -exponent))
        return self._mapped(lambda v: v**exponent, x)

    def sum(self, a: Value, axes: Sequence[int]) -> Value:
        if a.kind == "field" and any(self.shape(a)[axis] == 0 for axis in axes):
            shape = tuple(n for axis, n in enumerate(self.shape(a)) if axis not in axes)
            return Value("field", self._objects(np.zeros((*a.data.shape[:LEADING], *shape))))
        return super().sum(a, axes)

    def exp(self, a: Value) -> Value:
        return self._unary("exp", lambda x: self._mapped(self._known["exp"], x), a)

    def log(self, a: Value) -> Value:
        c = self.context
        return self._unary(
            "log",
            lambda x: self._mapped(
                lambda v: c.ninf if v == 0 else c.nan if v < 0 or c.isnan(v) else c.log(v), x
            ),
            a,
        )

    def sqrt(self, a: Value) -> Value:
        c = self.context
        return self._unary(
            "sqrt",
            lambda x: self._mapped(lambda v: c.nan if v < 0 or c.isnan(v) else c.sqrt(v), x),
            a,
        )

    def _functions(self) -> dict[str, Callable[[Any], Any]]:
        return {name: partial(self._mapped, each) for name, each in self._known.items()}

    def _any_nan(self, x: Any) -> bool:
        return bool(self._nan(x).any())

    def _key(self, x: Any, nan_first: bool) -> Any:
        nan = self._nan(x)
        c = self.context
        beyond = c.ninf if nan_first else c.inf
        largest = c.mpf(10) ** (1 << 40)
        ordered = self._mapped(
            lambda v: largest if v == c.inf else -largest if v == c.ninf else v, x
        )
        return np.where(nan, beyond, ordered)

    def _finite(self, x: Any) -> Any:
        return ~(self._nan(x) | np.asarray(self._is_infinite(x), dtype=np.bool_))

    def _nan(self, x: Any) -> Any:
        return np.asarray(self._is_nan(x), dtype=np.bool_)

    def _largest(self, x: Any) -> Any:
        axes = tuple(range(LEADING, x.ndim))
        finite = np.where(self._finite(x), abs(x), self.context.mpf(0))
        return finite.max(axis=axes, keepdims=True, initial=self.context.mpf(0)) if axes else finite
