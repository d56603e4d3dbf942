"""Outcomes of decisions by integers that no drawn integers can lead to.

Every element has a least and a greatest number, which are computed as two draws side by side.

>>> algebra = IntervalAlgebra()
>>> i = Value("int", np.array([0, 9]).reshape(1, 2, 1))
>>> two = algebra.constant(2, "int")
>>> algebra.multiply(algebra.negate(i), two).data.reshape(-1).tolist()
[-18, 0]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.interface import Comparison, Kind
from pitcheck.algebra.structure import aligned
from pitcheck.algebra.value import LEADING, Value
from pitcheck.errors import PitcheckError, UnsupportedError
from pitcheck.prove.integers.cone import Cone
from pitcheck.prove.integers.sourced import SourcedAlgebra
from pitcheck.stage.drawn_inputs import draw

Bools = NDArray[np.bool_]
FAR = 1 << 40
"""The size of integers beyond which nothing is computed, so that nothing wraps around."""


class IntervalAlgebra(SourcedAlgebra):
    """Least numbers in the first draw, greatest ones in the second; fixed values have one draw.

    A number equals one place at most, so of a row of ``x == places`` one element at most is not 0.
    """

    def __init__(self) -> None:
        super().__init__()
        self._single: dict[int, tuple[Value, frozenset[int]]] = {}

    def _with_single(self, value: Value, axes: frozenset[int]) -> Value:
        """Note that along each of ``axes``, counted from the end, one element is not 0 at most."""
        if axes:
            self._single[id(value)] = value, axes
        return value

    def _single_of(self, value: Value) -> frozenset[int]:
        return self._single.get(id(value), (value, frozenset[int]()))[1]

    def cast(self, a: Value, kind: Kind) -> Value:
        return self._with_single(super().cast(a, kind), self._single_of(a))

    def _made(self, kind: Kind, least: Any, greatest: Any) -> Value:
        """Return a value of these numbers, both of shape (1, 1, instances, *shape)."""
        first, second = np.broadcast_arrays(least, greatest)
        data = np.concatenate([first, second], axis=1)
        if kind != "bool" and bool((np.abs(data) > FAR).any()):
            raise UnsupportedError("integers are too large for their range to be followed")
        return Value(kind, data)

    def _refused(self, *values: Any) -> Value:
        raise UnsupportedError(f"no range is followed through this operation of {len(values)}")

    def integers(self, array: Any) -> Value:
        # Free integers: what is drawn here is one of all.
        value = super().integers(array)
        if value.special is not None:
            return self._refused(value)
        return value

    # --- arithmetic
    def add(self, a: Value, b: Value) -> Value:
        return self._arithmetic(super().add, a, b)

    def subtract(self, a: Value, b: Value) -> Value:
        return self._arithmetic(super().subtract, a, b, turned=True)

    def _arithmetic(
        self, compute: Callable[[Value, Value], Value], a: Value, b: Value, turned: bool = False
    ) -> Value:
        """Return what grows with the first operand, and with the second unless ``turned``."""
        (least, most), (low, high) = _ends(a), _ends(b)
        if turned:
            low, high = high, low
        return self._made(a.kind, compute(least, low).data, compute(most, high).data)

    def negate(self, a: Value) -> Value:
        least, most = _ends(a)
        return self._made(a.kind, -most.data, -least.data)

    def multiply(self, a: Value, b: Value) -> Value:
        self._note("joint", a, b)
        below = self._multiplied
        found = [below(x, y).data for x in _ends(a) for y in _ends(b)]
        made = self._made(a.kind, np.minimum.reduce(found), np.maximum.reduce(found))
        return self._with_single(made, self._single_of(a) | self._single_of(b))

    def sum(self, a: Value, axes: Sequence[int]) -> Value:
        below = super().sum
        ends = _ends(a)
        for axis in [axis for axis in axes if axis - a.rank in self._single_of(a)][:1]:
            along = {"axis": LEADING + axis, "keepdims": True, "initial": 0}
            ends = (
                replace(ends[0], data=ends[0].data.min(**along)),
                replace(ends[1], data=ends[1].data.max(**along)),
            )
        least, most = (below(x, axes).data for x in ends)
        return self._made(a.kind, least, most)

    def floor_divide(self, a: Value, b: Value) -> Value:
        self._note("floor_divide", a, b)
        by = _fixed(b)
        least, most = (np.floor_divide(*_both(x, by)) for x in _ends(a))
        return self._made("int", least, most)

    def remainder(self, a: Value, b: Value) -> Value:
        self._note("floor_divide", a, b)
        by = _fixed(b)
        (least, divisor), (most, _) = (_both(x, by) for x in _ends(a))
        within = least // divisor == most // divisor
        return self._made(
            "int",
            np.where(within, least % divisor, 0),
            np.where(within, most % divisor, divisor - 1),
        )

    def divide(self, a: Value, b: Value) -> Value:
        """Return the whole numbers between which a quotient by a positive number lies."""
        rank = max(a.rank, b.rank)
        by = aligned(_fixed(b).data, rank)
        if not bool((by > 0).all()):
            return self._refused(a, b)
        least, most = (aligned(x.data, rank) for x in _ends(a))
        return self._made(a.kind, least // by, -(-most // by))

    def power(self, a: Value, exponent: int) -> Value:
        return self._refused(a, exponent)

    def matmul(self, a: Value, b: Value) -> Value:
        return self._refused(a, b)

    def exp(self, a: Value) -> Value:
        return self._refused(a)

    def log(self, a: Value) -> Value:
        return self._refused(a)

    def sqrt(self, a: Value) -> Value:
        return self._refused(a)

    def function(self, name: str, *arguments: Value) -> Value:
        return self._refused(name, *arguments)

    def draw(self, stream: str, index: Value) -> Value:
        return self._refused(stream, index)

    # --- decisions
    def compare(self, comparison: Comparison, a: Value, b: Value) -> Value:
        self._note(comparison, a, b)
        may, may_not = possible(comparison, a, b)
        made = self._made("bool", ~may_not, may)
        axes = (_told_apart(a, b) | _told_apart(b, a)) if comparison == "eq" else frozenset[int]()
        return self._with_single(made, axes)

    def _differ(self, a: Value, b: Value) -> Value:
        apart, same = possible("ne", a, b)
        return self._made("bool", ~same, apart)

    def where(self, condition: Value, a: Value, b: Value) -> Value:
        self._note("joint", condition, self._differ(a, b))
        must, may = (x.data for x in _ends(condition))
        rank = max(condition.rank, a.rank, b.rank)
        must, may = aligned(must, rank), aligned(may, rank)
        (least, most), (low, high) = (
            tuple(aligned(x.data, rank) for x in _ends(v)) for v in (a, b)
        )
        return self._made(
            a.kind,
            np.where(must, least, np.where(may, np.minimum(least, low), low)),
            np.where(must, most, np.where(may, np.maximum(most, high), high)),
        )

    def logical_not(self, a: Value) -> Value:
        must, may = _ends(a)
        return self._made("bool", ~may.data, ~must.data)

    def reduce_max(self, a: Value, axis: int) -> Value:
        self._note_extremum("maximum", a, axis)
        return Value(a.kind, a.data.max(axis=LEADING + axis))

    def reduce_min(self, a: Value, axis: int) -> Value:
        self._note_extremum("minimum", a, axis)
        return Value(a.kind, a.data.min(axis=LEADING + axis))

    def order(self, a: Value, axis: int, descending: bool) -> Value:  # noqa: ARG002  any order
        self._note("order", a, a)
        shape = (1, 1, *a.data.shape[2:])
        return self._made(
            "int",
            np.zeros(shape, dtype=np.int64),
            np.full(shape, max(a.data.shape[LEADING + axis] - 1, 0), dtype=np.int64),
        )

    # --- indexing
    def take(self, a: Value, axis: int, indices: Value) -> Value:
        return super().take(a, axis, _fixed(indices))

    def take_along(self, a: Value, axis: int, indices: Value) -> Value:
        if a.data.shape[1] == indices.data.shape[1] == 2 and not _is_fixed(indices):
            return self._refused(a, indices)
        return super().take_along(a, axis, indices)

    def add_at(self, base: Value, axis: int, indices: Value, source: Value) -> Value:
        return super().add_at(base, axis, _fixed(indices), source)

    def add_along(self, base: Value, axis: int, indices: Value, source: Value) -> Value:
        return super().add_along(base, axis, _fixed(indices), source)


def _ends(a: Value) -> tuple[Value, Value]:
    """Return the least and the greatest numbers."""
    return replace(a, data=a.data[:, :1]), replace(a, data=a.data[:, -1:])


def _told_apart(a: Value, b: Value) -> frozenset[int]:
    """Return the axes, from the end, along which ``b`` has different fixed numbers and ``a`` one.

    An element of ``a`` then equals one of those of ``b`` at most.
    """
    if b.kind != "int" or not _is_fixed(b):
        return frozenset()
    found = set()
    for axis in range(-b.rank, 0):
        size = b.data.shape[axis]
        if size == 1 or (-axis <= a.rank and a.data.shape[axis] != 1):
            continue
        ordered = np.sort(b.data, axis=axis)
        if bool((np.diff(ordered, axis=axis) > 0).all()):
            found.add(axis)
    return frozenset(found)


def _is_fixed(a: Value) -> bool:
    return bool((a.data[:, :1] == a.data[:, -1:]).all())


def _fixed(a: Value) -> Value:
    """Return a value that is one number. Raises UnsupportedError."""
    if not _is_fixed(a):
        raise UnsupportedError("no range is followed through an operation with such an integer")
    return replace(a, data=a.data[:, :1])


def _both(a: Value, b: Value) -> tuple[Any, Any]:
    """Return numbers and positive divisors, aligned. Raises UnsupportedError."""
    rank = max(a.rank, b.rank)
    if a.kind != "int" or not bool((b.data > 0).all()):
        raise UnsupportedError("no range is followed through a division by such an integer")
    return aligned(a.data, rank), aligned(b.data, rank)


def possible(what: str, a: Value, b: Value) -> tuple[Bools, Bools]:
    """Return where a decision may hold, and where it may not, (1, 1, instances, *shape) each.

    An extremum holds if the first operand is beyond the second. Of a quotient the second means
    that there are several. Two factors hold if neither is 0.
    """
    rank = max(a.rank, b.rank)
    (least, most), (low, high) = (tuple(aligned(x.data, rank) for x in _ends(v)) for v in (a, b))
    if what in ("logical_and", "logical_or"):
        both = np.logical_and if what == "logical_and" else np.logical_or
        return both(most, high), ~both(least, low)
    if what == "joint":
        factors = (least != 0) | (most != 0), (low != 0) | (high != 0)
        held: Bools = np.logical_and(*factors)
        return held, np.ones_like(held)
    if what in ("eq", "ne", "zero"):
        meet = (least <= high) & (most >= low)
        apart = (least != most) | (low != high) | (least != low)
        return (apart, meet) if what == "ne" else (meet, apart)
    orders = {
        "lt": (least < high, most >= low),
        "le": (least <= high, most > low),
        "gt": (most > low, least <= high),
        "ge": (most >= low, least < high),
        "minimum": (least < high, most > low),
        "maximum": (most > low, least < high),
    }
    if what in orders:
        return orders[what]
    true: Bools = np.ones(np.broadcast_shapes(least.shape, low.shape), dtype=np.bool_)
    if what == "floor_divide" and bool((low == high).all()) and bool((low > 0).all()):
        return true, least // low != most // low
    return true, true


def possible_outcomes(cone: Cone, count: int) -> list[tuple[Bools, Bools]] | None:
    """Return for each of ``count`` decisions where it may hold, and where it may not.

    Return None if that is not known.
    """
    algebra = IntervalAlgebra()
    algebra.events = []
    if _ranges(cone, algebra) is None or len(algebra.events) != count:
        return None
    return [possible(event.what, event.first, event.second) for event in algebra.events]


def possible_changes(cone: Cone) -> tuple[dict[int, Bools], dict[int, Bools]] | None:
    """Return by value of either side where drawn integers may change it, or None if not known.

    The shapes are (1, 1, instances, *shape).
    """
    found = _ranges(cone, IntervalAlgebra())
    if found is None:
        return None
    first, second = (
        {value: v.data[:, :1] != v.data[:, -1:] for value, v in side.items()} for side in found
    )
    return first, second


def _ranges(
    cone: Cone, algebra: IntervalAlgebra
) -> tuple[dict[int, Value], dict[int, Value]] | None:
    """Return the least and the greatest numbers of all values; None if that is not known."""
    drawn = {}
    try:
        for value, fresh in cone.shaped.fresh.items():
            if value in cone.drawn:
                low, high = fresh.bounds or (0, 2)
                ends = np.array([low, high - 1]).reshape(1, 2, 1, *(1,) * len(fresh.shape))
                numbers = np.broadcast_to(ends, (1, 2, 1, *fresh.shape))
                kind = fresh.kind
                drawn[value] = Value(kind, numbers != 0 if kind == "bool" else numbers)
            elif fresh.kind != "field" or fresh.numbers:
                drawn[value] = draw(algebra, fresh)
        return cone.without_places().run(algebra, drawn)
    except PitcheckError:
        return None


def may_be(outcome: Bools, where: Bools) -> Bools:
    """Return in which instances an outcome is possible at an element that counts.

    ``outcome`` has shape (1, 1, instances or 1, *shape), ``where`` (instances, *shape).
    """
    held = np.logical_and(np.broadcast_to(outcome[0, 0], where.shape), where)
    result: Bools = held.reshape(len(where), -1).any(axis=1)
    return result
