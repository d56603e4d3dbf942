"""The algebra of dimensions: an operator's meaning run on shapes at full size.

It gives the shape rule of every operator (ShapeError for operands that do not fit). As it ties
dimensions on the way, it also gives what shape reduction needs to know.

>>> algebra = AxisAlgebra(AxisSystem())
>>> x, y = algebra.tensor((6, 8)), algebra.tensor((8, 10))
>>> algebra.matmul(x, y).shape
(6, 10)
>>> algebra.system.number_of(x.dims[1]) == algebra.system.number_of(y.dims[0])
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.dimensions.axis_arithmetic import (
    AxisArithmetic,
    at_boundary,
    checked,
    counted_along,
    one_of,
    plain,
    same_kind,
)
from pitcheck.algebra.dimensions.axis_classes import AxisSystem
from pitcheck.algebra.dimensions.axis_values import AxisValue, Size, Tally
from pitcheck.algebra.dimensions.scaling_class import Dimension, Use
from pitcheck.algebra.dimensions.size_choice import Sizes
from pitcheck.algebra.shape_checks import (
    check_expansion,
    check_permutation,
    check_slice,
    check_view,
)
from pitcheck.errors import ShapeError

__all__ = ["AxisAlgebra", "AxisSystem", "AxisValue", "Dimension", "Size", "Sizes"]

Index = NDArray[np.int64]

_AS_INDEX = "it is indexed by values"


class AxisAlgebra(AxisArithmetic):
    """Every operation of :class:`~pitcheck.algebra.interface.Algebra` on dimensions."""

    # --- structure
    def reshape(self, a: AxisValue, shape: Sequence[int]) -> AxisValue:
        """Return the value in another shape, by the common refinement of both factorisations.

        A size bound to a dimension is tied to it; a literal size stays.

        Raises:
            ShapeError: if the number of elements differs.
        """
        check_view(plain(a), shape)
        dims = self.viewed(a.dims, shape)
        for node, size in zip(dims, shape, strict=True):
            self._bound(node, size)
        return replace(a, dims=dims)

    def _bound(self, node: Dimension, size: int) -> None:
        """Tie a dimension to the one that its size comes from; a literal size fixes it."""
        if not isinstance(size, Size):
            if size != 1:
                self.system.fix(node, f"its size {size} is a literal")
        elif size.dimension is not None:
            self.system.tie(node, size.dimension)

    def transpose(self, a: AxisValue, permutation: Sequence[int]) -> AxisValue:
        """Return the value with its dimensions in another order.

        Raises:
            ShapeError: if ``permutation`` does not name each dimension once.
        """
        check_permutation(plain(a), permutation)
        return replace(a, dims=tuple(a.dims[i] for i in permutation))

    def expand(self, a: AxisValue, shape: Sequence[int]) -> AxisValue:
        """Return the value with new dimensions in front, or where a size 1 is repeated.

        A sum of a number other than 0 that is repeated is a count of elements.

        Raises:
            ShapeError: if the shape cannot be expanded so.
        """
        check_expansion(plain(a), shape)
        extra = len(shape) - len(a.dims)
        dims = []
        for place, size in enumerate(shape):
            old = a.dims[place - extra] if place >= extra else None
            node = old if old is not None and old.size == size else self._repeated(size)
            if old is node and isinstance(size, Size):
                self._bound(node, size)
            if old is not node and a.literal:
                self.system.repeat(node)
            dims.append(node)
        return replace(a, dims=tuple(dims))

    def _repeated(self, size: int) -> Dimension:
        if isinstance(size, Size) and size.dimension is not None:
            return size.dimension
        fixed = "" if isinstance(size, Size) else f"its size {size} is a literal"
        return self.system.dimension(size, fixed=fixed)

    def slice(self, a: AxisValue, axis: int, start: int, stop: int, step: int = 1) -> AxisValue:
        """Return a part of the value; the part is in the class of its dimension, with both ends.

        A literal offset or a step makes the class rigid.

        Raises:
            ShapeError: if the slice does not lie within the dimension.
        """
        (place,) = checked(a, (axis,))
        node = a.dims[place]
        check_slice(plain(a), place, start, stop, step)
        if step == 1 and (start, stop) == (0, node.size):
            self._offset(node, stop)
            return a
        if a.places is None:
            self._used(a)
        return replace(
            a,
            dims=(*a.dims[:place], self._part(node, start, stop, step), *a.dims[place + 1 :]),
            counts=None,
        )

    def _part(self, node: Dimension, start: int, stop: int, step: int) -> Dimension:
        self._offset(node, start)
        self._offset(node, stop)
        if step != 1:
            self.system.fix(node, f"it is sliced with step {step}")
            return self.system.dimension(
                len(range(start, stop, step)), fixed=f"it is a slice with step {step}"
            )
        part = self.system.dimension(stop - start)
        self._mix([node, part])
        self.system.tie(part, node, start)
        return part

    def concatenate(self, values: Sequence[AxisValue], axis: int) -> AxisValue:
        """Return the joined value; the joined dimension is in one class with all its parts.

        A join of single elements is a stack, whose size stays. Places remain places. A number of
        places is none of the joined ones: these have it as often as it is joined.

        Raises:
            ShapeError: if there is no value, or the values differ beside ``axis``.
        """
        if not values:
            raise ShapeError("concatenate takes at least one value")
        first = values[0]
        (place,) = checked(first, (axis,))
        along = self._places(*values)
        if along is None:
            self._used(*values)
        for value in values[1:]:
            same_kind("concatenate", first, value)
            if len(value.dims) != len(first.dims):
                raise ShapeError(
                    f"shapes {plain(first)} and {plain(value)} cannot be joined: the number of "
                    f"dimensions differs"
                )
            for i, (node, other) in enumerate(zip(first.dims, value.dims, strict=True)):
                if i != place and node.size != other.size:
                    raise ShapeError(
                        f"shapes {plain(first)} and {plain(value)} cannot be joined along "
                        f"{place}: dimension {i} differs"
                    )
                if i != place:
                    self.system.tie(other, node)
        joined = self._joined([v.dims[place] for v in values])
        boundary = along is not None and all(at_boundary(value) for value in values)
        dims = (*first.dims[:place], joined, *first.dims[place + 1 :])
        return AxisValue(
            first.kind,
            dims,
            places=along,
            boundary=boundary,
            counting=counted_along(*values),
        )

    def _joined(self, parts: Sequence[Dimension]) -> Dimension:
        if len(parts) == 1:
            return parts[0]
        total = sum(part.size for part in parts)
        if all(part.size == 1 for part in parts):
            return self.system.dimension(total, fixed="it stacks single elements", copies=True)
        joined = self.system.dimension(total)
        self._mix([joined, *parts])
        offset = 0
        for part in parts:
            self.system.tie(part, joined, offset)
            offset += part.size
        return joined

    def flip(self, a: AxisValue, axis: int) -> AxisValue:
        """Return the value with its dimension marked permuted."""
        (place,) = checked(a, (axis,))
        self._used(a)
        self.system.mark_permuted(a.dims[place])
        return AxisValue(a.kind, a.dims, counting=a.counting)

    # --- indexing
    def _indexed(self, a: AxisValue, axis: int, indices: AxisValue) -> int:
        (place,) = checked(a, (axis,))
        one_of("an index", indices, ("int",))
        self._used(a)
        self._decide(indices)
        if indices.places is None:
            self._used(indices)
            self.system.fix(a.dims[place], _AS_INDEX)
        else:
            self.system.share(a.dims[place], indices.places)
        return place

    def take(self, a: AxisValue, axis: int, indices: AxisValue) -> AxisValue:
        """Return the value with the indexed dimension replaced by those of the indices.

        The indexed dimension becomes rigid, unless the indices are places along it.
        """
        place = self._indexed(a, axis, indices)
        return AxisValue(
            a.kind,
            (*a.dims[:place], *indices.dims, *a.dims[place + 1 :]),
            counting=counted_along(a, indices),
        )

    def add_at(
        self, base: AxisValue, axis: int, indices: AxisValue, source: AxisValue
    ) -> AxisValue:
        """Return the base; the source is tied to the result that ``take`` would give."""
        taken = self.take(base, axis, indices)
        self._equal("add_at", taken, source)
        self._mix(indices.dims)
        self._use(indices.dims, Use.UNWEIGHTED)
        return AxisValue(
            base.kind, base.dims, counting=counted_along(base, indices, source).add(indices.dims)
        )

    def take_along(self, a: AxisValue, axis: int, indices: AxisValue) -> AxisValue:
        """Return the value with the indexed dimension replaced by that of the indices.

        The indexed dimension becomes rigid, unless the indices are places along it. All others are
        tied to those of the indices.

        Raises:
            ShapeError: if the shapes differ beside ``axis``.
        """
        place = self._indexed(a, axis, indices)
        if len(a.dims) != len(indices.dims) or any(
            d.size != e.size
            for i, (d, e) in enumerate(zip(a.dims, indices.dims, strict=True))
            if i != place
        ):
            raise ShapeError(
                f"indices of shape {plain(indices)} do not index {plain(a)} along axis {place}"
            )
        for i, (node, other) in enumerate(zip(a.dims, indices.dims, strict=True)):
            if i != place:
                self.system.tie(other, node)
        return AxisValue(a.kind, indices.dims, counting=counted_along(a, indices))

    def add_along(
        self, base: AxisValue, axis: int, indices: AxisValue, source: AxisValue
    ) -> AxisValue:
        """Return the base; ties are those of ``take_along``.

        The source has the shape of the indices.
        """
        self._mix([indices.dims[axis]])
        self._use([indices.dims[axis]], Use.UNWEIGHTED)
        self._equal(
            "add_along", AxisValue(base.kind, self.take_along(base, axis, indices).dims), source
        )
        return AxisValue(
            base.kind,
            base.dims,
            counting=counted_along(base, indices, source).add((indices.dims[axis],)),
        )

    def _equal(self, name: str, expected: AxisValue, given: AxisValue) -> None:
        self._used(given)
        self._alike(name, expected, given)

    def _alike(self, name: str, expected: AxisValue, given: AxisValue) -> None:
        same_kind(name, expected, given)
        if plain(expected) != plain(given):
            raise ShapeError(
                f"{name} takes a source of shape {plain(expected)} here, not {plain(given)}"
            )
        for node, other in zip(given.dims, expected.dims, strict=True):
            self.system.tie(node, other)

    def order(self, a: AxisValue, axis: int, descending: bool) -> AxisValue:  # noqa: ARG002
        """Return positions along the ordered dimension, which becomes rigid.

        They tell places along all others apart.
        """
        (place,) = checked(a, (axis,))
        one_of("order", a, ("field", "int"))
        self._used(a)
        self._decide(a)
        self._use([node for i, node in enumerate(a.dims) if i != place], Use.LABELLED)
        self.system.fix(a.dims[place], "it is sorted")
        return AxisValue("int", a.dims, counting=counted_along(a))

    # --- batches: all instances have one shape
    def gather(self, a: AxisValue, index: Index) -> AxisValue:  # noqa: ARG002
        """Return the value: chosen instances look as all do."""
        return a

    def stack(self, a: AxisValue, index: Index) -> AxisValue:
        """Return stacked instances: a leading dimension of the members, which keeps its size.

        ``index`` has shape (instances, members).
        """
        members = self.system.dimension(
            int(index.shape[1]), fixed="it numbers the members of a group", copies=True
        )
        if a.places is None:
            self._used(a)
        return AxisValue(
            a.kind,
            (members, *a.dims),
            places=a.places,
            boundary=a.boundary,
            counting=a.counting,
            tally=a.tally,
        )

    def join(self, parts: Sequence[AxisValue], counts: Sequence[int] | None = None) -> AxisValue:  # noqa: ARG002  rows do not matter to axes
        """Return instances beside each other: all have one shape, and equal dimensions are tied."""
        first = parts[0]
        node = self._places(*parts)
        for part in parts[1:]:
            self._alike("join", first, part)
        if node is None:
            self._used(*parts)
        boundary = node is not None and all(at_boundary(part) for part in parts)
        return AxisValue(
            first.kind,
            first.dims,
            places=node,
            boundary=boundary,
            counting=counted_along(*parts),
            tally=_common_tally(parts),
        )


def _common_tally(values: Sequence[AxisValue]) -> Tally | None:
    """Return the tally that all of ``values`` have; None if they differ."""
    first = values[0].tally
    return first if all(value.tally == first for value in values) else None
