"""The algebra of sources: from which drawn integer each element of a discrete value is computed.

An element is fixed, or a function of one drawn element, or of several ones, or of numbers that are
not drawn here. Its code also says if arithmetic made it, and if a computed integer decided it. The
same algebra computes the numbers, so that indices that the program fixes choose between codes.

>>> algebra = SourcedAlgebra()
>>> i = algebra.drawn(np.zeros((1, 1, 1, 2)), "int", first=1)
>>> codes = algebra.sum(algebra.multiply(i, i), (0,)).special
>>> int(element_of(codes).item()) == MANY, bool(is_hard(codes))
(True, False)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.interface import Comparison, Kind
from pitcheck.algebra.keyed import key_of
from pitcheck.algebra.reals.real import RealAlgebra
from pitcheck.algebra.structure import aligned
from pitcheck.algebra.value import LEADING, Value

Codes = NDArray[np.int64]
How = Literal["sum", "product", "function"]
"""The ways in which elements make another one: as terms, as factors, or in any way."""

COMPUTED = 1
"""The bit of an element that arithmetic made: it is no longer a drawn integer, nor compared one."""
HARD = 2
"""The bit of an element that depends on a decision by a computed integer."""
SHIFT = 2
"""The bits below the number of the drawn element."""
MANY = 1 << 40
"""The number that stands for several drawn elements."""
FOREIGN = 1 << 41
"""The number that stands for what is drawn in another way: free padding, random streams."""
MOST_FIXED = 64
"""The fixed integers up to which each is looked at. More are the places of a dimension."""
MOST_PLACES = 64
"""The elements of an extremum up to which each is looked at."""
TOO_WIDE = 11
"""The bits of a word that float64 cannot hold."""
STEPPED = frozenset({"floor", "ceil", "round"})
"""The functions that take few values, and jump between them."""


@dataclass(frozen=True)
class Event:
    """A decision of integers: its ``site``, its sort, and both operands as they are.

    ``what`` is a comparison, "maximum", "minimum", "floor_divide", "logical_and", "logical_or",
    "order", which has one operand twice, "lookup", which has indices and a digest of what they
    are into, "zero", which has a divisor and 0, or "joint", which has
    two factors, or a condition and if what it chooses between differs.
    """

    site: str
    what: str
    first: Value
    second: Value


def element_of(codes: Codes) -> Codes:
    """Return the numbers of the drawn elements, 0 for none, of the same shape."""
    result: Codes = codes >> SHIFT
    return result


def is_hard(codes: Codes) -> NDArray[np.bool_]:
    """Return where a computed integer decides, of the same shape."""
    result: NDArray[np.bool_] = codes & HARD != 0
    return result


def merged(a: Codes, b: Codes) -> Codes:
    """Return the codes of elements that depend on two elements each; shapes broadcast."""
    one, two = element_of(a), element_of(b)
    both = np.where((one == FOREIGN) | (two == FOREIGN), FOREIGN, MANY)
    found = np.where(one == 0, two, np.where((two == 0) | (one == two), one, both))
    result: Codes = found << SHIFT | ((a | b) & (COMPUTED | HARD))
    return result


def merged_along(codes: Codes, axes: tuple[int, ...]) -> Codes:
    """Return the codes of elements that depend on all along some axes, which are kept at size 1."""
    for axis in axes:
        element = element_of(codes)
        most = element.max(axis=axis, keepdims=True, initial=0)
        least = np.where(element == 0, FOREIGN + 1, element).min(
            axis=axis, keepdims=True, initial=FOREIGN + 1
        )
        found = np.where((most == 0) | (most == least) | (most == FOREIGN), most, MANY)
        flags = np.bitwise_or.reduce(codes, axis=axis, keepdims=True) & (COMPUTED | HARD)
        codes = found << SHIFT | flags
    return codes


def codes_of(value: Value) -> Codes | None:
    """Return the codes of a value, shape (1, 1, instances, *shape); None if all of it is fixed."""
    codes: Codes | None = value.special
    return codes


class SourcedAlgebra(RealAlgebra):
    """Numbers of many draws, with the source of every element in ``special``.

    Sources are followed in an algebra of one draw only; values without codes are fixed there.
    ``events`` lists the decisions in the order in which they were made, if it is not None.
    """

    def __init__(self, trials: Sequence[int] = (0,), seed: int = 0) -> None:
        super().__init__(np, seed, trials)
        self.events: list[Event] | None = None
        self._foreign_integers = False
        self.marked: frozenset[int] | None = None
        """The integers that draws hold anyway. A comparison with another one decides as a computed
        integer does; None: none does.
        """

    def drawn(self, numbers: Any, kind: Kind, first: int) -> Value:
        """Return drawn integers or booleans, shape (1, draws, 1, *shape).

        Their elements have the numbers ``first``, ``first`` + 1, ...
        """
        shape = numbers.shape[LEADING:]
        size = int(np.prod(shape, dtype=np.int64))
        codes = np.arange(first, first + size, dtype=np.int64).reshape((1, 1, 1, *shape)) << SHIFT
        return Value(kind, numbers, special=codes)

    def integers(self, array: Any) -> Value:
        value = super().integers(array)
        return self._foreign(value) if self._foreign_integers else value

    @contextmanager
    def free_numbers(self) -> Iterator[None]:
        """Take integers that are made meanwhile for free ones, whose elements have no numbers."""
        self._foreign_integers = True
        try:
            yield
        finally:
            self._foreign_integers = False

    def _foreign(self, value: Value) -> Value:
        codes = np.full((1, 1, *value.data.shape[2:]), FOREIGN << SHIFT, dtype=np.int64)
        return replace(value, special=codes)

    # --- nobody counts outcomes here
    def _record(self, outcome: Any, free: Any) -> None:
        pass

    def _record_choice(self, first: Any, key: Any, place: int, largest: bool) -> None:
        pass

    def _record_reduction(self, key: Any, place: int, largest: bool) -> None:
        pass

    def _combine(self, values: Sequence[Value], axis: int, counts: Sequence[int] | None) -> Value:
        return self._of_one_draw(super()._combine(values, axis, counts))

    def _of_one_draw(self, a: Value) -> Value:
        """Return a value with codes for one draw, where moving its data gave some to each."""
        return a if a.special is None else replace(a, special=self._in_any_draw(a.special))

    def _in_any_draw(self, codes: Codes) -> Codes:
        """Return the codes of what an element may be made of in any draw, for one draw."""
        return codes if codes.shape[1] == 1 else self._codes_along(codes, (1,), "sum")

    # --- codes of results
    def _coded(self, result: Value, codes: Codes | None, flags: int) -> Value:
        """Return a result with codes and further flags; fixed elements have none."""
        if codes is None:
            return result
        codes = self._in_any_draw(codes)
        codes = np.where(element_of(codes) == 0, 0, codes | flags)
        shape = (1, 1, *result.data.shape[2:])
        return replace(result, special=np.broadcast_to(aligned(codes, result.rank), shape))

    def _codes_of_both(self, a: Codes, b: Codes, how: How) -> Codes:  # noqa: ARG002 (sources are a set)
        """Return the codes of elements that are made of two elements each; shapes broadcast."""
        return merged(a, b)

    def _codes_along(self, codes: Codes, axes: tuple[int, ...], how: How) -> Codes:  # noqa: ARG002
        """Return the codes of elements that are made of all along some axes, kept at size 1."""
        return merged_along(codes, axes)

    def _codes_of_one(self, codes: Codes, how: How) -> Codes:  # noqa: ARG002 (as above)
        """Return the codes of elements that are made of one element each."""
        return codes

    def _merged(self, operands: Sequence[Value], how: How) -> Codes | None:
        """Return the codes of an elementwise operation; None if all operands are fixed."""
        rank = max(a.rank for a in operands)
        found = [aligned(a.special, rank) for a in operands if a.special is not None]
        result: Codes | None = None
        for codes in found:
            result = codes if result is None else self._codes_of_both(result, codes, how)
        return result if result is None else self._codes_of_one(result, how)

    def _each(
        self,
        compute: Callable[..., Value],
        *operands: Value,
        how: How = "function",
        decides: bool = False,
    ) -> Value:
        """Return an elementwise result. With ``decides`` a computed operand makes it hard."""
        result = compute(*(_bare(a) for a in operands))
        codes = self._merged(operands, how)
        if codes is None:
            return result
        if not decides:
            return self._coded(result, codes, COMPUTED)
        if any(self._is_unmarked(a) for a in operands):
            return self._coded(result, codes, HARD)
        hard = np.where(codes & COMPUTED != 0, codes | HARD, codes)
        return self._coded(result, hard, 0)

    def _is_unmarked(self, a: Value) -> bool:
        """Return True if a value is of few fixed integers, some of which no draw holds anyway."""
        if self.marked is None or a.special is not None or a.kind != "int":
            return False
        numbers = set(np.unique(a.data).tolist())
        return len(numbers) <= MOST_FIXED and not numbers <= self.marked

    def _along(
        self,
        compute: Callable[[Value], Value],
        a: Value,
        axes: tuple[int, ...],
        *,
        how: How = "function",
        keep: bool = False,
        decides: bool = False,
    ) -> Value:
        """Return a result that depends on all elements along some axes.

        They disappear unless ``keep`` says that the result has them all. With ``decides`` computed
        operands make it hard.
        """
        result = compute(_bare(a))
        if a.special is None:
            return result
        codes = self._codes_along(a.special, tuple(LEADING + axis for axis in axes), how)
        if decides:
            codes = np.where(codes & COMPUTED != 0, codes | HARD, codes)
        if not keep:
            codes = codes.squeeze(tuple(LEADING + axis for axis in axes))
        return self._coded(result, codes, COMPUTED)

    def _note(self, what: str, a: Value, b: Value) -> None:
        """Note a decision."""
        if self.events is not None:
            self.events.append(Event(self.site, what, a, b))

    def note_divisor(self, a: Value) -> None:
        """Note a value that is divided by, and may be 0."""
        self._note("zero", a, self.constant(Fraction(0), a.kind))

    def _note_lookup(self, table: Value, indices: Value) -> None:
        """Note indices into a fixed table, which may be otherwise at places that no draw meets."""
        if self.events is not None:
            word = key_of(self.seed, table.data.shape, np.ascontiguousarray(table.data).tobytes())
            content = self.constant(Fraction(word >> TOO_WIDE), "int")
            self._note("lookup", indices if table.special is None else _bare(indices), content)

    def _differ(self, a: Value, b: Value) -> Value:
        """Return where two values differ, with the sources of both."""
        rank = max(a.rank, b.rank)
        apart = aligned(a.data, rank) != aligned(b.data, rank)
        return Value("bool", apart, special=self._merged((a, b), "sum"))

    def _note_extremum(self, what: str, a: Value, axis: int) -> None:
        """Note one decision for each place along an axis: it, or the extremum of the others."""
        if self.events is None:
            return
        place, count = LEADING + axis, a.data.shape[LEADING + axis]
        if not 1 < count <= MOST_PLACES:
            return
        extreme = np.max if what == "maximum" else np.min
        for each in range(count):
            own, others = (
                Value(
                    a.kind,
                    extreme(a.data.take(places, axis=place), axis=place),
                    special=None
                    if a.special is None
                    else merged_along(a.special.take(places, axis=place), (place,)).squeeze(place),
                )
                for places in ([each], [n for n in range(count) if n != each])
            )
            self._note(what, own, others)

    # --- arithmetic
    def add(self, a: Value, b: Value) -> Value:
        return self._each(super().add, a, b, how="sum")

    def subtract(self, a: Value, b: Value) -> Value:
        return self._each(super().subtract, a, b, how="sum")

    def multiply(self, a: Value, b: Value) -> Value:
        self._note("joint", a, b)
        return self._multiplied(a, b)

    def _multiplied(self, a: Value, b: Value) -> Value:
        return self._each(super().multiply, a, b, how="product")

    def negate(self, a: Value) -> Value:
        return self._each(super().negate, a, how="sum")

    def divide(self, a: Value, b: Value) -> Value:
        if b.special is not None:
            b = replace(b, special=self._codes_of_one(b.special, "function"))
        return self._each(super().divide, a, b, how="product")

    def power(self, a: Value, exponent: int) -> Value:
        below = super().power
        return self._each(lambda x: below(x, exponent), a)

    def exp(self, a: Value) -> Value:
        return self._each(super().exp, a)

    def log(self, a: Value) -> Value:
        return self._each(super().log, a)

    def sqrt(self, a: Value) -> Value:
        return self._each(super().sqrt, a)

    def function(self, name: str, *arguments: Value) -> Value:
        below = super().function
        return self._stepped(
            self._each(lambda *x: below(name, *x), *arguments), HARD if name in STEPPED else 0
        )

    def _stepped(self, value: Value, flags: int = HARD) -> Value:
        """Return a value whose drawn elements have further flags."""
        return self._coded(value, value.special, flags)

    def draw(self, stream: str, index: Value) -> Value:
        return self._foreign(super().draw(stream, _bare(index)))

    def floor_divide(self, a: Value, b: Value) -> Value:
        self._note("floor_divide", a, b)
        return self._stepped(self._each(super().floor_divide, a, b))

    def remainder(self, a: Value, b: Value) -> Value:
        self._note("floor_divide", a, b)
        return self._stepped(self._each(super().remainder, a, b))

    def sum(self, a: Value, axes: Sequence[int]) -> Value:
        below = super().sum
        return self._along(lambda x: below(x, axes), a, tuple(axes), how="sum")

    def matmul(self, a: Value, b: Value) -> Value:
        self._note("joint", _with_axis(a, -1), _with_axis(b, -3))
        result = super().matmul(_bare(a), _bare(b))
        rank = result.rank
        found = [
            self._codes_along(aligned(x.special, rank), (axis,), "sum")
            for x, axis in ((a, -1), (b, -2))
            if x.special is not None
        ]
        codes: Codes | None = found[0] if found else None
        if len(found) == 2:
            codes = self._codes_of_both(found[0], found[1], "product")
        return self._coded(result, codes, COMPUTED)

    # --- decisions
    def compare(self, comparison: Comparison, a: Value, b: Value) -> Value:
        if a.kind == "int" and a.data is b.data:
            # An integer equals itself, whatever decides what it is.
            return super().compare(comparison, _bare(a), _bare(b))
        below = super().compare
        self._note(comparison, a, b)
        return self._each(lambda x, y: below(comparison, x, y), a, b, decides=True)

    def where(self, condition: Value, a: Value, b: Value) -> Value:
        self._note("joint", condition, self._differ(a, b))
        result = super().where(_bare(condition), _bare(a), _bare(b))
        if condition.special is not None:
            rank, other = result.rank, self._merged((a, b), "sum")
            codes = aligned(condition.special, rank)
            if other is not None:
                codes = self._codes_of_both(codes, aligned(other, rank), "product")
            flags = np.where(condition.special & (COMPUTED | HARD) != 0, HARD | COMPUTED, COMPUTED)
            known = codes | aligned(flags, rank)
            return self._coded(result, known, COMPUTED)
        if a.special is None and b.special is None:
            return result
        sides = [
            np.zeros(1, dtype=np.int64) if x.special is None else aligned(x.special, result.rank)
            for x in (a, b)
        ]
        return self._coded(result, np.where(aligned(condition.data, result.rank), *sides), 0)

    def logical_and(self, a: Value, b: Value) -> Value:
        self._note("logical_and", a, b)
        return self._each(super().logical_and, a, b, how="product", decides=True)

    def logical_or(self, a: Value, b: Value) -> Value:
        self._note("logical_or", a, b)
        return self._each(super().logical_or, a, b, how="product", decides=True)

    def logical_not(self, a: Value) -> Value:
        return self._each(super().logical_not, a, how="sum", decides=True)

    def maximum(self, a: Value, b: Value) -> Value:
        self._note("maximum", a, b)
        return self._each(super().maximum, a, b, decides=True)

    def minimum(self, a: Value, b: Value) -> Value:
        self._note("minimum", a, b)
        return self._each(super().minimum, a, b, decides=True)

    def reduce_max(self, a: Value, axis: int) -> Value:
        below = super().reduce_max
        self._note_extremum("maximum", a, axis)
        return self._along(lambda x: below(x, axis), a, (axis,), decides=True)

    def reduce_min(self, a: Value, axis: int) -> Value:
        below = super().reduce_min
        self._note_extremum("minimum", a, axis)
        return self._along(lambda x: below(x, axis), a, (axis,), decides=True)

    def shift(self, a: Value, axis: int) -> Value:
        below = super().shift
        return self._along(lambda x: below(x, axis), a, (axis,))

    def order(self, a: Value, axis: int, descending: bool) -> Value:
        below = super().order
        self._note("order", a, a)
        return self._along(
            lambda x: below(x, axis, descending), a, (axis,), keep=True, decides=True
        )

    def cast(self, a: Value, kind: Kind) -> Value:
        if kind in (a.kind, "bool"):
            return super().cast(a, kind)  # a comparison with 0
        below = super().cast
        how: How = "function" if a.kind == "field" else "sum"
        result = self._each(lambda x: below(x, kind), a, how=how)
        return self._stepped(result) if a.kind == "field" else result

    # --- indexing
    def _indexing(self, indices: Value) -> Codes:
        """Return the codes of indices; computed ones decide."""
        codes = self._codes_of_one(indices.special, "function")
        result: Codes = np.where(codes & COMPUTED != 0, codes | HARD, codes)
        return result

    def take(self, a: Value, axis: int, indices: Value) -> Value:
        self._note_lookup(a, indices)
        if indices.special is None:
            return self._of_one_draw(super().take(a, axis, indices))
        result = super().take(_bare(a), axis, _bare(indices))
        behind = a.rank - axis - 1
        codes = self._indexing(indices)
        codes = codes.reshape(*codes.shape, *(1,) * behind)
        if a.special is not None:
            place = LEADING + axis
            whole = self._codes_along(a.special, (place,), "sum").squeeze(place)
            before = whole.shape[: LEADING + axis]
            whole = whole.reshape(*before, *(1,) * indices.rank, *whole.shape[LEADING + axis :])
            codes = self._codes_of_both(aligned(codes, result.rank), whole, "product")
        return self._coded(result, codes, COMPUTED)

    def take_along(self, a: Value, axis: int, indices: Value) -> Value:
        self._note_lookup(a, indices)
        if indices.special is None:
            return self._of_one_draw(super().take_along(a, axis, indices))
        result = super().take_along(_bare(a), axis, _bare(indices))
        codes = self._indexing(indices)
        if a.special is not None:
            whole = self._codes_along(a.special, (LEADING + axis,), "sum")
            codes = self._codes_of_both(codes, whole, "product")
        return self._coded(result, codes, COMPUTED)

    def add_at(self, base: Value, axis: int, indices: Value, source: Value) -> Value:
        result = super().add_at(_bare(base), axis, _bare(indices), _bare(source))
        return self._codes_scattered(result, base, (axis, indices, source), self._codes_added_at)

    def add_along(self, base: Value, axis: int, indices: Value, source: Value) -> Value:
        result = super().add_along(_bare(base), axis, _bare(indices), _bare(source))
        return self._codes_scattered(result, base, (axis, indices, source), self._codes_added_along)

    def _codes_scattered(
        self,
        result: Value,
        base: Value,
        added: tuple[int, Value, Value],
        codes_of_added: Callable[[Codes, int, Value, Codes], Codes],
    ) -> Value:
        """Return a result with the codes of what is added to ``base`` along an axis at indices."""
        axis, indices, source = added
        if base.special is indices.special is source.special is None:
            return result
        instances = max(v.data.shape[2] for v in (result, indices, source))
        known, own = (
            np.zeros((1, 1, 1, *shape), dtype=np.int64) if v.special is None else v.special
            for v, shape in ((base, self.shape(result)), (source, self.shape(source)))
        )
        known = np.broadcast_to(known, (1, 1, instances, *self.shape(result)))
        own = np.broadcast_to(own, (1, 1, instances, *self.shape(source)))
        return self._coded(result, codes_of_added(known, axis, indices, own), COMPUTED)

    def _codes_added_along(self, base: Codes, axis: int, indices: Value, source: Codes) -> Codes:
        """Return codes in which each element may hold what is added in its row along the axis."""
        place = (LEADING + axis,)
        if indices.special is not None:
            source = self._codes_of_both(source, self._indexing(indices), "product")
        return self._codes_of_both(base, self._codes_along(source, place, "sum"), "sum")

    def _codes_added_at(self, base: Codes, axis: int, indices: Value, source: Codes) -> Codes:
        """Return the codes where rows of ``source`` are added at indices along an axis."""
        count, place = prod(self.shape(indices)), LEADING + axis
        rows = source.reshape(*source.shape[:place], count, *base.shape[place + 1 :])
        if indices.special is not None:
            which = self._indexing(indices)
            which = which.reshape(*which.shape[:LEADING], count, *(1,) * (base.ndim - place - 1))
            which = which.reshape(*which.shape[:LEADING], *(1,) * axis, *which.shape[LEADING:])
            rows = self._codes_of_both(rows, which, "product")
        if indices.special is not None or not _same_in_all_draws(indices):
            return self._codes_of_both(base, self._codes_along(rows, (place,), "sum"), "sum")
        found = np.moveaxis(base.copy(), place, 3)
        rows = np.moveaxis(rows, place, 3)
        numbers = indices.data[:, :1]
        index = np.broadcast_to(
            numbers.reshape(*numbers.shape[:LEADING], count), (1, 1, base.shape[2], count)
        )
        for instance, own in enumerate(index[0, 0]):
            for at in _rounds(own):
                target = 0, 0, instance, own[at]
                found[target] = self._codes_of_both(found[target], rows[0, 0, instance, at], "sum")
        return np.moveaxis(found, 3, place)


def _rounds(index: Codes) -> Iterator[Codes]:
    """Yield the places of indices, shape (n,), such that no index is there twice at once."""
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    turn = np.arange(len(index)) - np.searchsorted(ordered, ordered)
    for number in range(int(turn.max(initial=-1)) + 1):
        yield order[turn == number]


def _with_axis(a: Value, place: int) -> Value:
    """Return a value with one more logical axis of size 1, at ``place`` from the end."""

    def wider(array: Any) -> Any:
        at = array.ndim + 1 + place
        return array.reshape(*array.shape[:at], 1, *array.shape[at:])

    return replace(a, data=wider(a.data), special=None if a.special is None else wider(a.special))


def _same_in_all_draws(a: Value) -> bool:
    return bool((a.data == a.data[:, :1]).all())


def _bare(a: Value) -> Value:
    """Return a value without codes."""
    return a if a.special is None else replace(a, special=None)
