"""Degrees of elements that move: structure, indexing and instances.

A slice keeps degrees, but an element of it no longer has a divisor in common with the whole.

>>> from pitcheck.algebra.bound.degrees import DegreeAlgebra
>>> algebra = DegreeAlgebra()
>>> x = algebra.divide(algebra.fresh("a", (4,)), algebra.fresh("b", (4,)))
>>> algebra.slice(x, 0, 0, 2).degree.denominator
1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.bound.degree_bounds import ONE, either
from pitcheck.algebra.bound.degree_ring import DegreeRing
from pitcheck.algebra.bound.degree_values import (
    Axes,
    DegreeValue,
    Mark,
    Sign,
    Support,
    as_one,
    reshaped,
    sign_of_choice,
    wide_axes,
)
from pitcheck.algebra.interface import Kind
from pitcheck.algebra.shape_checks import check_view

Index = NDArray[np.int64]


class DegreeMoves(DegreeRing):
    """Structural operations, indexing and instances on degree bounds."""

    # --- structure
    def _moved(
        self, a: DegreeValue, shape: tuple[int, ...], axes: Mapping[int, Axes], disturbed: Axes
    ) -> DegreeValue:
        """Return ``a`` with its axes moved as ``axes`` says, old axis to new axes.

        Marks that vary along ``disturbed`` axes are no longer known to be the same.
        """

        def move(mark: Mark) -> Mark:
            varies: Axes = frozenset().union(*(axes[i] for i in mark.varies))
            return Mark(
                self._key() if mark.varies & disturbed else mark.key, varies & wide_axes(shape)
            )

        return a.moved(self._key(), shape, move)

    def reshape(self, a: DegreeValue, shape: Sequence[int]) -> DegreeValue:
        """Return the same bounds; marks go along with the runs of dimensions that are regrouped.

        Raises:
            ShapeError: if the number of elements differs.
        """
        target = tuple(int(n) for n in shape)
        check_view(a.shape, target)
        axes, kept = _runs(a.shape, target)
        moved = self._moved(a, target, axes, frozenset(axes) - kept)
        return replace(moved, support=reshaped(a.support, a.shape, target))

    def transpose(self, a: DegreeValue, permutation: Sequence[int]) -> DegreeValue:
        """Return the same bounds.

        A mark stays if the axes along which it varies keep their order.
        """
        number = len(a.shape)
        to = {axis - number: list(permutation).index(axis) - number for axis in range(number)}

        def move(mark: Mark) -> Mark:
            order = [to[i] for i in sorted(mark.varies)]
            return Mark(mark.key if order == sorted(order) else self._key(), frozenset(order))

        moved = a.moved(self._key(), tuple(a.shape[i] for i in permutation), move)
        order = (0, 1, *(2 + axis for axis in permutation))
        return replace(moved, support=None if a.support is None else a.support.transpose(order))

    def expand(self, a: DegreeValue, shape: Sequence[int]) -> DegreeValue:
        """Return the same bounds: nothing varies along new axes."""
        sizes = tuple(int(n) for n in shape)
        wider = (*(1,) * (len(sizes) - len(a.shape)), *a.shape)
        support = reshaped(a.support, a.shape, wider)
        return replace(a, identity=self._key(), shape=sizes, support=support)

    def slice(self, a: DegreeValue, axis: int, start: int, stop: int, step: int = 1) -> DegreeValue:
        """Return the same bounds; marks that vary along the axis become new ones."""
        size = len(range(start, stop, step))
        if (start, stop, step) == (0, a.shape[axis], 1):
            return a
        shape = (*a.shape[:axis], size, *a.shape[axis + 1 :])
        moved = self._moved(a, shape, _same_axes(a), frozenset({axis - len(a.shape)}))
        if a.support is None or a.support.shape[2 + axis] == 1:
            return replace(moved, support=a.support)
        part = (slice(None),) * (2 + axis) + (slice(start, stop, step),)
        return replace(moved, support=a.support[part])

    def flip(self, a: DegreeValue, axis: int) -> DegreeValue:
        """Return the same bounds; marks that vary along the axis become new ones."""
        return self._moved(a, a.shape, _same_axes(a), frozenset({axis - len(a.shape)}))

    def concatenate(self, values: Sequence[DegreeValue], axis: int) -> DegreeValue:
        """Return bounds for one of the parts, chosen by the place along the axis."""
        first = values[0]
        shape = (*first.shape[:axis], sum(v.shape[axis] for v in values), *first.shape[axis + 1 :])
        return self._one_of(first.kind, shape, values, frozenset({axis - len(shape)}))

    def _one_of(
        self,
        kind: Kind,
        shape: tuple[int, ...],
        values: Sequence[DegreeValue],
        along: Axes,
        *deciding: DegreeValue,
    ) -> DegreeValue:
        """Return bounds for elements each of which is one of ``values``, chosen ``along`` axes.

        Values of ``deciding`` count with their degree if fresh residues enter them.
        """
        divisors, roots = as_one(values, along & wide_axes(shape), self._key)
        chosen = [*values, *(d for d in deciding if not d.is_constant)]
        top = ONE
        for value in chosen:
            top = top.either(value.top)
        return DegreeValue(
            kind,
            shape,
            self._key(),
            max(v.instances for v in (*values, *deciding)),
            top,
            divisors,
            roots,
            either(v.exponents for v in chosen),
            frozenset().union(*(v.uses for v in chosen)),
            None,
            sign_of_choice([v.sign for v in values], [d.sign for d in deciding]),
        )

    # --- indexing
    def take(self, a: DegreeValue, axis: int, indices: DegreeValue) -> DegreeValue:
        """Return bounds for chosen elements of ``a``.

        Marks that vary along the axis become new ones, and vary along the axes of the indices.
        """
        before, after = a.shape[:axis], a.shape[axis + 1 :]
        shape = (*before, *indices.shape, *after)
        new = frozenset(range(-len(after) - len(indices.shape), -len(after)))
        axes = {i: frozenset({i}) for i in range(-len(after), 0)}
        axes |= {i - len(a.shape): frozenset({i - len(shape)}) for i in range(axis)}
        axes[axis - len(a.shape)] = new
        taken = self._moved(a, shape, axes, frozenset({axis - len(a.shape)}))
        return self._one_of(a.kind, shape, [taken], new, indices)

    def take_along(self, a: DegreeValue, axis: int, indices: DegreeValue) -> DegreeValue:
        """Return bounds for chosen elements of ``a``.

        Marks that vary along the axis become new ones, and vary along all axes.
        """
        place = axis - len(a.shape)
        everywhere = wide_axes(indices.shape)
        axes = {i: everywhere if i == place else frozenset({i}) for i in range(-len(a.shape), 0)}
        taken = self._moved(a, indices.shape, axes, frozenset({place}))
        return self._one_of(a.kind, indices.shape, [taken], everywhere, indices)

    def add_at(
        self, base: DegreeValue, axis: int, indices: DegreeValue, source: DegreeValue
    ) -> DegreeValue:
        """Return bounds for the base plus all elements of the source along the indices' axes.

        At most these are added to one element.
        """
        return self._added(
            base, axis, indices, self.sum(source, range(axis, axis + len(indices.shape)))
        )

    def add_along(
        self, base: DegreeValue, axis: int, indices: DegreeValue, source: DegreeValue
    ) -> DegreeValue:
        """Return bounds for a sum of the base and all elements of the source along the axis.

        At most these are added to one element.
        """
        return self._added(base, axis, indices, self.sum(source, (axis,)))

    def _added(
        self, base: DegreeValue, axis: int, indices: DegreeValue, added: DegreeValue
    ) -> DegreeValue:
        spread = self.reshape(added, (*base.shape[:axis], 1, *base.shape[axis + 1 :]))
        found = self._one_of(base.kind, base.shape, [spread], wide_axes(base.shape), indices)
        # The term is 0 at places to which nothing is added, and the indices give these.
        return self.add(base, replace(found, sign=found.sign & ~Sign.NEVER_ZERO))

    # --- batches
    def gather(self, a: DegreeValue, index: Index) -> DegreeValue:
        """Return bounds for chosen instances.

        Marks become new ones unless all are chosen in order.
        """
        if a.instances == len(index) and np.array_equal(index, np.arange(a.instances)):
            return a
        chosen = a.moved(self._key(), a.shape, lambda m: Mark(self._key(), m.varies))
        return replace(chosen, instances=len(index), support=_of_instances(a, index))

    def boxes(self, a: DegreeValue, places: Sequence[Index], count: int) -> DegreeValue:
        """Return bounds for boxes as instances: every element is one of the value's."""
        axes = frozenset(range(-len(a.shape), 0)) & wide_axes(a.shape)
        chosen = a.moved(
            self._key(),
            tuple(own.shape[1] for own in places),
            lambda m: Mark(self._key(), m.varies | axes),
        )
        return replace(chosen, instances=count)

    def stack(self, a: DegreeValue, index: Index) -> DegreeValue:
        """Return bounds for stacked instances; marks vary along the new leading axis.

        ``index`` has shape (instances, members).
        """
        shape = (int(index.shape[1]), *a.shape)
        front: Axes = frozenset({-len(shape)}) & wide_axes(shape)
        stacked = a.moved(self._key(), shape, lambda m: Mark(self._key(), m.varies | front))
        return replace(stacked, instances=int(index.shape[0]), support=_of_instances(a, index))

    def join(
        self, parts: Sequence[DegreeValue], counts: Sequence[int] | None = None
    ) -> DegreeValue:
        """Return bounds for instances beside each other; a part stands for ``counts`` rows."""
        joined = self._one_of(parts[0].kind, parts[0].shape, parts, frozenset())
        renamed = joined.moved(self._key(), joined.shape, lambda m: Mark(self._key(), m.varies))
        return replace(renamed, instances=sum(counts or [p.instances for p in parts]))


def _of_instances(a: DegreeValue, index: Index) -> Support | None:
    """Return the support of chosen instances, or of stacks of them if ``index`` is 2-d."""
    if a.support is None:
        return None
    if a.support.shape[1] > 1:
        return np.asarray(a.support[:, index])
    return a.support if index.ndim == 1 else a.support[:, :, None]


def _same_axes(a: DegreeValue) -> dict[int, Axes]:
    return {i: frozenset({i}) for i in range(-len(a.shape), 0)}


def _runs(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[dict[int, Axes], Axes]:
    """Return the axes to which a reshape takes every axis.

    Returns:
        A pair: old axis -> new axes, and the old axes that stay as they are.
    """
    everywhere: Axes = frozenset(range(-len(new), 0))
    if 0 in old:
        return dict.fromkeys(range(-len(old), 0), everywhere), frozenset()
    axes: dict[int, Axes] = {i - len(old): frozenset() for i in range(len(old))}
    kept: set[int] = set()
    left = [i for i, n in enumerate(old) if n != 1]
    right = [i for i, n in enumerate(new) if n != 1]
    while left:
        some, others, have, want = [left.pop(0)], [right.pop(0)], 1, 1
        have, want = old[some[0]], new[others[0]]
        while have != want:
            if have < want:
                some.append(left.pop(0))
                have *= old[some[-1]]
            else:
                others.append(right.pop(0))
                want *= new[others[-1]]
        for i in some:
            axes[i - len(old)] = frozenset(j - len(new) for j in others)
        if len(some) == len(others) == 1:
            kept.add(some[0] - len(old))
    return axes, frozenset(kept)
