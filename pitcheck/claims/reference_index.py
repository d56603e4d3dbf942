"""Reference values, looked up by the elements that a part of one begins with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.dimensions.scaling_class import Dimension
from pitcheck.claims.real_numbers import CANCELLED, TOLERANCE, Floats, agree, largest_place, tells
from pitcheck.claims.shard_places import Places
from pitcheck.stage.batch import Batch
from pitcheck.stage.evaluate import Evaluated
from pitcheck.stage.shaped_stage import ShapedStage
from pitcheck.stage.shapes import SymbolicPair

Numbers = NDArray[np.int64]
CANDIDATES = 6
"""The number of reference values that are compared with one parallel value."""
MOST_OWNERS = 256
"""The number of reference values that are narrowed down to these candidates."""
SORTED_IN = 64
"""The times that each element may be looked at in the time in which all are sorted."""
MOST_PLACES = 32
"""The number of places in one reference value that are compared."""


@dataclass
class Index:
    """Elements of the reference's values in trial 0, sorted, each with the value it belongs to."""

    keys: Floats
    owner: NDArray[np.int64]
    arrays: Mapping[int, Floats]
    """The reference values, shape (trials, *shape) each."""
    _scanned: int = 0
    """The elements that were looked through one by one."""

    @cached_property
    def shapes(self) -> Mapping[int, Numbers]:
        """Return the shapes of all reference values by number of dimensions.

        Each entry has shape (values, dimensions), and -1 for values with another number of
        dimensions.
        """
        found: dict[int, Numbers] = {}
        for value, array in self.arrays.items():
            rank = array.ndim - 1
            held = found.setdefault(
                rank, np.full((max(self.arrays) + 1, max(rank, 1)), -1, dtype=np.int64)
            )
            held[value] = array.shape[1:] if rank else 0
        return found

    @cached_property
    def _elements(self) -> tuple[Floats, Numbers]:
        """Return all elements in trial 0, sorted, and the value that each belongs to."""
        values = list(self.arrays)
        flat = np.concatenate([self.arrays[value][0].reshape(-1) for value in values])
        sizes = [self.arrays[value][0].size for value in values]
        owner = np.repeat(np.array(values, dtype=np.int64), sizes)
        order = np.argsort(flat)
        return flat[order], owner[order]

    @cached_property
    def _total(self) -> int:
        return sum(array[0].size for array in self.arrays.values())

    def holding(self, element: float, values: Numbers) -> Iterator[int]:
        """Yield those of some values that have an element in trial 0, in their order.

        Few values are looked through; all are sorted once that has taken as long as to sort them.
        """
        margin = TOLERANCE * abs(element)
        low, high = element - margin, element + margin
        if self._scanned > SORTED_IN * self._total:
            elements, owner = self._elements
            first = int(np.searchsorted(elements, low))
            behind = int(np.searchsorted(elements, high, side="right"))
            yield from values[np.isin(values, np.unique(owner[first:behind]))].tolist()
            return
        for value in values.tolist():
            array = self.arrays[value][0]
            self._scanned += array.size
            if bool(((array >= low) & (array <= high)).any()):
                yield value


def computed_values(batch: Batch) -> list[int]:
    """Return the values that the steps of a batch compute, in order and once each."""
    return list(
        dict.fromkeys(
            output for step in batch.steps for output in step.outputs if output is not None
        )
    )


def in_order(data: Floats, order: NDArray[np.int64] | None) -> Floats:
    """Return the trials of ``data`` (trials, ...) in an order; data that all trials share stay."""
    if order is None or data.shape[0] != len(order) or bool((order[1:] > order[:-1]).all()):
        return data
    return data[order]


def build_index(
    batch: Batch, evaluated: Evaluated, corners: Corners, order: NDArray[np.int64] | None = None
) -> Index:
    """Return the index of all elements of reference values at which a part may begin.

    ``order``: the order in which trials are used, shape (trials,); None keeps it.
    """
    arrays: dict[int, Floats] = {}
    keys, owners = [], []
    for value in dict.fromkeys([*batch.inputs, *computed_values(batch)]):
        if batch.graph.values[value].kind == "field" and value in evaluated.reference:
            data = in_order(np.asarray(evaluated.reference[value].data)[0][:, 0], order)
            if tells(data):
                arrays[value] = data
                # Each number once: a padded value is zero at most places.
                keys.append(
                    np.unique(data[0][np.ix_(*corners.of(value))] if data[0].ndim else data[0])
                )
                owners.append(np.full(len(keys[-1]), value, dtype=np.int64))
    if not arrays:
        return Index(np.zeros(0), np.zeros(0, dtype=np.int64), arrays)
    flat, owner = np.concatenate(keys), np.concatenate(owners)
    order = np.argsort(flat)
    return Index(flat[order], owner[order], arrays)


class Corners:
    """Reduced positions along the dimensions of reference values at which a part can begin.

    These are the multiples of a unit at full size. Along a dimension that keeps its size they are
    the places at which ``places`` knows shards to begin: a rank may hold one block of scores alone.
    """

    def __init__(self, symbolic: SymbolicPair, shaped: ShapedStage, places: Places) -> None:
        self._symbolic = symbolic
        self._sizes = shaped.sizes
        self._shards = places
        self._known: dict[tuple[int, int], NDArray[np.int64]] = {}

    def of(self, value: int) -> list[NDArray[np.int64]]:
        """Return the positions along every dimension of a reference value."""
        return [self._along(node) for node in self._symbolic.reference.values[value].dims]

    def _along(self, node: Dimension) -> NDArray[np.int64]:
        key = self._symbolic.system.number_of(node), node.size
        if key not in self._known:
            self._known[key] = np.array(self._places(node), dtype=np.int64)
        return self._known[key]

    def _places(self, node: Dimension) -> list[int]:
        own = self._symbolic.system.class_of(node)
        if own.inner is None and not own.positions and self._sizes.size(node) == node.size:
            return self._shards.starts(node)
        if own.inner is None:
            starts = dict.fromkeys(
                self._sizes.position(node, start) for start in range(0, node.size, own.unit)
            )
            return [start for start in starts if start < self._sizes.size(node)]
        return [
            i
            for i in range(self._sizes.size(node))
            if self._sizes.full_position(node, i) is not None
        ]


def lookup(data: Floats, index: Index) -> int | None:
    """Return a reference value of which every row of ``data`` is a box, or None.

    ``data`` has shape (trials, rows, *shape).
    """
    for reference in likeliest(data, index, beginning_like(data, index)):
        whole = index.arrays[reference]
        if all(
            any(
                stands_at(data[:, row], whole, start)
                for start in fitting_starts(data[:, row], whole)
            )
            for row in range(data.shape[1])
        ):
            return reference
    return None


def stands_at(data: Floats, whole: Floats, starts: Sequence[int]) -> bool:
    """Return True if ``data`` is the box of ``whole`` that begins at ``starts``."""
    box = whole[
        (slice(None), *(slice(s, s + n) for s, n in zip(starts, data.shape[1:], strict=True)))
    ]
    return box.shape[1:] == data.shape[1:] and agree(data, box)


def fitting_starts(data: Floats, whole: Floats) -> list[list[int]]:
    """Return the places at which ``data`` may begin in ``whole``, told by its largest element."""
    flat = data[0].reshape(-1)
    pivot = largest_place(flat)
    if whole.shape[1:] == data.shape[1:]:
        there = abs(whole[0].reshape(-1)[pivot] - flat[pivot]) <= TOLERANCE * abs(flat[pivot])
        return [[0] * (data.ndim - 1)] if there else []
    place = np.array(np.unravel_index(pivot, data.shape[1:]), dtype=np.int64)
    starts = np.argwhere(np.abs(whole[0] - flat[pivot]) <= TOLERANCE * abs(flat[pivot])) - place
    fitting = (starts >= 0).all(axis=1) & (
        starts + np.array(data.shape[1:], dtype=np.int64)
        <= np.array(whole.shape[1:], dtype=np.int64)
    ).all(axis=1)
    return [[int(i) for i in start] for start in starts[fitting][:MOST_PLACES]]


def beginning_like(data: Floats, index: Index) -> Numbers:
    """Return the reference values in which a part may begin with the first element, ascending.

    They have as many dimensions as ``data``, whose first row decides.
    """
    own = data[0, 0].reshape(-1)
    first = float(own[0])
    margin = max(TOLERANCE * abs(first), CANCELLED * float(np.abs(own).max()))
    low = int(np.searchsorted(index.keys, first - margin))
    high = int(np.searchsorted(index.keys, first + margin, side="right"))
    shape = data.shape[2:]
    owners = np.unique(index.owner[low:high])
    held = index.shapes.get(len(shape))
    if held is None:
        return owners[:0]
    return owners[(held[owners] >= np.array(shape or (0,), dtype=np.int64)).all(axis=1)]


def likeliest(data: Floats, index: Index, ordered: Numbers) -> Iterator[int]:
    """Yield the first few of some reference values in which a part may begin with the first row.

    All are yielded if they are few.
    """
    if len(ordered) <= CANDIDATES:
        yield from ordered.tolist()
        return
    # Many values begin with a zero: the largest element distinguishes them.
    row = data[0, 0].reshape(-1)
    holding = islice(index.holding(float(row[largest_place(row)]), ordered), MOST_OWNERS)
    fitting = (owner for owner in holding if fitting_starts(data[:, 0], index.arrays[owner]))
    yield from islice(fitting, CANDIDATES)
