"""Labels over the elements of a tensor, stored once per block of elements with equal labels.

The cost of full sizes does not depend on the sizes.

>>> unwritten = joined([everywhere(0, (4096,)), everywhere(3, (4096,))], axis=0)
>>> unwritten.cuts, unwritten.part(0, 0, 4096).cells.tolist()
(((0, 4096, 8192),), [[0]])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Cells = NDArray[np.int32]
Cuts = tuple[tuple[int, ...], ...]

MOST_CELLS = 1 << 22
"""The number of blocks above which the largest label is taken for all of them. More elements may
seem to depend on something then than do.
"""


@dataclass(frozen=True)
class Labels:
    """A label per element: 0, or the number of one thing that the element may depend on.

    ``cuts`` has for every dimension the places at which blocks begin, and its size at the end.
    ``cells`` has shape (rows or 1, blocks along every dimension).
    """

    cuts: Cuts
    cells: Cells

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the tensor."""
        return tuple(own[-1] for own in self.cuts)

    @property
    def rows(self) -> int:
        """The number of instances for which labels are stored; 1 stands for all."""
        return int(self.cells.shape[0])

    def refined(self, cuts: Cuts) -> Labels:
        """Return the same labels over finer blocks."""
        cells = self.cells
        for dim, (old, new) in enumerate(zip(self.cuts, cuts, strict=True)):
            if old != new:
                cells = cells.take(np.searchsorted(old, new[:-1], side="right") - 1, axis=dim + 1)
        return Labels(cuts, cells)

    def single(self) -> Cells | None:
        """Return a label per element, shape (rows, sizes); None if there are too many."""
        if prod(self.shape) * self.rows > MOST_CELLS:
            return None
        return self.refined(tuple(tuple(range(n + 1)) for n in self.shape)).cells

    def largest(self, axes: Sequence[int]) -> Labels:
        """Return the largest label along ``axes``, which stay with size 1."""
        cells = self.cells.max(axis=tuple(axis + 1 for axis in axes), keepdims=True, initial=0)
        return Labels(
            tuple((0, 1) if dim in axes else own for dim, own in enumerate(self.cuts)), cells
        )

    def without(self, axes: Sequence[int]) -> Labels:
        """Return the labels without some dimensions, each of which is one block."""
        cells = self.cells.reshape(
            self.rows, *(n for dim, n in enumerate(self.cells.shape[1:]) if dim not in axes)
        )
        return Labels(tuple(own for dim, own in enumerate(self.cuts) if dim not in axes), cells)

    def expanded(self, shape: Sequence[int]) -> Labels:
        """Return the labels broadcast to ``shape``."""
        missing = len(shape) - len(self.cuts)
        cells = self.cells.reshape(self.rows, *((1,) * missing), *self.cells.shape[1:])
        cuts = (*(((0, 1),) * missing), *self.cuts)
        return Labels(
            tuple((0, n) if own == (0, 1) else own for own, n in zip(cuts, shape, strict=True)),
            cells,
        )

    def transposed(self, permutation: Sequence[int]) -> Labels:
        """Return the labels with dimension ``permutation[i]`` as dimension i."""
        return Labels(
            tuple(self.cuts[dim] for dim in permutation),
            self.cells.transpose(0, *(dim + 1 for dim in permutation)),
        )

    def flipped(self, axis: int) -> Labels:
        """Return the labels with the order along ``axis`` reversed."""
        turned = tuple(self.cuts[axis][-1] - at for at in reversed(self.cuts[axis]))
        return Labels(
            (*self.cuts[:axis], turned, *self.cuts[axis + 1 :]), np.flip(self.cells, axis + 1)
        )

    def at(self, axis: int, places: NDArray[np.int64]) -> Labels:
        """Return the labels at ``places``, shape (n,), of ``axis``."""
        own = self.cuts[axis]
        if self.cells.size // (len(own) - 1) * len(places) > MOST_CELLS:
            whole = self.largest((axis,))
            return Labels(
                (*self.cuts[:axis], (0, len(places)), *self.cuts[axis + 1 :]), whole.cells
            )
        blocks = np.searchsorted(own, places, side="right") - 1
        cuts = (*self.cuts[:axis], tuple(range(len(places) + 1)), *self.cuts[axis + 1 :])
        return merged(Labels(cuts, self.cells.take(blocks, axis=axis + 1)))

    def part(self, axis: int, start: int, stop: int) -> Labels:
        """Return the labels from ``start`` to ``stop`` of ``axis``."""
        own = self.cuts[axis]
        first, last = (
            int(np.searchsorted(own, start, side="right")) - 1,
            int(np.searchsorted(own, stop, side="left")),
        )
        inner = tuple(at - start for at in own[first + 1 : last])
        chosen = (slice(None),) * (axis + 1) + (slice(first, max(last, first + 1)),)
        return merged(
            Labels(
                (*self.cuts[:axis], (0, *inner, stop - start), *self.cuts[axis + 1 :]),
                self.cells[chosen],
            )
        )

    def reshaped(self, shape: tuple[int, ...]) -> Labels:
        """Return the same elements, row-major, in another shape."""
        if 0 in shape:
            return everywhere(0, shape)
        labels = self
        done: list[tuple[int, ...]] = []
        for old, new in groups(self.shape, shape):
            place = len(done)
            labels = _split(_flat(labels, place, len(old)), place, new)
            done += [labels.cuts[place + dim] for dim in range(len(new))]
        return merged(labels)


def groups(
    old: tuple[int, ...], new: tuple[int, ...]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the dimensions of two shapes of one size, side by side in the shortest groups.

    Both sides of a group have one product. A group of size 1 may have none on one side.
    """
    result: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        first, second = i, j
        i, j = min(i + 1, len(old)), min(j + 1, len(new))
        while prod(old[first:i]) != prod(new[second:j]):
            if prod(old[first:i]) < prod(new[second:j]):
                i += 1
            else:
                j += 1
        result.append((old[first:i], new[second:j]))
    return result


def _flat(labels: Labels, place: int, count: int) -> Labels:
    """Return the labels with ``count`` dimensions from ``place`` on as one."""
    if count == 0:
        cells = np.expand_dims(labels.cells, place + 1)
        return Labels((*labels.cuts[:place], (0, 1), *labels.cuts[place:]), cells)
    while count > 1:
        outer, inner = labels.cuts[place], labels.cuts[place + 1]
        size = inner[-1]
        if len(inner) == 2:
            cells = labels.cells.reshape(
                *labels.cells.shape[: place + 2], *labels.cells.shape[place + 3 :]
            )
            joined = tuple(at * size for at in outer)
        elif (
            outer[-1]
            * (len(inner) - 1)
            * (labels.cells.size // (len(outer) - 1) // (len(inner) - 1))
            > MOST_CELLS
        ):
            cells = labels.cells.max(axis=(place + 1, place + 2), initial=0)
            cells, joined = np.expand_dims(cells, place + 1), (0, outer[-1] * size)
        else:
            fine = labels.refined(
                (*labels.cuts[:place], tuple(range(outer[-1] + 1)), *labels.cuts[place + 1 :])
            ).cells
            cells = fine.reshape(*fine.shape[: place + 1], -1, *fine.shape[place + 3 :])
            joined = (
                *(row * size + at for row in range(outer[-1]) for at in inner[:-1]),
                outer[-1] * size,
            )
        labels = merged(Labels((*labels.cuts[:place], joined, *labels.cuts[place + 2 :]), cells))
        count -= 1
    return labels


def _split(labels: Labels, place: int, sizes: tuple[int, ...]) -> Labels:
    """Return the labels with one dimension as several."""
    if not sizes:
        return labels.without((place,))
    for number in range(len(sizes) - 1):
        labels = _halved(labels, place + number, sizes[number], prod(sizes[number + 1 :]))
    return labels


def _halved(labels: Labels, place: int, outer: int, inner: int) -> Labels:
    """Return the labels with one dimension as two."""
    own = labels.cuts[place]
    rows, columns = {0, outer}, {0, inner}
    for at in own:
        rows |= {at // inner, -(-at // inner)}
        columns.add(at % inner)
    first, second = tuple(sorted(rows)), tuple(sorted(columns))
    cuts = (*labels.cuts[:place], first, second, *labels.cuts[place + 1 :])
    if labels.cells.size // (len(own) - 1) * (len(first) - 1) * (len(second) - 1) > MOST_CELLS:
        cells = np.expand_dims(
            labels.cells.max(axis=place + 1, keepdims=True, initial=0), place + 2
        )
        return Labels(
            (*labels.cuts[:place], (0, outer), (0, inner), *labels.cuts[place + 1 :]), cells
        )
    places = (np.array(first[:-1])[:, None] * inner + np.array(second[:-1])[None, :]).reshape(-1)
    cells = labels.cells.take(np.searchsorted(own, places, side="right") - 1, axis=place + 1)
    return Labels(
        cuts,
        cells.reshape(
            *cells.shape[: place + 1], len(first) - 1, len(second) - 1, *cells.shape[place + 2 :]
        ),
    )


def merged(labels: Labels) -> Labels:
    """Return the labels with neighbouring blocks of equal labels as one.

    All blocks become one if there would be too many.
    """
    cells, cuts = labels.cells, list(labels.cuts)
    if cells.size > MOST_CELLS:
        return everywhere(int(cells.max(initial=0)), labels.shape)
    for dim, own in enumerate(cuts):
        if len(own) > 2:
            moved = np.moveaxis(cells, dim + 1, 0)
            starts = np.flatnonzero(
                np.concatenate(
                    [[True], (moved[1:] != moved[:-1]).reshape(len(moved) - 1, -1).any(axis=1)]
                )
            )
            if len(starts) < len(moved):
                cells = cells.take(starts, axis=dim + 1)
                cuts[dim] = (*(own[at] for at in starts.tolist()), own[-1])
    return Labels(tuple(cuts), cells)


def everywhere(label: int, shape: Sequence[int]) -> Labels:
    """Return one label for all elements."""
    return Labels(
        tuple((0, n) for n in shape), np.full((1,) * (len(shape) + 1), label, dtype=np.int32)
    )


def aligned(several: Sequence[Labels]) -> list[Cells]:
    """Return the cells of several labels of one shape, over the same blocks."""
    cuts = common_cuts(several)
    return [labels.refined(cuts).cells for labels in several]


def common_cuts(several: Sequence[Labels]) -> Cuts:
    """Return the cuts of blocks that lie within one block of each of several labels.

    All labels are of one shape.
    """
    return tuple(
        own[0] if len(set(own)) == 1 else tuple(sorted(set().union(*own)))
        for own in zip(*(labels.cuts for labels in several), strict=True)
    )


def too_fine(cuts: Cuts, several: Sequence[Labels]) -> bool:
    """Return True if there would be too many blocks."""
    return prod(len(own) - 1 for own in cuts) * max(labels.rows for labels in several) > MOST_CELLS


def _largest(several: Sequence[Labels]) -> int:
    return max(int(labels.cells.max(initial=0)) for labels in several)


def union(several: Sequence[Labels]) -> Labels:
    """Return the largest label of every element, of several labels of one shape."""
    if len(several) == 1:
        return several[0]
    cuts = common_cuts(several)
    if too_fine(cuts, several):
        return everywhere(_largest(several), several[0].shape)
    result: Any = aligned(several)[0]
    for cells in aligned(several)[1:]:
        result = np.maximum(result, cells)
    return merged(Labels(cuts, result))


def joined(several: Sequence[Labels], axis: int) -> Labels:
    """Return labels one behind the other along ``axis``."""
    several = [labels for labels in several if labels.shape[axis]] or several[:1]
    others = common_cuts(
        [
            Labels((*labels.cuts[:axis], *labels.cuts[axis + 1 :]), labels.cells)
            for labels in several
        ]
    )
    rows = max(labels.rows for labels in several)
    if (
        rows
        * prod(len(own) - 1 for own in others)
        * sum(len(labels.cuts[axis]) - 1 for labels in several)
        > MOST_CELLS
    ):
        sizes = several[0].shape
        return everywhere(
            _largest(several),
            (*sizes[:axis], sum(labels.shape[axis] for labels in several), *sizes[axis + 1 :]),
        )
    parts, own = [], [0]
    for labels in several:
        fine = labels.refined((*others[:axis], labels.cuts[axis], *others[axis:])).cells
        parts.append(np.broadcast_to(fine, (rows, *fine.shape[1:])))
        own += [own[-1] + at for at in labels.cuts[axis][1:]]
    return merged(
        Labels((*others[:axis], tuple(own), *others[axis:]), np.concatenate(parts, axis=axis + 1))
    )


def blocks_of(array: NDArray[Any]) -> Labels:
    """Return an array of integers or booleans, shape (rows, *sizes), as labels."""
    cuts = tuple(tuple(range(n + 1)) for n in array.shape[1:])
    return merged(Labels(cuts, array.astype(np.int32)))
