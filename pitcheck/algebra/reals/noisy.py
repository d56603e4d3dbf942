"""float64 in which every result of an operation is disturbed in its last digits.

This is Monte Carlo arithmetic (Parker: Monte Carlo Arithmetic, UCLA CSD-970002, 1997). A digit that
rounding could change shows as a change of the result.

>>> algebra = Noise(np, seed=0, trials=(0,))
>>> algebra.generator = np.random.default_rng(0)
>>> x = algebra.fresh("x", (4,))
>>> bool((algebra.multiply(x, x).data == x.data**2).all())
False
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pitcheck.algebra.reals.real import RealAlgebra
from pitcheck.algebra.structure import aligned
from pitcheck.algebra.value import Value

DISTURBANCE = 2.0**-50
"""The largest relative error that is put into a result: four units in its last place."""

LARGEST_EXACT = 2.0**26
"""The integer below which products of two are exact in float64, and so are sums of millions of
these.
"""
REDUCING = frozenset({"sum", "matmul"})
"""The operations whose results are each made of many elements of the operands."""


class Noise(RealAlgebra):
    """float64 with a random relative error of at most ``DISTURBANCE`` in computed field values.

    Results that integers give exactly stay as they are.
    """

    generator: np.random.Generator

    def _disturbed(self, value: Value, exact: Callable[[], Any]) -> Value:
        """Return ``value`` with its elements disturbed, except whole ones made of whole ones.

        ``exact`` says which elements were made of whole ones. It is called only if some are whole.
        """
        if value.kind != "field":
            return value
        with np.errstate(all="ignore"):
            # A factor, so that infinity stays what it is. Single precision is enough for a random
            # number.
            moved = np.multiply(
                self.generator.random(value.data.shape, dtype=np.float32),
                2 * DISTURBANCE,
                dtype=np.float64,
            )
            moved += 1 - DISTURBANCE
            moved *= value.data
            whole = _whole(value.data) & (value.data != 0)  # zero is not moved anyway
            return Value(
                "field", np.where(whole & exact(), value.data, moved) if whole.any() else moved
            )

    def _binary(self, what: str, operation: Callable[[Any, Any], Any], a: Value, b: Value) -> Value:
        result = super()._binary(what, operation, a, b)
        rank = result.rank

        def exact() -> Any:
            if what in REDUCING:
                return bool(_whole(a.data).all() and _whole(b.data).all())
            return _whole(aligned(a.data, rank)) & _whole(aligned(b.data, rank))

        return self._disturbed(result, exact)

    def _unary(self, what: str, operation: Callable[[Any], Any], a: Value) -> Value:
        return self._disturbed(
            super()._unary(what, operation, a),
            lambda: bool(_whole(a.data).all()) if what in REDUCING else _whole(a.data),
        )


def _whole(array: Any) -> Any:
    """Return True for small integers, elementwise.

    A small integer computed from small integers is exact.
    """
    with np.errstate(all="ignore"):
        return (np.rint(array) == array) & (np.abs(array) < LARGEST_EXACT)
