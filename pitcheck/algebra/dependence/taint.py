"""The algebra of dependence: an operator's meaning run on labels of its elements.

A label says that an element may depend on memory that nobody has written to; an element without one
is the same whatever lies there. Operations that move elements move their labels. Any other
operation gives a label where an operand has one. A product with 0 is no exception: 0 times NaN is
NaN. Integers and booleans that depend on no input are computed, so that choices and indices that
the program fixes choose between labels. Others are taken to be any number.

>>> algebra = TaintAlgebra()
>>> x = algebra.concatenate([algebra.clean("field", (3,)), algebra.labelled(1, "field", (2,))], 0)
>>> algebra.slice(x, 0, 0, 3).labels is None, algebra.sum(x, (0,)).labels is None
(True, False)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.dependence.taint_arithmetic import (
    MOST_KNOWN,
    Misuse,
    TaintArithmetic,
    Tainted,
    labels_or_none,
)
from pitcheck.algebra.dependence.taint_mask import (
    Labels,
    aligned,
    blocks_of,
    common_cuts,
    everywhere,
    joined,
    merged,
    too_fine,
)
from pitcheck.algebra.shape_checks import (
    broadcast,
    check_expansion,
    check_permutation,
    check_slice,
    check_view,
)
from pitcheck.algebra.value import Value
from pitcheck.errors import ShapeError

__all__ = ["Misuse", "TaintAlgebra", "Tainted"]

Index = NDArray[np.int64]


class TaintAlgebra(TaintArithmetic):
    """Every operation of :class:`~pitcheck.algebra.interface.Algebra` on labels."""

    # --- moves
    def _moved(
        self,
        a: Tainted,
        shape: Sequence[int],
        move: Callable[[Labels], Labels],
        compute: Callable[..., Value],
    ) -> Tainted:
        labels = None if a.labels is None else labels_or_none(move(a.labels))
        return Tainted(a.kind, tuple(shape), labels, self._computed(shape, (a,), compute), a.below)

    def reshape(self, a: Tainted, shape: Sequence[int]) -> Tainted:
        """Return the same elements in another shape.

        Raises:
            ShapeError: if the number of elements differs.
        """
        check_view(a.shape, shape)
        return self._moved(
            a, shape, lambda x: x.reshaped(tuple(shape)), lambda x: self._numbers.reshape(x, shape)
        )

    def transpose(self, a: Tainted, permutation: Sequence[int]) -> Tainted:
        """Return the value with its dimensions in another order.

        Raises:
            ShapeError: if ``permutation`` does not name each dimension once.
        """
        check_permutation(a.shape, permutation)
        shape = [a.shape[dim] for dim in permutation]
        return self._moved(
            a,
            shape,
            lambda x: x.transposed(permutation),
            lambda x: self._numbers.transpose(x, permutation),
        )

    def expand(self, a: Tainted, shape: Sequence[int]) -> Tainted:
        """Return the value broadcast to ``shape``.

        Raises:
            ShapeError: if it cannot be.
        """
        new = tuple(shape)
        check_expansion(a.shape, new)
        return self._moved(
            a, new, lambda x: x.expanded(new), lambda x: self._numbers.expand(x, new)
        )

    def slice(self, a: Tainted, axis: int, start: int, stop: int, step: int = 1) -> Tainted:
        """Return some elements along ``axis``.

        Raises:
            ShapeError: if the slice does not lie within the dimension.
        """
        check_slice(a.shape, axis, start, stop, step)
        shape = (*a.shape[:axis], len(range(start, stop, step)), *a.shape[axis + 1 :])

        def take(labels: Labels) -> Labels:
            return (
                labels.part(axis, start, stop)
                if step == 1
                else labels.at(axis, np.arange(start, stop, step))
            )

        return self._moved(
            a, shape, take, lambda x: self._numbers.slice(x, axis, start, stop, step)
        )

    def flip(self, a: Tainted, axis: int) -> Tainted:
        """Return the value with the order along ``axis`` reversed."""
        return self._moved(
            a, a.shape, lambda x: x.flipped(axis), lambda x: self._numbers.flip(x, axis)
        )

    def concatenate(self, values: Sequence[Tainted], axis: int) -> Tainted:
        """Return the values side by side along ``axis``.

        Raises:
            ShapeError: if kinds or other dimensions differ.
        """
        first = values[0]
        if len({(a.kind, a.shape[:axis], a.shape[axis + 1 :]) for a in values}) != 1:
            raise ShapeError(
                f"tensors {[(a.kind, a.shape) for a in values]} cannot be concatenated along "
                f"dimension {axis}"
            )
        shape = (*first.shape[:axis], sum(a.shape[axis] for a in values), *first.shape[axis + 1 :])
        labels = (
            None
            if all(a.labels is None for a in values)
            else labels_or_none(joined([labels_of(a) for a in values], axis))
        )
        return Tainted(
            first.kind,
            shape,
            labels,
            self._computed(shape, values, lambda *x: self._numbers.concatenate(x, axis)),
        )

    def where(self, condition: Tainted, a: Tainted, b: Tainted) -> Tainted:
        """Return the labels of the chosen elements if the condition is known.

        Otherwise labels of both sides and of the condition count.

        Raises:
            ShapeError: if the condition is not bool, or the sides differ in kind.
        """
        kind, operands = a.kind, (condition, a, b)
        if a.kind != b.kind or condition.kind != "bool":
            raise ShapeError(
                f"a choice by {condition.kind} between {a.kind} and {b.kind} has no meaning"
            )
        if condition.known is None or (a.labels is None and b.labels is None):
            return self._each(kind, operands, None if kind == "field" else self._numbers.where)
        shape = broadcast(*(x.shape for x in operands))
        chooser = blocks_of(condition.known.data[0, 0]).expanded(shape)
        sides = [labels_of(x).expanded(shape) for x in (a, b)]
        cuts = common_cuts([chooser, *sides])
        if too_fine(cuts, [chooser, *sides]):
            return self._each(kind, operands)
        cells = aligned([chooser, *sides])
        return Tainted(
            kind,
            shape,
            labels_or_none(merged(Labels(cuts, np.where(cells[0] != 0, cells[1], cells[2])))),
        )

    # --- indexing
    def _note_index(self, indices: Tainted, size: int) -> None:
        if indices.below is None or indices.below > size:
            self._note(indices, "an index")

    def take(self, a: Tainted, axis: int, indices: Tainted) -> Tainted:
        """Return the labels of the chosen elements if the indices are known.

        Otherwise all labels along the axis count.
        """
        self._note_index(indices, a.shape[axis])
        shape = (*a.shape[:axis], *indices.shape, *a.shape[axis + 1 :])
        known = self._computed(shape, (a, indices), lambda x, i: self._numbers.take(x, axis, i))
        if a.labels is None and indices.labels is None:
            return Tainted(a.kind, shape, None, known)
        places = _places(indices)
        if places is not None and indices.labels is None and a.labels is not None:
            self._check_range(places, a.shape[axis])
            return Tainted(
                a.kind, shape, labels_or_none(a.labels.at(axis, places.reshape(-1)).reshaped(shape))
            )
        whole = self._over(a.kind, a, (axis,))
        spread = self.reshape(
            whole, (*a.shape[:axis], *((1,) * len(indices.shape)), *a.shape[axis + 1 :])
        )
        own = self.reshape(indices, (*indices.shape, *((1,) * (len(a.shape) - axis - 1))))
        return self._each(a.kind, (self.expand(spread, shape), own))

    def _check_range(self, places: Index, size: int) -> None:
        if places.size and not bool(((places >= 0) & (places < size)).all()):
            raise ShapeError(f"an index lies outside 0 .. {size - 1}")

    def add_at(self, base: Tainted, axis: int, indices: Tainted, source: Tainted) -> Tainted:
        """Return the labels of the base and of the added elements.

        Added elements count at their places if the indices are known, else anywhere along the axis.
        """
        self._note_index(indices, base.shape[axis])
        known = self._computed(
            base.shape,
            (base, indices, source),
            (lambda *x: self._numbers.add_at(x[0], axis, *x[1:])) if base.kind == "int" else None,
        )
        if source.labels is None and indices.labels is None:
            return Tainted(base.kind, base.shape, base.labels, known)
        beside = tuple(range(axis, axis + len(indices.shape)))
        places = _places(indices)
        if (
            places is not None
            and indices.labels is None
            and source.labels is not None
            and prod(source.shape) <= MOST_KNOWN
        ):
            flat = source.labels.reshaped(
                (*base.shape[:axis], places.size, *base.shape[axis + 1 :])
            )
            return self._each(
                base.kind,
                (
                    base,
                    Tainted(
                        base.kind,
                        base.shape,
                        labels_or_none(
                            self._landed(flat, axis, places.reshape(-1), base.shape[axis])
                        ),
                    ),
                ),
            )
        added = self._over(base.kind, source, beside)
        spread = self.reshape(added, (*base.shape[:axis], 1, *base.shape[axis + 1 :]))
        return self._each(
            base.kind,
            (
                base,
                self.expand(spread, base.shape),
                self._over("int", indices, tuple(range(len(indices.shape)))),
            ),
        )

    def _landed(self, labels: Labels, axis: int, places: Index, size: int) -> Labels:
        """Return the labels of rows along ``axis`` brought to their places."""
        self._check_range(places, size)
        fine = labels.refined(
            (*labels.cuts[:axis], tuple(range(len(places) + 1)), *labels.cuts[axis + 1 :])
        )
        rows = np.moveaxis(fine.cells, axis + 1, 0)
        cells = np.zeros((size, *rows.shape[1:]), dtype=np.int32)
        np.maximum.at(cells, places, rows)
        return merged(
            Labels(
                (*fine.cuts[:axis], tuple(range(size + 1)), *fine.cuts[axis + 1 :]),
                np.moveaxis(cells, 0, axis + 1),
            )
        )

    def take_along(self, a: Tainted, axis: int, indices: Tainted) -> Tainted:
        """Return the labels of the chosen elements if the indices are known.

        Otherwise all labels along the axis count.
        """
        self._note_index(indices, a.shape[axis])
        known = self._computed(
            indices.shape, (a, indices), lambda x, i: self._numbers.take_along(x, axis, i)
        )
        if a.labels is None and indices.labels is None:
            return Tainted(a.kind, indices.shape, None, known)
        places, fine = _places(indices), None if a.labels is None else a.labels.single()
        if places is not None and fine is not None:
            self._check_range(places, a.shape[axis])
            cells = np.take_along_axis(
                fine, np.broadcast_to(places, indices.shape)[None], axis=axis + 1
            )
            return Tainted(a.kind, indices.shape, labels_or_none(blocks_of(cells)))
        whole = self.reshape(
            self._over(a.kind, a, (axis,)), (*a.shape[:axis], 1, *a.shape[axis + 1 :])
        )
        return self._each(a.kind, (whole, Tainted(a.kind, indices.shape, indices.labels)))

    def add_along(self, base: Tainted, axis: int, indices: Tainted, source: Tainted) -> Tainted:
        """Return the labels of the base and of the added elements.

        Added elements count at their places if the indices are known, else anywhere along the axis.
        """
        self._note_index(indices, base.shape[axis])
        known = self._computed(
            base.shape,
            (base, indices, source),
            (lambda *x: self._numbers.add_along(x[0], axis, *x[1:]))
            if base.kind == "int"
            else None,
        )
        if source.labels is None and indices.labels is None:
            return Tainted(base.kind, base.shape, base.labels, known)
        places, fine = _places(indices), None if source.labels is None else source.labels.single()
        if places is not None and fine is not None and prod(base.shape) <= MOST_KNOWN:
            self._check_range(places, base.shape[axis])
            grid = np.indices(source.shape)
            grid[axis] = places
            cells = np.zeros((len(fine), *base.shape), dtype=np.int32)
            np.maximum.at(cells, (slice(None), *grid), fine)
            return self._each(
                base.kind, (base, Tainted(base.kind, base.shape, labels_or_none(blocks_of(cells))))
            )
        added = [
            self._over(base.kind, Tainted(base.kind, x.shape, x.labels), (axis,))
            for x in (source, indices)
        ]
        return self._each(
            base.kind,
            (
                base,
                *(self.reshape(x, (*base.shape[:axis], 1, *base.shape[axis + 1 :])) for x in added),
            ),
        )

    # --- instances
    def gather(self, a: Tainted, index: Index) -> Tainted:
        """Return chosen instances, of shape (instances,) ``index``."""
        labels = (
            a.labels
            if a.labels is None or a.labels.rows == 1
            else labels_or_none(Labels(a.labels.cuts, a.labels.cells[index]))
        )
        known = (
            a.known
            if a.known is None or a.known.data.shape[2] == 1
            else self._numbers.gather(a.known, index)
        )
        return Tainted(a.kind, a.shape, labels, known, a.below)

    def stack(self, a: Tainted, index: Index) -> Tainted:
        """Return instances side by side as a dimension in front.

        ``index`` is (instances, members).
        """
        members = index.shape[1]
        shape = (members, *a.shape)
        known = None
        if a.known is not None and prod(shape) <= MOST_KNOWN:
            known = self._numbers.stack(a.known, index[:1] if a.known.data.shape[2] == 1 else index)
        if a.labels is None:
            return Tainted(a.kind, shape, None, known)
        if a.labels.rows == 1:
            return Tainted(
                a.kind,
                shape,
                Labels(((0, members), *a.labels.cuts), a.labels.cells[:, None]),
                known,
            )
        return Tainted(
            a.kind,
            shape,
            labels_or_none(
                merged(Labels((tuple(range(members + 1)), *a.labels.cuts), a.labels.cells[index]))
            ),
            known,
        )

    def join(self, parts: Sequence[Tainted], counts: Sequence[int] | None = None) -> Tainted:
        """Return instances one behind the other.

        A part stands for ``counts`` of them, by default 1.
        """
        first = parts[0]
        if len({(a.kind, a.shape) for a in parts}) != 1:
            raise ShapeError(
                f"instances {[(a.kind, a.shape) for a in parts]} are not of one kind and shape"
            )
        given = [1] * len(parts) if counts is None else list(counts)
        known = (
            None
            if any(a.known is None for a in parts)
            else self._numbers.join([a.known for a in parts if a.known is not None], given)
        )
        if known is not None and known.data.size > MOST_KNOWN:
            known = None
        if all(a.labels is None for a in parts):
            return Tainted(first.kind, first.shape, None, known)
        several = [labels_of(a) for a in parts]
        rows = [
            np.broadcast_to(cells, (count, *cells.shape[1:]))
            for cells, count in zip(aligned(several), given, strict=True)
        ]
        return Tainted(
            first.kind,
            first.shape,
            merged(Labels(common_cuts(several), np.concatenate(rows))),
            known,
        )


def labels_of(a: Tainted) -> Labels:
    """Return the labels of a value, 0 for every element if it has none."""
    return everywhere(0, a.shape) if a.labels is None else a.labels


def _places(indices: Tainted) -> Index | None:
    """Return known indices that are the same in all instances, of shape ``indices.shape``.

    Return None if they are not known.
    """
    if indices.known is None or indices.known.data.shape[2] != 1:
        return None
    places: Index = indices.known.data[0, 0, 0]
    return places
