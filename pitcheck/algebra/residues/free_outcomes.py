"""Outcomes of comparisons that hold for all tables, and so for all inputs.

A comparison of drawn numbers is a function of their difference: a < b is the entry of one table for
a - b, and a == b that of another one. Such an outcome is a *mask*, a boolean that holds residues.
Conjunctions, negations and choices are polynomials of masks that are true of the numbers 0 and 1:

- not a is 1 - a, a and b is a b, a or b is a + b - a b;
- where(c, a, b) is b + c (a - b), of numbers that are finite.

So what agrees for all tables agrees for all outcomes together, and not only for those that some
draw had. ``docs/mathematics.md`` has the theorem. Laws that are kept:

- b > a is a < b, a >= b is its complement, and a == b is b == a. Equal numbers are equal, and
  neither is less.
- where(a > b, a, b) is the maximum of a and b, and where(a < b, a, b) the minimum.

That a mask is its own square is not known, nor that a < b and b < a exclude each other.

>>> import numpy as np
>>> from pitcheck.algebra.residues.chains import Chain
>>> from pitcheck.algebra.residues.free_functions import FreeAlgebra
>>> algebra = FreeAlgebra(np, Chain((1000003, 999983), linked=False), seed=1, trials=(0, 1))
>>> x, y = algebra.fresh("x", (3,)), algebra.fresh("y", (3,))
>>> below, above = algebra.compare("lt", x, y), algebra.compare("gt", y, x)
>>> bool(algebra.differs(below, above).any()), bool(algebra.differs(below, below).any())
(False, False)
>>> bool(algebra.differs(below, algebra.compare("le", x, y)).any())
True
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.interface import Comparison, Kind
from pitcheck.algebra.residues.prime import PrimeAlgebra
from pitcheck.algebra.structure import aligned
from pitcheck.algebra.value import FINITE, LEADING, Value
from pitcheck.errors import UnsupportedError

BELOW, EQUAL = "below", "equal"
"""The tables of comparisons."""
ASCENDING, DESCENDING = "ascending", "descending"
"""The tables of orders along an axis."""
_GREATER: tuple[Comparison, Comparison] = ("gt", "ge")
_LESS: tuple[Comparison, Comparison] = ("lt", "le")


class FreeOutcomes(PrimeAlgebra):
    """Residues whose comparisons are entries of tables.

    ``whole`` are the sites that compare nothing but small integers: their outcomes are known.
    """

    masks = True
    """True if outcomes of comparisons are masks; else they are random booleans."""

    def __init__(
        self,
        *arguments: Any,
        whole: Collection[str] = (),
        decided: Mapping[str, bool] | None = None,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._whole = whole
        self._decided = decided or {}

    def _looked_up(self, name: str, arguments: list[Value], odd: bool, even: bool) -> Any:
        """Return entries of a table, shape (levels, trials, instances, *shape)."""
        raise NotImplementedError

    def _compare_field(self, comparison: Comparison, a: Value, b: Value) -> Value:
        if self.site in self._whole:
            return super()._compare_field(comparison, a, b)
        a, b = (replace(self.plain(v), parts=()) for v in (a, b))
        if self.site in self._decided:
            data = (aligned(v.data, max(a.rank, b.rank)) for v in (a, b))
            shape = np.broadcast_shapes(*(numbers.shape[1:] for numbers in data))
            return Value("bool", self.xp.full((1, *shape), self._decided[self.site]))
        both = finite(a, max(a.rank, b.rank)) & finite(b, max(a.rank, b.rank))
        if not bool(both.any()):
            return super()._compare_field(comparison, a, b)
        found = self._outcome(comparison, replace(a, special=None), replace(b, special=None))
        if bool(both.all()):
            return found
        # Infinity and NaN decide by themselves. That is no decision of drawn numbers.
        recorded = len(self.decisions)
        known = super()._compare_field(comparison, a, b)
        del self.decisions[recorded:]
        if self.masks:
            known = self._as_mask(known)
        return Value("bool", self.xp.where(both, found.data, known.data))

    def _outcome(self, comparison: Comparison, a: Value, b: Value) -> Value:
        """Return an entry of a table for the difference of finite numbers, or its complement.

        a < b is that of a - b, and b > a the same; a >= b is the complement.
        """
        swapped, equal = comparison in ("gt", "le"), comparison in ("eq", "ne")
        difference = self.subtract(b, a) if swapped else self.subtract(a, b)
        entry = self._looked_up(EQUAL if equal else BELOW, [difference], odd=False, even=equal)
        same, negated = self._vanishes(difference), comparison in ("ne", "le", "ge")
        if not self.masks:
            return Value("bool", self.xp.where(same, equal, entry[:1] % 2 == 1) ^ negated)
        mask = Value("bool", self.xp.where(same, int(equal), entry))
        return self.logical_not(mask) if negated else mask

    def _vanishes(self, a: Value) -> Any:
        """Return True where a value is 0 at all levels, shape (1, trials, instances, *shape)."""
        return self.arithmetic.vanishes(a.data)

    # --- masks
    def _as_mask(self, a: Value) -> Value:
        """Return a boolean as residues; a mask is one."""
        if is_mask(a):
            return a
        return replace(a, data=self._as_number(a).data)

    def _as_number(self, a: Value) -> Value:
        """Return 1 where a boolean holds, else 0."""
        if is_mask(a):
            return replace(a, kind="field")
        return super().cast(a, "field")

    def _common(self, values: Sequence[Value]) -> tuple[int, int]:
        if any(is_mask(v) for v in values) and len({v.data.shape[0] for v in values}) > 1:
            raise of_order("a tensor of outcomes and other booleans")
        return super()._common(values)

    def _combine(self, values: Sequence[Value], axis: int, counts: Sequence[int] | None) -> Value:
        if any(is_mask(v) for v in values):
            values = [self._as_mask(v) for v in values]
        return super()._combine(values, axis, counts)

    def _logical(
        self, what: str, operation: Callable[[Any, Any], Any], a: Value, b: Value
    ) -> Value:
        if not (is_mask(a) or is_mask(b)) or a.kind != b.kind:
            return super()._logical(what, operation, a, b)
        x, y = self._as_number(a), self._as_number(b)
        both = super().multiply(x, y)
        either = super().subtract(super().add(x, y), both)
        return Value("bool", (both if what == "logical_and" else either).data)

    def logical_not(self, a: Value) -> Value:
        if not is_mask(a):
            return super().logical_not(a)
        one = self.constant(Fraction(1))
        return Value("bool", super().subtract(one, self._as_number(a)).data)

    def compare(self, comparison: Comparison, a: Value, b: Value) -> Value:
        if not (is_mask(a) or is_mask(b)):
            return super().compare(comparison, a, b)
        if comparison not in ("eq", "ne") or a.kind != b.kind:
            raise of_order(f"a comparison {comparison} of outcomes")
        either, both = (self._as_number(f(a, b)) for f in (self.logical_or, self.logical_and))
        one_alone = Value("bool", super().subtract(either, both).data)
        return one_alone if comparison == "ne" else self.logical_not(one_alone)

    def cast(self, a: Value, kind: Kind) -> Value:
        if not is_mask(a) or kind == "bool":
            return super().cast(a, kind)
        if kind == "int":
            raise of_order("a count of outcomes")
        return self._as_number(a)

    def where(self, condition: Value, a: Value, b: Value) -> Value:
        """Return a choice; that by a mask c is b + c (a - b), of numbers that are finite."""
        if not is_mask(condition):
            if is_mask(a) or is_mask(b):
                a, b = self._as_mask(a), self._as_mask(b)
            return super().where(condition, a, b)
        kind = self._same_kind("where", a, b)
        if kind == "int":
            raise of_order("a choice between integers")
        first, second = (
            self._as_number(v) if kind == "bool" else replace(self.plain(v), parts=())
            for v in (a, b)
        )
        if any(v.special is not None and bool(v.special.any()) for v in (first, second)):
            raise of_order("a choice between numbers that are not finite")
        chosen = super().multiply(self._as_number(condition), super().subtract(first, second))
        data = super().add(second, chosen).data
        if kind == "field":
            data = self._with_extrema(data, condition, first, second)
        return Value(kind, data, nonnegative=a.nonnegative and b.nonnegative)

    def _with_extrema(self, data: Any, condition: Value, a: Value, b: Value) -> Any:
        """Return ``data``, choices between a and b, with max(a, b) where a > b or a >= b decides.

        Where the contrary decides it is min(a, b).
        """
        rank = data.ndim - LEADING
        given = aligned(condition.data, rank)
        for largest, comparisons in ((True, _GREATER), (False, _LESS)):
            either, other = (
                self.arithmetic.equal(aligned(self._outcome(each, a, b).data, rank), given)
                for each in comparisons
            )
            if bool((either | other).any()):
                extremum = aligned(self._extremum("where", a, b, largest).data, rank)
                data = self.xp.where(either | other, extremum, data)
        return data

    def differs(self, a: Value, b: Value) -> NDArray[np.bool_]:
        if is_mask(a) or is_mask(b):
            self._same_kind("a comparison of results", a, b)
            a, b = self._as_number(a), self._as_number(b)
        return super().differs(a, b)


def is_mask(a: Value) -> bool:
    """Return True if a value is a boolean that holds residues."""
    return a.kind == "bool" and a.data.dtype != np.bool_


def finite(a: Value, rank: int | None = None) -> Any:
    """Return where a value is finite, with ``rank`` logical axes if that is given."""
    if a.special is None:
        return np.True_
    return aligned(a.special, a.rank if rank is None else rank) == FINITE


def of_order(what: str) -> UnsupportedError:
    """Return the error of what depends on the order of numbers."""
    return UnsupportedError(f"{what} depends on the order of numbers, which residues do not have")
