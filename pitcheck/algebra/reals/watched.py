"""Many digits that note results which depend on a number that may be rounding alone.

A tensor that is 0 in truth is 0 with any number of digits, or a remainder of their rounding. Sums
and products of such numbers stay as small. But a comparison, a quotient, a logarithm or the next
integer turns them into a number of ordinary size that says nothing of the truth.

>>> from fractions import Fraction
>>> algebra = WatchedAlgebra(digits=60, seed=0, trials=(0,))
>>> tiny = algebra.constant(Fraction(1, 10**60))
>>> _ = algebra.compare("gt", tiny, algebra.constant(Fraction(0)))
>>> algebra.undecided
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pitcheck.algebra.interface import Comparison
from pitcheck.algebra.reals.precise import PreciseAlgebra
from pitcheck.algebra.structure import aligned
from pitcheck.algebra.value import LEADING, Value

BITS_A_DIGIT = 3.3219
ROUNDING = (3.0, 0.5)
"""Exponents of the numbers that may be rounding alone: with d digits, from 10^-3d to 10^-0.5d.
Smaller numbers are tiny by themselves, as exp(-1e30) of a masked element.
"""


class WatchedAlgebra(PreciseAlgebra):
    """PreciseAlgebra that sets ``undecided`` if a result may depend on rounding alone.

    It does if the sign or the size of a number matters that may be a remainder of rounding.
    """

    def __init__(self, digits: int, seed: int, trials: Sequence[int]) -> None:
        super().__init__(digits, seed, trials)
        self.undecided = False
        self._least, self._most = (int(-share * digits * BITS_A_DIGIT) for share in ROUNDING)

    def is_rounding(self, x: Any) -> bool:
        """Return True for a number small enough to be a remainder of rounding; 0 is none."""
        return bool(self._least < self.context.mag(x) < self._most)

    def _watch(self, array: Any) -> None:
        if not self.undecided and array.dtype == object:
            self.undecided = any(map(self.is_rounding, array.reshape(-1)))

    def _divided(self, x: Any, y: Any) -> Any:
        self.undecided = self.undecided or self.is_rounding(y)
        return super()._divided(x, y)

    def log(self, a: Value) -> Value:
        self._watch(a.data)
        return super().log(a)

    def sqrt(self, a: Value) -> Value:
        self._watch(a.data[a.data < 0])
        return super().sqrt(a)

    def _functions(self) -> dict[str, Callable[[Any], Any]]:
        known = super()._functions()
        return {
            **known,
            **{
                name: self._at_steps(known[name])
                for name in ("floor", "ceil", "round", "normal_quantile")
            },
        }

    def _at_steps(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def watched(x: Any) -> Any:
            self._watch_steps(x)
            return function(x)

        return watched

    def _watch_steps(self, x: Any) -> None:
        """Note numbers that may be an integer, or a half, but for rounding."""
        finite = x[self._finite(x)]
        self._watch(
            2 * finite - self._mapped(self._known["round"], 2 * finite) if finite.size else finite
        )

    def _truncated(self, a: Value) -> Value:
        self._watch_steps(a.data)
        return super()._truncated(a)

    def _compare_field(self, comparison: Comparison, a: Value, b: Value) -> Value:
        rank = max(a.rank, b.rank)
        self._watch_differences(aligned(a.data, rank), aligned(b.data, rank))
        return super()._compare_field(comparison, a, b)

    def order(self, a: Value, axis: int, descending: bool) -> Value:
        if a.kind == "field" and 0 <= axis < a.rank:
            place = LEADING + axis
            ordered = np.moveaxis(np.sort(self._key(a.data, False), axis=place), place, 0)
            self._watch_differences(ordered[1:], ordered[:-1])
        return super().order(a, axis, descending)

    def _watch_differences(self, x: Any, y: Any) -> None:
        if not self.undecided:
            with np.errstate(all="ignore"):
                self._watch(np.asarray(x - y, dtype=object))
