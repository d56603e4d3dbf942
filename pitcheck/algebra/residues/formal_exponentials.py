"""Exponentials and formal logarithms.

A value may be ``data + sum n_j log(S_j)`` with integers n_j. It is kept in this form as long as
that is exact.

>>> import numpy as np
>>> from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
>>> from pitcheck.algebra.residues.chains import chains_of
>>> algebra = ResidueAlgebra(np, chains_of(2)[0], seed=1, trials=(0,))
>>> x = algebra.fresh("x", (3,))
>>> bool(algebra.differs(algebra.exp(algebra.log(x)), x).any())
False
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from pitcheck.algebra.structure import Structure, aligned
from pitcheck.algebra.value import LEADING, NEGATIVE_INFINITY, Value
from pitcheck.errors import BudgetError, ShapeError

Logs = tuple[tuple[int, Value], ...]

_LARGEST_FACTOR = 64
"""The largest integer factor that multiplies the coefficients of formal logarithms. Larger ones
would make large powers; the discrete logarithm takes over.
"""


class Formal(Structure):
    """exp and log over residues, and the laws between them."""

    guarded: list[tuple[str, str, Value]]
    site: str
    arithmetic: Any
    chain: Any

    def _void_where(self, chance: Any) -> None:
        raise NotImplementedError

    def _special_of(self, operation: Any, *operands: Value) -> Any:
        raise NotImplementedError

    def _zeroed(self, data: Any, where: Any) -> Any:
        raise NotImplementedError

    def guard(self, what: str, operand: Value) -> Value:
        raise NotImplementedError

    def multiply(self, a: Value, b: Value) -> Value:
        raise NotImplementedError

    def divide(self, a: Value, b: Value) -> Value:
        raise NotImplementedError

    def power(self, a: Value, exponent: int) -> Value:
        raise NotImplementedError

    # --- exp
    def exp(self, a: Value) -> Value:
        """Return w^a one level up, times powers of the S_j.

        Raises:
            BudgetError: if no level is left.
            ShapeError: if ``a`` is not a field value.
        """
        if a.kind != "field":
            raise ShapeError(
                f"exp is defined for field values, not for {a.kind} values; cast first"
            )
        a = self.opened(a)
        result = self._exp_of_sum(a)
        if a.special is None:
            return result
        special = self._special_of(np.exp, Value("field", a.data, a.lowest, a.special))
        data = self._zeroed(result.data, a.special == NEGATIVE_INFINITY)
        return Value("field", data, result.lowest, special)

    def _exp_of_sum(self, a: Value) -> Value:
        """Return exp of data and logarithms, special codes left aside."""
        result = None if a.logs and _is_zero(a) else self._exp_of_data(a)
        for n, s in a.logs:
            factor = self.power(s, n)
            result = factor if result is None else self.multiply(result, factor)
        if result is None:
            return self._exp_of_data(a)
        return Value("field", result.data, result.lowest)

    def _exp_of_data(self, a: Value) -> Value:
        count = min(a.data.shape[0], len(self.chain) - 1 - a.lowest) if self.chain.linked else 0
        if count < 1:
            raise BudgetError(
                f"exp of a value at the top level of a chain of {len(self.chain)} primes has no "
                f"level left; a longer chain is needed"
            )
        return Value("field", self.arithmetic.exp(a.data[:count], a.lowest), a.lowest + 1)

    # --- log
    def log(self, a: Value) -> Value:
        """Return the formal logarithm of |a|: -inf if ``a`` is 0 at all levels.

        A zero by chance voids its trial.

        Raises:
            BudgetError: if no level is left.
            ShapeError: if ``a`` is not a field value.
        """
        a = self.plain(a)
        if a.kind != "field":
            raise ShapeError(
                f"log is defined for field values, not for {a.kind} values; cast first"
            )
        self._check_level_below(a)
        a = self.guard("log", a)
        zero = a.data == 0
        special = None
        base = Value("field", a.data, a.lowest)
        if a.special is not None or bool(zero.any()):
            discrete = zero.all(axis=0, keepdims=True)
            finite = True if a.special is None else a.special == 0
            self._void_where(zero & ~discrete & finite)
            with np.errstate(all="ignore"):
                stand_ins = self._stand_ins(a)
                stand_ins = self.xp.log(
                    self.xp.where(self.xp.isfinite(stand_ins), abs(stand_ins), stand_ins)
                )
            special = self._codes(stand_ins)
            replaced = zero if a.special is None else zero | (a.special != 0)
            base = Value("field", self.xp.where(replaced, 1, a.data), a.lowest)
        zeros = self.expand(self.constant(Fraction(0)), self.shape(a))
        return Value("field", zeros.data, 0, special, ((1, base),))

    def _check_level_below(self, a: Value) -> None:
        """Check that a logarithm of ``a`` has a level. Raises BudgetError."""
        if a.lowest + a.data.shape[0] < 2 or not self.chain.linked:
            raise BudgetError(
                "the logarithm of a value at the lowest level of the chain alone has no level "
                "left; a longer chain is needed"
            )

    # --- keeping logarithms
    def _added_logs(self, first: Logs, second: Logs, shape: Sequence[int]) -> Logs:
        """Return one term for each coefficient, by n log S + n log T = n log(S T)."""
        merged: dict[int, Value] = {}
        for n, s in (*first, *second):
            known = merged.get(n)
            merged[n] = s if known is None else self.multiply(known, s)
        return tuple((n, self.expand(merged[n], shape)) for n in sorted(merged))

    def _scaled_logs(self, a: Value, factor: Value) -> Value | None:
        """Return ``a`` times ``factor`` if that is one small integer and ``a`` has logarithms.

        Return None otherwise.
        """
        n = None if factor.logs or factor.special is not None else self._small_integer(factor)
        if n is None or not a.logs or a.special is not None:
            return None
        scaled = self.multiply(replace(a, logs=(), nonnegative=False), factor)
        shape = self.shape(scaled)
        logs = tuple((n * k, self.expand(s, shape)) for k, s in a.logs) if n else ()
        return replace(scaled, logs=logs, nonnegative=False)

    def _small_integer(self, a: Value) -> int | None:
        """Return the small integer that ``a`` is at all its levels and elements, else None."""
        if a.data.shape[1] != 1 or a.data.shape[2] != 1 or a.data.size == 0:
            return None
        first = a.data.reshape(a.data.shape[0], -1)[:, :1]
        prime = self.chain.primes[a.lowest]
        number = int(first[0, 0])
        number = number - prime if number > prime // 2 else number
        if abs(number) > _LARGEST_FACTOR:
            return None
        expected = self.arithmetic.constant(number, 1, a.lowest, a.data.shape[0])
        same = bool((a.data == aligned(expected, a.rank)).all())
        return number if same else None

    def _product(self, s: Value, axes: Sequence[int]) -> Value:
        """Return the product over logical ``axes``, which disappear."""
        data = s.data
        for axis in sorted(axes, reverse=True):
            data = self.arithmetic.product(data, LEADING + axis, s.lowest)
        return Value("field", data, s.lowest)

    def plain(self, a: Value) -> Value:
        """Return ``a`` with its logarithms worked out, and not as a formal root.

        Discrete logarithms live one level below.

        Raises:
            BudgetError: if no level is left.
        """
        a = self.opened(a)
        if not a.logs:
            return a
        total = None if _is_zero(a) else Value("field", a.data, a.lowest)
        for n, s in a.logs:
            low = max(s.lowest, 1)
            if s.lowest + s.data.shape[0] <= low:
                raise BudgetError("a logarithm has no level left; a longer chain is needed")
            found = self.arithmetic.log(s.data[low - s.lowest :], low)
            scaled = self.multiply(Value("field", found, low - 1), self.constant(Fraction(n)))
            total = scaled if total is None else self.add(total, scaled)
        if total is None:
            return a
        return Value("field", total.data, total.lowest, a.special)

    def add(self, a: Value, b: Value) -> Value:
        raise NotImplementedError

    def _log_differs(self, difference: Value) -> Any:
        """Return True where ``data + sum n log S`` is not 0.

        There exp of it is neither 1 nor -1 (a logarithm does not see the sign), at the levels that
        have a logarithm.
        """
        power = self._exp_of_sum(difference)
        skipped = 1 if power.lowest == 0 else 0
        if power.data.shape[0] <= skipped:
            raise BudgetError("two logarithms have no level in common; a longer chain is needed")
        residues = power.data[skipped:]
        minus_one = self.arithmetic.constant(-1, 1, power.lowest + skipped, residues.shape[0])
        same = (residues == 1) | (residues == aligned(minus_one, power.rank))
        return (~same).any(axis=0, keepdims=True)


def _is_zero(a: Value) -> bool:
    """Return True if the data is the constant 0."""
    return a.data.shape[1] == a.data.shape[2] == 1 and not bool(a.data.any())
