"""float64 in which every result of an operation is disturbed in its last digits.

Monte Carlo arithmetic (Parker: Monte Carlo Arithmetic, UCLA CSD-970002, 1997): what rounding could change shows as a change of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pitcheck.algebra.real import RealAlgebra
from pitcheck.algebra.structure import aligned
from pitcheck.algebra.value import Value

DISTURBANCE = 2.0**-50
"""The largest relative error that is put into a result: four units in its last place."""

LARGEST_EXACT = 2.0**26
"""Products of two integers below this are exact in float64, and sums of millions of them."""
REDUCING = frozenset({"sum", "matmul"})
"""Operations of which an element of the result is made of many of the operands."""


class Noise(RealAlgebra):
    """Adds a random relative error of at most ``DISTURBANCE`` to computed field values. What integers give exactly stays as it is."""

    generator: np.random.Generator

    def _disturbed(self, value: Value, exact: Any) -> Value:
        if value.kind != "field":
            return value
        with np.errstate(all="ignore"):
            error = DISTURBANCE * self.generator.uniform(-1.0, 1.0, value.data.shape)
            return Value("field", np.where(exact & _whole(value.data), value.data, value.data * (1.0 + error)))

    def _binary(self, what: str, operation: Callable[[Any, Any], Any], a: Value, b: Value) -> Value:
        result = super()._binary(what, operation, a, b)
        if what in REDUCING:
            return self._disturbed(result, bool(_whole(a.data).all() and _whole(b.data).all()))
        rank = result.rank
        return self._disturbed(result, _whole(aligned(a.data, rank)) & _whole(aligned(b.data, rank)))

    def _unary(self, what: str, operation: Callable[[Any], Any], a: Value) -> Value:
        result = super()._unary(what, operation, a)
        exact = _whole(a.data)
        return self._disturbed(result, bool(exact.all()) if what in REDUCING else exact)


def _whole(array: Any) -> Any:
    """Which numbers are small integers: what is computed of them and is a small integer again is exact."""
    with np.errstate(all="ignore"):
        return (np.rint(array) == array) & (np.abs(array) < LARGEST_EXACT)
