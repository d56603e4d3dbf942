"""Integers, booleans and decisions, evaluated exactly: shared by all concrete algebras.

>>> from pitcheck.algebra.reals.real import RealAlgebra
>>> algebra = RealAlgebra(np, seed=0, trials=range(8))
>>> _ = algebra.maximum(algebra.fresh("x", ()), algebra.constant(Fraction(0)))
>>> bool(algebra.decisions[0].true.any()), bool(algebra.decisions[0].false.any())
(True, True)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.backend import to_host
from pitcheck.algebra.interface import Comparison, Kind
from pitcheck.algebra.residues.residue_order import INFINITE
from pitcheck.algebra.structure import Structure, aligned
from pitcheck.algebra.value import LEADING, Value
from pitcheck.errors import ShapeError, UnsupportedError

COMPARISONS: dict[Comparison, str] = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
"""NumPy's names of the comparisons."""


MOST_SLOTS = 64
"""The elements of an extremum up to which each must be seen chosen and not chosen, as one decision.
"""


TELLING = 16
"""The number of trials after which a place that always held one number is believed to be constant.
"""


@dataclass(frozen=True)
class Decision:
    """Counts of both outcomes of one comparison, maximum or minimum of field values.

    ``true`` and ``false`` are int64 arrays of shape (trials, instances). ``true`` counts elements
    for which the comparison held or the first operand was kept. The first operand of a reduction is
    the extremum of the elements before.
    """

    site: str
    true: NDArray[np.int64]
    false: NDArray[np.int64]


@dataclass(frozen=True)
class Choice:
    """The places along an axis that came first in an order or a long extremum of field values.

    ``first`` is bool of shape (trials, instances, places).
    """

    site: str
    first: NDArray[np.bool_]


def _last(key: Any, largest: bool) -> Any:
    """Return True for keys of the infinity that stands behind all numbers."""
    limit = INFINITE if key.dtype.kind == "i" else np.inf
    return key <= -limit if largest else key >= limit


class Discrete(Structure):
    """Operations on int and bool values, and the record of decisions and choices.

    The caller sets ``site`` before each operator. Decisions between values that no trial draws
    (constants, positions) are not recorded: another trial would decide them the same. Decisions
    between integers are not recorded either: the list of discrete cases says which integers are
    tried, and :mod:`pitcheck.prove.integers` which outcomes computed integers must have had.
    """

    trials: tuple[int, ...]
    site: str
    decisions: list[Decision]
    choices: list[Choice]

    def __init__(self) -> None:
        self.site = ""
        self.decisions = []
        self.choices = []
        self._counts: dict[str, int] = {}

    def _record(self, outcome: Any, free: Any) -> None:
        """Count the outcomes in a bool array of shape (1, trials, instances, ...).

        Elements of ``free``, of the same shape, count for both outcomes. Either equal operands give
        one result in both cases, or an infinite or NaN operand, which comes from discrete data,
        decides alone.
        """
        if outcome.shape[1] == 1 and len(self.trials) > 1:
            return
        counts = self._counted(outcome, free)
        self.decisions.append(Decision(self._numbered("#"), *counts))

    def _record_slots(self, outcome: Any, free: Any) -> None:
        """Count the outcomes of the slots along the last axis, one decision after the other."""
        if outcome.shape[1] == 1 and len(self.trials) > 1:
            return
        true, false = self._counted(outcome, free, outcome.shape[-1:])
        for slot in range(outcome.shape[-1]):
            decision = Decision(self._numbered("#"), true[..., slot], false[..., slot])
            self.decisions.append(decision)

    def _counted(self, outcome: Any, free: Any, slots: tuple[int, ...] = ()) -> list[Any]:
        """Return how often each outcome was seen, shapes (trials, instances, *slots)."""
        shape = (*outcome.shape[1:LEADING], -1, *slots)
        return [
            to_host(self.xp, side.reshape(shape).sum(axis=2, dtype=np.int64))
            for side in (outcome | free, ~outcome | free)
        ]

    def _numbered(self, mark: str) -> str:
        """Return the site's name with the number of records of one sort made there before.

        It is the same in every algebra that records them.
        """
        number = self._counts.get(self.site + mark, 0)
        self._counts[self.site + mark] = number + 1
        return f"{self.site}{mark}{number}"

    def _record_choice(self, first: Any, key: Any, place: int, largest: bool) -> None:
        """Note the places along array axis ``place`` of ``key`` that came first.

        ``first`` is an int array with the shape of ``key`` but for that axis. Places that only hold
        the filling of a mask count as seen: infinity that comes last, or one number in many trials.
        """
        if first.shape[1] == 1 and len(self.trials) > 1:
            return
        places = to_host(self.xp, first.reshape(first.shape[1], first.shape[2], -1))
        seen = np.zeros((*places.shape[:2], key.shape[place]), dtype=np.bool_)
        np.put_along_axis(seen, places, True, axis=2)
        filled = _last(key, largest).all(axis=1, keepdims=True)
        if len(self.trials) >= TELLING:
            filled |= (key == key[:, :1]).all(axis=1, keepdims=True)
        seen |= to_host(
            self.xp, filled.all(axis=tuple(i for i in range(LEADING, key.ndim) if i != place))[0]
        )
        self.choices.append(Choice(self._numbered("~"), seen))

    # --- operands
    def _same_kind(self, what: str, a: Value, b: Value) -> Kind:
        if a.kind != b.kind:
            raise ShapeError(
                f"{what} needs operands of one kind, not {a.kind} and {b.kind}; cast one of them"
            )
        return a.kind

    def _wrong_kind(self, what: str, a: Value, wanted: str) -> ShapeError:
        return ShapeError(
            f"{what} is defined for {wanted} values, not for {a.kind} values; cast first"
        )

    def _broadcast(self, operation: Callable[[Any, Any], Any], a: Value, b: Value) -> Any:
        """Apply an array operation to two values' data, logical axes aligned.

        Raises:
            ShapeError: if the sizes do not fit.
        """
        rank = max(a.rank, b.rank)
        try:
            return operation(aligned(a.data, rank), aligned(b.data, rank))
        except ValueError as error:
            raise ShapeError(
                f"tensors of shapes {self.shape(a)} and {self.shape(b)} do not fit together"
            ) from error

    # --- integers
    def _int_binary(
        self, what: str, operation: Callable[[Any, Any], Any], a: Value, b: Value
    ) -> Value:
        if a.kind != "int" or b.kind != "int":
            raise ShapeError(
                f"{what} needs two operands of one kind, field or int, not {a.kind} and {b.kind}; "
                f"cast first"
            )
        return Value("int", self._broadcast(operation, a, b))

    def floor_divide(self, a: Value, b: Value) -> Value:
        self._nonzero_divisor(b)
        return self._int_binary("floor_divide", self.xp.floor_divide, a, b)

    def remainder(self, a: Value, b: Value) -> Value:
        self._nonzero_divisor(b)
        return self._int_binary("remainder", self.xp.remainder, a, b)

    def _nonzero_divisor(self, b: Value) -> None:
        if b.kind == "int" and bool((b.data == 0).any()):
            raise UnsupportedError("an integer is divided by zero, which has no meaning")

    # --- booleans
    def _logical(
        self, what: str, operation: Callable[[Any, Any], Any], a: Value, b: Value
    ) -> Value:
        if a.kind != "bool" or b.kind != "bool":
            raise ShapeError(
                f"{what} is defined for bool values, not for {a.kind} and {b.kind}; cast first"
            )
        return Value("bool", self._broadcast(operation, a, b))

    def logical_and(self, a: Value, b: Value) -> Value:
        return self._logical("logical_and", self.xp.logical_and, a, b)

    def logical_or(self, a: Value, b: Value) -> Value:
        return self._logical("logical_or", self.xp.logical_or, a, b)

    def logical_not(self, a: Value) -> Value:
        if a.kind != "bool":
            raise self._wrong_kind("logical_not", a, "bool")
        return Value("bool", ~a.data)

    # --- order: an algebra adds the keys by which values compare
    def _keys(self, values: tuple[Value, ...], nan_first: bool = False) -> list[Any]:  # noqa: ARG002 (integers have no NaN)
        """Return arrays of shape (1, trials, instances, *shape) that compare as the values do."""
        if any(v.kind == "bool" for v in values):
            raise self._wrong_kind("an order", values[0], "field and int")
        return [v.data for v in values]

    def _extremum(self, what: str, a: Value, b: Value, largest: bool) -> Value:
        self._same_kind(what, a, b)
        x, y = self._keys((a, b), nan_first=not largest)
        rank = max(a.rank, b.rank)
        x, y = aligned(x, rank), aligned(y, rank)
        try:
            first = x >= y if largest else x <= y
        except ValueError as error:
            raise ShapeError(
                f"tensors of shapes {self.shape(a)} and {self.shape(b)} do not fit together"
            ) from error
        if a.kind == "field":
            # An instance with only infinity to compare with has only one outcome: a rank that may
            # look at no key of a hop, for example.
            forced = _last(x, largest) | _last(y, largest)
            forced = forced.all(axis=tuple(range(LEADING, LEADING + rank)), keepdims=True)
            self._record(first, (x == y) | forced)
        return self._select(first, a, b)

    def maximum(self, a: Value, b: Value) -> Value:
        return self._extremum("maximum", a, b, True)

    def minimum(self, a: Value, b: Value) -> Value:
        return self._extremum("minimum", a, b, False)

    def _reduced(self, a: Value, axis: int, largest: bool) -> Value:
        if not 0 <= axis < a.rank or self.shape(a)[axis] == 0:
            raise ShapeError(
                f"a tensor of shape {self.shape(a)} has no extremum along dimension {axis}"
            )
        key = self._keys((a,), nan_first=not largest)[0]
        place = LEADING + axis
        where = self.xp.expand_dims(
            key.argmax(axis=place) if largest else key.argmin(axis=place), place
        )
        if self.shape(a)[axis] > 1 and a.kind == "field":
            self._record_reduction(key, place, largest)
            if self.shape(a)[axis] > MOST_SLOTS:
                self._record_choice(where, key, place, largest)
        indices = Value("int", where)
        return self.reshape(
            self.take_along(a, axis, indices), self.shape(a)[:axis] + self.shape(a)[axis + 1 :]
        )

    def _record_reduction(self, key: Any, place: int, largest: bool) -> None:
        """Record for every element that it is chosen or not.

        Exceptions are infinity that comes last, and an element that is alone with it. Of many
        elements only this is recorded: whether the next one exceeds the extremum so far.
        """
        if key.shape[place] <= MOST_SLOTS:
            best = (
                key.max(axis=place, keepdims=True)
                if largest
                else key.min(axis=place, keepdims=True)
            )
            last = _last(key, largest)
            alone = last.sum(axis=place, keepdims=True) >= key.shape[place] - 1
            chosen = key == best
            free = last | alone | chosen.all(axis=place, keepdims=True)
            self._record_slots(*(self.xp.moveaxis(each, place, -1) for each in (chosen, free)))
            return
        held = to_host(self.xp, key)
        kept = (np.maximum if largest else np.minimum).accumulate(held, axis=place)
        behind = (slice(None),) * place
        before, following = kept[(*behind, slice(None, -1))], held[(*behind, slice(1, None))]
        self._record(
            self.xp.asarray(before >= following if largest else before <= following),
            self.xp.asarray(before == following),
        )

    def _ranks(self, a: Value, axis: int, descending: bool) -> Any:  # noqa: ARG002 (numbers without order need both)
        """Return integers of shape (1, trials, instances, *shape) by which ``axis`` is ordered."""
        return self._keys((a,))[0]

    def reduce_max(self, a: Value, axis: int) -> Value:
        return self._reduced(a, axis, True)

    def reduce_min(self, a: Value, axis: int) -> Value:
        return self._reduced(a, axis, False)

    def shift(self, a: Value, axis: int) -> Value:
        """Return the maximum, which keeps real numbers in range."""
        return self._reduced(a, axis, True)

    def order(self, a: Value, axis: int, descending: bool) -> Value:
        if not 0 <= axis < a.rank:
            raise ShapeError(
                f"a tensor of shape {self.shape(a)} has no dimension {axis} to order along"
            )
        key = self._ranks(a, axis, descending)
        place = LEADING + axis
        if self.shape(a)[axis] > 1 and a.kind == "field":
            behind = (slice(None),) * place
            before, following = key[(*behind, slice(None, -1))], key[(*behind, slice(1, None))]
            self._record(before >= following, before == following)
        indices = self.xp.argsort(-key if descending else key, axis=place, kind="stable").astype(
            np.int64
        )
        if self.shape(a)[axis] > 1 and a.kind == "field":
            self._record_choice(
                indices[(*(slice(None),) * place, slice(0, 1))], key, place, descending
            )
        return Value("int", indices)

    # --- choice
    def where(self, condition: Value, a: Value, b: Value) -> Value:
        if condition.kind != "bool":
            raise self._wrong_kind("the condition of where", condition, "bool")
        self._same_kind("where", a, b)
        return self._select(condition.data, a, b)

    def _select(self, condition: Any, a: Value, b: Value) -> Value:
        """Return elements of ``a`` where ``condition`` holds, else of ``b``, on the common levels.

        ``condition`` has shape (1, trials, instances, ...).
        """
        a, b = self.opened(a), self.opened(b)
        rank = max(a.rank, b.rank, condition.ndim - LEADING)
        chosen = aligned(condition, rank)
        low, stop = self._common([a, b])
        x, y = (aligned(v.data[low - v.lowest : stop - v.lowest], rank) for v in (a, b))
        try:
            data = self.xp.where(chosen, x, y)
        except ValueError as error:
            raise ShapeError(
                f"where: shapes {condition.shape[LEADING:]}, {self.shape(a)} and {self.shape(b)} "
                f"do not fit together"
            ) from error
        special = None
        if a.special is not None or b.special is not None:
            codes = [np.uint8(0) if v.special is None else aligned(v.special, rank) for v in (a, b)]
            special = self.xp.where(chosen, *codes)
            special = (
                self.xp.broadcast_to(special, (1, *special.shape[1:LEADING], *data.shape[LEADING:]))
                if bool(special.any())
                else None
            )
        shape = data.shape[LEADING:]
        logs = self._selected_logs(condition, a, b, shape)
        parts = self._merged_parts(
            (a, b), lambda own: self.expand(self._select(condition, *own), shape)
        )
        nonnegative = a.nonnegative and b.nonnegative
        return Value(a.kind, data, low, special, logs, nonnegative, None, parts)

    def _selected_logs(
        self, condition: Any, a: Value, b: Value, shape: tuple[int, ...]
    ) -> tuple[tuple[int, Value], ...]:
        if not a.logs and not b.logs:
            return ()
        one = self.constant(Fraction(1))
        bases = [dict(v.logs) for v in (a, b)]
        chosen = sorted({*bases[0], *bases[1]})
        return tuple(
            (
                n,
                self.expand(
                    self._select(condition, bases[0].get(n, one), bases[1].get(n, one)), shape
                ),
            )
            for n in chosen
        )

    # --- casts
    def cast(self, a: Value, kind: Kind) -> Value:
        if a.kind == kind:
            return a
        if kind == "bool":
            return self.compare("ne", a, self.constant(Fraction(0), a.kind))
        if kind == "int":
            return Value("int", a.data.astype(np.int64)) if a.kind == "bool" else self._truncated(a)
        return self._embedded(Value("int", a.data.astype(np.int64)) if a.kind == "bool" else a)

    def compare(self, comparison: Comparison, a: Value, b: Value) -> Value:
        kind = self._same_kind(f"comparison {comparison}", a, b)
        if kind == "field":
            return self._compare_field(comparison, a, b)
        return Value("bool", self._broadcast(getattr(self.xp, COMPARISONS[comparison]), a, b))

    def _compare_field(self, comparison: Comparison, a: Value, b: Value) -> Value:
        raise NotImplementedError

    def _truncated(self, a: Value) -> Value:
        raise NotImplementedError

    def _embedded(self, a: Value) -> Value:
        raise NotImplementedError

    def _discrete_constant(self, number: Fraction | float, kind: Kind) -> Value:
        """Return an int or bool constant.

        Raises:
            UnsupportedError: if the number is not an integer, or does not fit 64 bits.
        """
        if not isinstance(number, Fraction | int) or Fraction(number).denominator != 1:
            raise UnsupportedError(f"{number} is not an integer, and so no constant of kind {kind}")
        if kind == "int" and not -(2**63) <= number < 2**63:
            raise UnsupportedError(
                f"an integer of about 2^{abs(int(number)).bit_length()} beside integers has no "
                f"meaning here: they have 64 bits"
            )
        if kind == "bool":
            return Value("bool", self.xp.full((1, 1, 1), number != 0))
        return Value("int", self.xp.full((1, 1, 1), int(number), dtype=np.int64))
