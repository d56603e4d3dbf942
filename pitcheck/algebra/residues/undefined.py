"""Residues of which some are taken to have no value, to see what depends on them.

Whoever asks what a result needs takes one operand of a partial operation after the other to be
undefined. NaN stands for that, and follows IEEE 754 through arithmetic. Two things differ. What is
decided or indexed by an undefined number is undefined, too, so integers and booleans hold NaN here.
And a choice hides what it does not take, so its outcome must be any that inputs can cause: in
``free_order`` a comparison of drawn numbers is a random boolean, one for each difference compared.
Then x > 0 and x >= 0 are two conditions, and x > 0 and 0 < x are one. In a few draws all of them
hold, or none: random ones would never make all of 64 numbers positive.

>>> import numpy as np
>>> from pitcheck.algebra.residues.chains import chains_of
>>> algebra = UndefinedAlgebra(np, chains_of(1)[0], seed=1, trials=(0, 0))
>>> algebra.undefined = {0: np.array([[[True, False]], [[False, False]]])}
>>> x = algebra.fresh("x", (2,))
>>> (algebra.divide(x, x).special == NAN).tolist()
[[[[True, False]], [[False, False]]]]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.backend import to_host
from pitcheck.algebra.interface import Comparison, Kind
from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.free_functions import FreeAlgebra, WeightedFreeAlgebra
from pitcheck.algebra.residues.signless_infinity import Cause
from pitcheck.algebra.residues.weights import WeightedAlgebra
from pitcheck.algebra.structure import aligned
from pitcheck.algebra.value import LEADING, NAN, Value

ONE_OUTCOME = {12: (True, False), 13: (False, True), 14: (True, True), 15: (False, False)}
"""By draw, the one outcome of all comparisons for order (the difference is below 0), and of all for
equality. They are among the draws in which guards are looked at, so that each look has them.
"""


class Undefined(ResidueAlgebra):
    """Residues with undefined elements."""

    undefined: Mapping[int, NDArray[np.bool_]] = MappingProxyType({})
    """The elements that have no value, by the number of their operand in ``guarded``: bool arrays
    of shape (trials, instances or 1, *shape).
    """
    free_order = False
    """True if comparisons of drawn numbers have random outcomes."""
    without_signs: frozenset[Cause] = frozenset()
    """The causes of infinities whose signs residues do not tell that are taken to be undefined."""
    decided = False
    """True once drawn numbers were compared, or integers or booleans that are drawn chose: then it
    depends on the draw what is divided by.
    """
    hidden: NDArray[np.bool_] = np.zeros(1, dtype=np.bool_)
    """The trials in which something that inputs decide chose between a value and an undefined one,
    shape (trials,), or (1,) if that is the same for all.
    """

    unsure: NDArray[np.bool_] = np.zeros(1, dtype=np.bool_)
    """The trials in which ``hidden`` may not say all that it would of each undefined operand by
    itself, of the same shape.
    """

    @property
    def chose(self) -> bool:
        """Return True if other draws may need other operands."""
        return self.decided or bool(self.hidden.any())

    def guard(self, what: str, operand: Value) -> Value:
        """Note the operand of a partial operation, and return it with its undefined elements."""
        without = self.undefined.get(len(self.guarded))
        super().guard(what, operand)
        return operand if without is None else self.without(operand, without[None])

    def _signless_codes(self, special: Any, found: Any, cause: Cause) -> Any:
        return (
            self.xp.where(found, np.uint8(NAN), special) if cause in self.without_signs else special
        )

    def without(self, a: Value, undefined: Any) -> Value:
        """Return ``a`` with NaN where ``undefined`` holds; None: nowhere.

        ``undefined`` has shape (1, trials or 1, instances or 1, *shape), and broadcasts. It may be
        an array of NumPy whatever the array module is.
        """
        if undefined is None:
            return a
        before = np.uint8(0) if a.special is None else a.special
        places = aligned(self.xp.asarray(undefined), a.rank)
        codes = self.xp.where(places, np.uint8(NAN), before)
        shape = (*codes.shape[:LEADING], *a.data.shape[LEADING:])
        return replace(a, special=self.xp.broadcast_to(codes, shape))

    def _lacking(self, *values: Value) -> Any:
        """Return where any of some values is undefined, broadcast; None if none is anywhere."""
        rank = max(v.rank for v in values)
        found = None
        for v in values:
            if v.special is not None:
                own = self._places(v, rank)
                found = own if found is None else found | own
        return None if found is None or not bool(found.any()) else found

    def _along(self, a: Value, axes: Sequence[int]) -> Any:
        """Return where ``a`` is undefined anywhere along ``axes``, which keep size 1; or None."""
        lacking = self._lacking(a)
        places = tuple(LEADING + axis for axis in axes)
        return None if lacking is None else lacking.any(axis=places, keepdims=True)

    def _places(self, a: Value, rank: int) -> Any:
        """Return where ``a`` is undefined, with ``rank`` logical axes."""
        if a.special is None:
            return self.xp.zeros((1,) * (LEADING + rank), dtype=np.bool_)
        return aligned(a.special == NAN, rank)

    def _hides(self, chooser: Value, hidden: Any, unsure: Any = None) -> None:
        """Note that inputs decide, if they do, and where that leaves undefined elements or not.

        ``hidden`` says where that is so, with the axes of a value; None: nowhere. ``unsure`` says
        where it may be so of one undefined operand, and is not of several.
        """
        if chooser.data.shape[1] == 1:
            return
        self.decided = True
        self.hidden = self.hidden | self._trials_of(hidden)
        self.unsure = self.unsure | self._trials_of(unsure)

    def _trials_of(self, places: Any) -> NDArray[np.bool_]:
        """Return in which trials any of some places is, shape (trials,) or (1,); None: nowhere."""
        if places is None:
            return np.zeros(1, dtype=np.bool_)
        others = tuple(axis for axis in range(places.ndim) if axis != 1)
        found: NDArray[np.bool_] = to_host(self.xp, places.any(axis=others))
        return found

    def _varying(self, a: Value, axis: int) -> tuple[Any, Any]:
        """Return where a part of ``a`` along an axis is undefined, and where all of it is.

        The axis keeps size 1 in both.
        """
        lacking, place = self._places(a, a.rank), LEADING + axis
        whole = lacking.all(axis=place, keepdims=True)
        return lacking.any(axis=place, keepdims=True) & ~whole, whole

    # --- integers and booleans
    def _int_binary(self, what: str, operation: Any, a: Value, b: Value) -> Value:
        return self.without(super()._int_binary(what, operation, a, b), self._lacking(a, b))

    def _logical(self, what: str, operation: Any, a: Value, b: Value) -> Value:
        return self.without(super()._logical(what, operation, a, b), self._lacking(a, b))

    def logical_not(self, a: Value) -> Value:
        return self.without(super().logical_not(a), self._lacking(a))

    def negate(self, a: Value) -> Value:
        return self.without(super().negate(a), self._lacking(a))

    def _extremum(self, what: str, a: Value, b: Value, largest: bool) -> Value:
        return self.without(super()._extremum(what, a, b, largest), self._lacking(a, b))

    def _reduced(self, a: Value, axis: int, largest: bool) -> Value:
        before = self.decided, self.hidden, self.unsure
        result, lacking = super()._reduced(a, axis, largest), self._along(a, (axis,))
        # An extremum of an undefined number is undefined: nothing is hidden.
        self.decided, self.hidden, self.unsure = before
        return self.without(result, None if lacking is None else lacking[self._at_first(axis)])

    def order(self, a: Value, axis: int, descending: bool) -> Value:
        return self.without(super().order(a, axis, descending), self._along(a, (axis,)))

    def sum(self, a: Value, axes: Sequence[int]) -> Value:
        result, lacking = super().sum(a, axes), self._along(a, axes)
        if a.kind == "field" or lacking is None:
            return result
        return self.without(result, lacking.reshape(*lacking.shape[:LEADING], *self.shape(result)))

    def cast(self, a: Value, kind: Kind) -> Value:
        given = a if kind == a.kind or a.special is None else replace(a, special=None)
        return self.without(super().cast(given, kind), self._lacking(a))

    def draw(self, stream: str, index: Value) -> Value:
        return self.without(super().draw(stream, index), self._lacking(index))

    def compare(self, comparison: Comparison, a: Value, b: Value) -> Value:
        return self.without(super().compare(comparison, a, b), self._lacking(a, b))

    def _compare_field(self, comparison: Comparison, a: Value, b: Value) -> Value:
        found = super()._compare_field(comparison, a, b)
        if max(a.data.shape[1], b.data.shape[1]) == 1:
            return found
        self.decided = True
        if not self.free_order:
            return found
        rank = max(a.rank, b.rank)
        outcome = self._any_outcome(comparison, a, b)
        for v in (a, b):
            if v.special is not None:
                finite = aligned(v.special, rank) <= NAN
                outcome = self.xp.where(finite, outcome, found.data)
        return Value("bool", outcome)

    def _any_outcome(self, comparison: Comparison, a: Value, b: Value) -> Any:
        """Return a random boolean for every comparison of two numbers, the same for the same one.

        a < b depends on the residues of a - b, b > a on the same, and a >= b is the contrary.
        """
        a, b = (replace(self.plain(v), special=None) for v in (a, b))
        swapped = comparison in ("gt", "le")
        difference = self.subtract(b, a) if swapped else self.subtract(a, b)
        equal = comparison in ("eq", "ne")
        hashed = self._hashed("equal" if equal else "below", [difference], even=equal)
        outcome = hashed.data[:1] % 2 == 1
        trials = self.xp.asarray(self.trials).reshape(1, -1, 1)
        for trial, outcomes in ONE_OUTCOME.items():
            here = aligned(trials == trial, difference.rank)
            outcome = self.xp.where(here, outcomes[equal], outcome)
        return ~outcome if comparison in ("ne", "le", "ge") else outcome

    # --- choices
    def where(self, condition: Value, a: Value, b: Value) -> Value:
        rank = max(condition.rank, a.rank, b.rank)
        unknown, of_a, of_b = (self._places(each, rank) for each in (condition, a, b))
        hidden = (of_a ^ of_b) & ~unknown
        self._hides(condition, hidden, (of_a | of_b) & ~hidden)
        return self.without(super().where(condition, a, b), self._lacking(condition))

    def take(self, a: Value, axis: int, indices: Value) -> Value:
        self._hides(indices, *self._varying(a, axis))
        result, lacking = super().take(a, axis, indices), self._lacking(indices)
        if lacking is not None:
            lacking = lacking.reshape(*lacking.shape, *(1,) * (a.rank - axis - 1))
        return self.without(result, lacking)

    def take_along(self, a: Value, axis: int, indices: Value) -> Value:
        self._hides(indices, *self._varying(a, axis))
        return self.without(super().take_along(a, axis, indices), self._lacking(indices))

    def add_at(self, base: Value, axis: int, indices: Value, source: Value) -> Value:
        self._hides(indices, self._lacking(source))
        lacking = self._along(indices, range(indices.rank))
        if lacking is not None:
            lacking = lacking.reshape(*lacking.shape[:LEADING], *(1,) * base.rank)
        return self.without(super().add_at(base, axis, indices, source), lacking)

    def add_along(self, base: Value, axis: int, indices: Value, source: Value) -> Value:
        self._hides(indices, self._lacking(source))
        result = super().add_along(base, axis, indices, source)
        return self.without(result, self._along(indices, (axis,)))

    def _at_first(self, axis: int) -> tuple[Any, ...]:
        return (*(slice(None),) * (LEADING + axis), 0)

    def _scaled_logs(self, a: Value, factor: Value) -> Value | None:
        """Return a multiple of formal logarithms also if some of them are undefined."""
        scaled = super()._scaled_logs(replace(a, special=None), replace(factor, special=None))
        return None if scaled is None else self.without(scaled, self._lacking(a, factor))


class UndefinedAlgebra(Undefined):
    """Residues with undefined elements, without weights."""


class UndefinedWeightedAlgebra(Undefined, WeightedAlgebra):
    """Residues with undefined elements, whose sums are weighted."""


class UndefinedFreeAlgebra(Undefined, FreeAlgebra):
    """Tables in place of functions, with undefined elements."""

    masks = False


class UndefinedWeightedFreeAlgebra(Undefined, WeightedFreeAlgebra):
    """The same, with weights for the places of reduced axes."""

    masks = False
