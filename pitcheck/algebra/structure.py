"""Structural operations, indexing and instances: everything that only moves elements.

All concrete algebras share them.

>>> from pitcheck.algebra.reals.real import RealAlgebra
>>> algebra = RealAlgebra(np, seed=0, trials=(0,))
>>> x = algebra.integers(np.arange(6).reshape(1, 1, 2, 3))
>>> algebra.flip(algebra.slice(x, 1, 0, 2), 1).data[0, 0, 0].tolist()
[[1, 0], [4, 3]]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.backend import places_along, scatter_add
from pitcheck.algebra.interface import Kind
from pitcheck.algebra.shape_checks import (
    check_expansion,
    check_permutation,
    check_slice,
    check_view,
)
from pitcheck.algebra.value import LEADING, Value
from pitcheck.errors import BudgetError, ShapeError


def aligned(array: Any, rank: int) -> Any:
    """Return ``array`` with ``rank`` logical axes; size-1 axes are put behind the leading ones."""
    missing = rank + LEADING - array.ndim
    if missing <= 0:
        return array
    return array.reshape(array.shape[:LEADING] + (1,) * missing + array.shape[LEADING:])


@dataclass(frozen=True)
class Indexed:
    """Indices into an axis of ``size`` rows, of shape (1, trials or 1, instances, ...)."""

    site: str
    size: int
    index: Any


class Structure:
    """Operations that move the elements of values."""

    xp: Any
    site: str
    indexed: list[Indexed] | None = None
    """The indices of all steps, in their order; None if nobody asks for them."""

    # --- hooks for algebras
    def constant(self, number: Fraction | float, kind: Kind = "field") -> Value:
        raise NotImplementedError

    def plain(self, a: Value) -> Value:
        """Return ``a`` without formal logarithms and not as a formal root."""
        return a

    def opened(self, a: Value) -> Value:
        """Return ``a``, not as a formal root."""
        return a

    def _added_at(self, base: Any, axis: int, index: Any, source: Any, like: Value) -> Any:  # noqa: ARG002 (algebras of residues need it)
        """Return the array ``base`` (owned by the caller) with ``source`` added along an axis.

        ``index`` has the places along array axis ``axis``. ``like`` says kind and lowest level.
        """
        scatter_add(self.xp, base, places_along(self.xp, base.shape, index, axis), source)
        return base

    def _stand_ins(self, a: Value) -> Any:
        """Return float64 stand-ins for special values (only if an algebra has special codes)."""
        raise NotImplementedError

    def _codes(self, stand_ins: Any) -> Any:
        raise NotImplementedError

    # --- properties
    def shape(self, a: Value) -> tuple[int, ...]:
        shape: tuple[int, ...] = a.data.shape[LEADING:]
        return shape

    def kind(self, a: Value) -> Kind:
        return a.kind

    def levels(self, a: Value) -> range:
        """Return the chain levels at which ``a`` is defined.

        A formal logarithm of S is defined one level below S.
        """
        low, stop = a.lowest, a.lowest + int(a.data.shape[0])
        for _, s in a.logs:
            low, stop = max(low, s.lowest - 1), min(stop, s.lowest + int(s.data.shape[0]) - 1)
        return range(low, max(low, stop))

    def extent(self, a: Value, axes: Sequence[int]) -> Value:
        return self.constant(Fraction(prod(self.shape(a)[axis] for axis in axes)))

    def arange(self, like: Value, axis: int) -> Value:
        return Value(
            "int", self.xp.arange(self.shape(like)[axis], dtype=np.int64)[None, None, None]
        )

    def boundary(self, like: Value, axis: int, offset: int) -> Value:  # noqa: ARG002  which dimension it is along matters at other sizes alone
        return self.constant(Fraction(int(offset)), "int")

    # --- structure
    def _map(self, a: Value, move: Callable[[Any], Any]) -> Value:
        """Return a value with ``move`` applied to each of its arrays."""
        if a.special is None and not a.logs and not a.nonnegative and not a.parts:
            return Value(a.kind, move(a.data), a.lowest)
        special = None if a.special is None else move(a.special)
        square = None if a.square is None else self._map(a.square, move)
        return Value(
            a.kind,
            move(a.data),
            a.lowest,
            special,
            tuple((n, self._map(s, move)) for n, s in a.logs),
            a.nonnegative,
            square,
            tuple((n, self._map(part, move)) for n, part in a.parts),
        )

    def reshape(self, a: Value, shape: Sequence[int]) -> Value:
        check_view(self.shape(a), shape)
        return self._map(a, lambda d: d.reshape(d.shape[:LEADING] + tuple(shape)))

    def transpose(self, a: Value, permutation: Sequence[int]) -> Value:
        check_permutation(self.shape(a), permutation)
        axes = (0, 1, 2, *(LEADING + axis for axis in permutation))
        return self._map(a, lambda d: d.transpose(axes))

    def expand(self, a: Value, shape: Sequence[int]) -> Value:
        old, new = self.shape(a), tuple(shape)
        check_expansion(old, new)
        if old == new:
            return a
        return self._map(
            a, lambda d: self.xp.broadcast_to(aligned(d, len(new)), d.shape[:LEADING] + new)
        )

    def _at(self, a: Value, axis: int, part: slice) -> Value:
        index = (slice(None),) * (LEADING + axis) + (part,)
        return self._map(a, lambda d: d[index])

    def slice(self, a: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
        check_slice(self.shape(a), axis, start, stop, step)
        return self._at(a, axis, slice(start, stop, step))

    def flip(self, a: Value, axis: int) -> Value:
        return self._at(a, axis, slice(None, None, -1))

    def concatenate(self, values: Sequence[Value], axis: int) -> Value:
        shapes = {(*self.shape(v)[:axis], *self.shape(v)[axis + 1 :], v.rank) for v in values}
        kinds = {v.kind for v in values}
        if len(shapes) != 1 or len(kinds) != 1:
            raise ShapeError(
                f"tensors {[(v.kind, self.shape(v)) for v in values]} cannot be concatenated "
                f"along dimension {axis}"
            )
        return self._combine(values, LEADING + axis, None)

    def _combine(self, values: Sequence[Value], axis: int, counts: Sequence[int] | None) -> Value:
        """Concatenate along an array axis.

        The leading axes beside it are broadcast, and levels are cut to the common ones.
        """
        if len(values) == 1 and counts is None:
            return values[0]
        square = self._combined_squares(values, axis, counts)
        if square is None:
            values = [self.opened(v) for v in values]
        low, stop = self._common(values)
        arrays = [v.data[low - v.lowest : stop - v.lowest] for v in values]
        lead = (max(_size(v, 1) for v in values), max(_size(v, 2) for v in values))
        sizes = [None] * len(values) if counts is None else list(counts)
        data = self._joined(arrays, axis, lead, sizes)
        special = None
        if any(v.special is not None for v in values):
            codes = [
                self.xp.zeros((1, *v.data.shape[1:]), dtype=np.uint8)
                if v.special is None
                else v.special
                for v in values
            ]
            special = self._joined(codes, axis, lead, sizes)
        rows = (
            [_size(v, 2) if c is None else c for v, c in zip(values, sizes, strict=True)]
            if axis == 2
            else None
        )
        logs = []
        for n in sorted({n for v in values for n, _ in v.logs}):
            one = self.constant(Fraction(1))
            bases = [dict(v.logs).get(n) or self.expand(one, self.shape(v)) for v in values]
            logs.append((n, self._combine(bases, axis, rows)))
        parts = self._merged_parts(values, lambda own: self._combine(own, axis, rows))
        return Value(
            values[0].kind,
            data,
            low,
            special,
            tuple(logs),
            all(v.nonnegative for v in values),
            square,
            parts,
        )

    def _merged_parts(
        self, values: Sequence[Value], merge: Callable[[Sequence[Value]], Value]
    ) -> tuple[tuple[int, Value], ...]:
        """Return the parts of a value each of whose elements is one of ``values``.

        ``merge`` makes such a value. A part that a value lacks is 0 there. Return () if no value
        has parts.
        """
        if not any(v.parts for v in values):
            return ()
        own = [list(v.parts or ((1, Value("field", v.data, v.lowest)),)) for v in values]
        zero = self.constant(Fraction(0))
        merged = []
        while factors := [parts[0][0] for parts in own if parts]:
            column = []
            for value, parts in zip(values, own, strict=True):
                place = next((i for i, (n, _) in enumerate(parts) if n == factors[0]), None)
                column.append(
                    self.expand(zero, self.shape(value)) if place is None else parts.pop(place)[1]
                )
            merged.append((factors[0], merge(column)))
        return tuple(merged)

    def _combined_squares(
        self, values: Sequence[Value], axis: int, counts: Sequence[int] | None
    ) -> Value | None:
        """Return the arguments of formal roots, combined; None if one is not a formal root."""
        squares = [v.square for v in values if v.square is not None]
        return self._combine(squares, axis, counts) if len(squares) == len(values) else None

    def _joined(
        self, arrays: Sequence[Any], axis: int, lead: tuple[int, int], counts: Sequence[int | None]
    ) -> Any:
        full = []
        for array, count in zip(arrays, counts, strict=True):
            instances = lead[1] if axis != 2 else array.shape[2] if count is None else count
            shape = (array.shape[0], lead[0], instances, *array.shape[LEADING:])
            full.append(array if array.shape == shape else self.xp.broadcast_to(array, shape))
        return self._concatenated(full, axis)

    def _concatenated(self, arrays: Sequence[Any], axis: int) -> Any:
        """Return arrays of equally many axes, concatenated along an array axis."""
        return self.xp.concatenate(arrays, axis=axis)

    def _common(self, values: Sequence[Value]) -> tuple[int, int]:
        """Return (lowest, one past the highest) level at which all of the arrays are defined.

        Raises:
            BudgetError: if there is none.
        """
        low = max(v.lowest for v in values)
        stop = min(v.lowest + v.data.shape[0] for v in values)
        if stop <= low:
            raise BudgetError(
                f"values at levels {[list(self.levels(v)) for v in values]} have no level in "
                f"common; a longer chain is needed"
            )
        return low, stop

    # --- indexing
    def _index(self, a: Value, axis: int, indices: Value) -> Any:
        """Return the index array.

        Raises:
            ShapeError: if it is not of integers, or one lies outside the dimension.
        """
        if indices.kind != "int" or a.rank <= axis:
            raise ShapeError(
                f"indices of kind {indices.kind!r} cannot index dimension {axis} of shape "
                f"{self.shape(a)}; they must be integers"
            )
        index = indices.data
        size = self.shape(a)[axis]
        if index.size and not bool(((index >= 0) & (index < size)).all()):
            raise ShapeError(
                f"an index lies outside 0 .. {size - 1}, dimension {axis} of shape {self.shape(a)}"
            )
        if self.indexed is not None:
            self.indexed.append(Indexed(self.site, size, index))
        return index

    def take(self, a: Value, axis: int, indices: Value) -> Value:
        index = self._index(a, axis, indices)
        shape = self.shape(a)
        result = (*shape[:axis], *index.shape[LEADING:], *shape[axis + 1 :])
        if index.shape[1] == index.shape[2] == 1:
            return self._map(a, lambda d: d.take(index[0, 0, 0], axis=LEADING + axis))
        before, behind = prod(shape[:axis]), prod(shape[axis + 1 :])
        flat = index.reshape(*index.shape[:LEADING], 1, prod(index.shape[LEADING:]), 1)

        def pick(d: Any) -> Any:
            split = d.reshape(*d.shape[:LEADING], before, shape[axis], behind)
            picked = split[places_along(self.xp, split.shape, flat, LEADING + 1)]
            return picked.reshape(*picked.shape[:LEADING], *result)

        return self._map(a, pick)

    def take_along(self, a: Value, axis: int, indices: Value) -> Value:
        index = self._index(a, axis, indices)
        self._check_along(a, axis, indices)
        return self._map(a, lambda d: d[places_along(self.xp, d.shape, index, LEADING + axis)])

    def add_at(self, base: Value, axis: int, indices: Value, source: Value) -> Value:
        index = self._index(base, axis, indices)
        shape = self.shape(base)
        if self.shape(source) != (*shape[:axis], *index.shape[LEADING:], *shape[axis + 1 :]):
            raise ShapeError(
                f"a tensor of shape {self.shape(source)} cannot be added at indices of shape "
                f"{self.shape(indices)} of dimension {axis} of {shape}"
            )
        before, behind = prod(shape[:axis]), prod(shape[axis + 1 :])
        flat = index.reshape(*index.shape[:LEADING], 1, prod(index.shape[LEADING:]), 1)
        split = self.reshape(self.plain(base), (before, shape[axis], behind))
        added = self._scatter(
            split,
            1,
            flat,
            self.reshape(self.plain(source), (before, flat.shape[LEADING + 1], behind)),
        )
        return self.reshape(added, shape)

    def add_along(self, base: Value, axis: int, indices: Value, source: Value) -> Value:
        index = self._index(base, axis, indices)
        self._check_along(base, axis, indices)
        if self.shape(source) != self.shape(indices):
            raise ShapeError(
                f"a tensor of shape {self.shape(source)} cannot be added at indices of shape "
                f"{self.shape(indices)}; the shapes must be equal"
            )
        return self._scatter(self.plain(base), axis, index, self.plain(source))

    def _check_along(self, a: Value, axis: int, indices: Value) -> None:
        shape, given = self.shape(a), self.shape(indices)
        if (
            len(shape) != len(given)
            or shape[:axis] != given[:axis]
            or shape[axis + 1 :] != given[axis + 1 :]
        ):
            raise ShapeError(
                f"indices of shape {given} do not fit shape {shape}: but for dimension {axis} "
                f"they must be the same"
            )

    def _scatter(self, base: Value, axis: int, index: Any, source: Value) -> Value:
        if base.kind != source.kind or base.kind == "bool":
            raise ShapeError(
                f"values of kind {source.kind!r} cannot be added into values of kind {base.kind!r}"
            )
        low, stop = self._common([base, source])
        parts = [v.data[low - v.lowest : stop - v.lowest] for v in (base, source)]
        data = self._scattered(parts[0], parts[1], axis, index, Value(base.kind, parts[0], low))
        special = None
        if base.special is not None or source.special is not None:
            sums = self._scattered(
                self._stand_ins(base), self._stand_ins(source), axis, index, None
            )
            special = self._codes(sums)
        return Value(base.kind, data, low, special)

    def _scattered(self, base: Any, source: Any, axis: int, index: Any, like: Value | None) -> Any:
        xp = self.xp
        lead = tuple(max(base.shape[i], source.shape[i], index.shape[i]) for i in (1, 2))
        target = xp.broadcast_to(base, (base.shape[0], *lead, *base.shape[LEADING:])).copy()
        given = xp.broadcast_to(source, (source.shape[0], *lead, *source.shape[LEADING:]))
        if like is None:
            scatter_add(xp, target, places_along(xp, target.shape, index, LEADING + axis), given)
            return target
        return self._added_at(target, LEADING + axis, index, given, like)

    # --- instances
    def integers(self, array: Any) -> Value:
        given = self.xp.asarray(array)
        if given.ndim < 2 or given.dtype.kind not in "iub":
            raise ShapeError(
                f"integers or booleans of shape (trials, instances, ...) are wanted, not "
                f"{given.dtype} of shape {given.shape}"
            )
        if given.dtype.kind == "b":
            return Value("bool", given[None])
        return Value("int", given.astype(np.int64)[None])

    def gather(self, a: Value, index: NDArray[np.int64]) -> Value:
        count = len(index)
        stored = _size(a, 2)
        if stored == 1:
            if count == 1:
                return a
            return self._map(
                a, lambda d: self.xp.broadcast_to(d, (*d.shape[:2], count, *d.shape[LEADING:]))
            )
        # Rows are numbers of the host: it must not wait for a device to compare them.
        if count == stored and bool((index == np.arange(count)).all()):
            return a
        chosen = self.xp.asarray(index)
        return self._map(
            a,
            lambda d: (
                self.xp.broadcast_to(d, (*d.shape[:2], count, *d.shape[LEADING:]))
                if d.shape[2] == 1
                else d.take(chosen, axis=2)
            ),
        )

    def boxes(self, a: Value, places: Sequence[NDArray[np.int64]], count: int) -> Value:
        """Return ``count`` boxes of a value that is the same in all instances, one instance each.

        ``places`` has for every dimension the places that each box holds, shape (boxes, size).
        """
        rank = len(places)
        index = [
            self.xp.asarray(
                own.reshape(count, *(own.shape[1] if d == dim else 1 for d in range(rank)))
            )
            for dim, own in enumerate(places)
        ]
        return self._map(a, lambda d: d[(slice(None), slice(None), 0, *index)])

    def stack(self, a: Value, index: NDArray[np.int64]) -> Value:
        steps = _regular(index)

        def pick(d: Any) -> Any:
            if d.shape[2] == 1:
                return self.xp.broadcast_to(
                    d[:, :, :, None], (*d.shape[:2], *index.shape, *d.shape[LEADING:])
                )
            if steps is None or int(index.max()) >= d.shape[2]:
                return d.take(self.xp.asarray(index), axis=2)
            # A view: of a stack of all members a member may take a small part.
            strides = (
                *d.strides[:2],
                *(d.strides[2] * step for step in steps),
                *d.strides[LEADING:],
            )
            return self.xp.lib.stride_tricks.as_strided(
                d[:, :, int(index[0, 0]) :],
                (*d.shape[:2], *index.shape, *d.shape[LEADING:]),
                strides,
            )

        return self._map(a, pick)

    def join(self, parts: Sequence[Value], counts: Sequence[int] | None = None) -> Value:
        if len({(v.kind, self.shape(v)) for v in parts}) != 1:
            raise ShapeError(
                f"instances {[(v.kind, self.shape(v)) for v in parts]} are not of one kind and "
                f"shape"
            )
        given = [_size(v, 2) for v in parts] if counts is None else counts
        return (
            parts[0]
            if len(parts) == 1 and given[0] == _size(parts[0], 2)
            else self._combine(parts, 2, given)
        )


def _regular(index: NDArray[np.int64]) -> tuple[int, int] | None:
    """Return the steps of a matrix per row and per column.

    None if they are not the same everywhere.
    """
    if not index.size or int(index.min()) < 0:
        return None
    first = int(index[0, 0])
    steps = (
        int(index[1, 0]) - first if len(index) > 1 else 0,
        int(index[0, 1]) - first if index.shape[1] > 1 else 0,
    )
    grid = (
        first + steps[0] * np.arange(index.shape[0])[:, None] + steps[1] * np.arange(index.shape[1])
    )
    return steps if bool((index == grid).all()) else None


def _size(a: Value, axis: int) -> int:
    """Return the size of leading array axis ``axis`` over all arrays of a value."""
    size = int(a.data.shape[axis])
    if a.special is not None:
        size = max(size, int(a.special.shape[axis]))
    return max([size, *(_size(s, axis) for _, s in a.logs)]) if a.logs else size
