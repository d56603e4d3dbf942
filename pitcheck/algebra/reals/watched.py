"""Many digits that know where they decide nothing: what hangs on a number that may be rounding
alone is noted.

A tensor that is 0 in truth is, with any number of digits, 0 or what their rounding leaves. A sum or
product of such numbers stays as small; but a comparison, a quotient, a logarithm or the next
integer makes of them something that says nothing of the truth, and is of ordinary size.
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
"""With d digits, numbers from 10^-3d to 10^-0.5d may be rounding alone. Below it is what is tiny by
itself, as exp(-1e30) of what a mask leaves out.
"""


class WatchedAlgebra(PreciseAlgebra):
    """PreciseAlgebra that sets ``undecided`` where a result depends on the sign or the size of what
    may be rounding alone.
    """

    def __init__(self, digits: int, seed: int, trials: Sequence[int]) -> None:
        super().__init__(digits, seed, trials)
        self.undecided = False
        self._least, self._most = (int(-share * digits * BITS_A_DIGIT) for share in ROUNDING)

    def is_rounding(self, x: Any) -> bool:
        """Whether one number other than 0 is so small that it may be what rounding leaves of 0."""
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
        """Note what may be an integer, or a half, but for rounding."""
        finite = x[self._finite(x)]
        self._watch(
            2 * finite - self._mapped(self.context.nint, 2 * finite) if finite.size else finite
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
