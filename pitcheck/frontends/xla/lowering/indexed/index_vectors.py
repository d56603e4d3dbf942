"""The dimension numbers of gathers and scatters, and index vectors as places in rows of elements.

The dimensions of an array are in three classes: batches run over some, components of index vectors
are places in others (mapped), and the rest are taken from their start (whole).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import Array, Span
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.structure import (
    permuted,
    positions,
    reshaped,
    sliced,
    spread,
)
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.plan.model import Number


@dataclass(frozen=True)
class DimensionNumbers:
    """The dimension numbers of a gather or a scatter, under the names of a gather.

    Attributes:
        mapped: the dimension of the array that each component of an index vector is a place in.
        collapsed: the dimensions of the array that slices are taken without.
        batching: the dimensions of the array that batches run over.
        paired: the dimensions of the indices that they run over, counted without ``vector``.
        offsets: the dimensions of the slices in the result, or in the updates.
        vector: the dimension of the indices that index vectors lie along.
        whole: the dimensions of the array that are neither mapped nor batching.
        kept: the dimensions of the array that slices have.
    """

    mapped: tuple[int, ...]
    collapsed: tuple[int, ...]
    batching: tuple[int, ...]
    paired: tuple[int, ...]
    offsets: tuple[int, ...]
    vector: int
    whole: tuple[int, ...]
    kept: tuple[int, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """The dimensions of the array as rows: batches, places, and what is whole."""
        return *self.batching, *self.mapped, *self.whole


GATHER = (
    "start_index_map",
    "collapsed_slice_dims",
    "operand_batching_dims",
    "start_indices_batching_dims",
    "offset_dims",
)
SCATTER = (
    "scatter_dims_to_operand_dims",
    "inserted_window_dims",
    "input_batching_dims",
    "scatter_indices_batching_dims",
    "update_window_dims",
)


def dimension_numbers(
    b: Building, instruction: Instruction, x: Array, indices: Array, names: Sequence[str]
) -> DimensionNumbers:
    """Return dimension numbers. ``names``: GATHER or SCATTER.

    Raises:
        UnsupportedError: index vectors have no components.
        PlanError: the numbers do not fit the array and its indices.
    """
    mapped, collapsed, batching, paired, offsets = map(instruction.integers, names)
    vector = instruction.get("index_vector_dim", indices.rank)
    if not mapped:
        raise unsupported(b, f"{instruction.opcode} without indices")
    components = 1 if vector == indices.rank else indices.sizes[vector]
    named = (*mapped, *batching)
    kept = tuple(d for d in range(x.rank) if d not in collapsed and d not in batching)
    if (
        components != len(mapped)
        or len(batching) != len(paired)
        or len(kept) != len(offsets)
        or len({*named}) < len(named)
        or not {*named, *collapsed} <= {*range(x.rank)}
        or not {*paired} <= {*range(indices.rank)} - {vector}
    ):
        raise PlanError(
            f"the dimension numbers of {instruction.opcode} do not fit {x.shape} and indices "
            f"{indices.shape}",
            b.place,
        )
    return DimensionNumbers(
        mapped,
        collapsed,
        batching,
        tuple(d - (d > vector) for d in paired),
        offsets,
        vector,
        tuple(d for d in range(x.rank) if d not in named),
        kept,
    )


def components(b: Building, indices: Array, numbers: DimensionNumbers) -> list[Array]:
    """Return the components of index vectors, each of the sizes of their batch."""
    vector = numbers.vector
    if vector == indices.rank:
        return [indices]
    batch = (*indices.sizes[:vector], *indices.sizes[vector + 1 :])
    return [
        reshaped(b, sliced(b, indices, vector, number, number + 1), batch)
        for number in range(len(numbers.mapped))
    ]


# --- places
def widened(b: Building, parts: Sequence[Array], windows: Sequence[int]) -> list[Array]:
    """Return the places of all elements of windows that begin at index vectors.

    Windows of several places add dimensions behind those of the index vectors.
    """
    long = [number for number, size in enumerate(windows) if size > 1]
    if not long:
        return list(parts)
    rank = parts[0].rank
    sizes = (*parts[0].sizes, *(windows[number] for number in long))
    found = []
    for number, part in enumerate(parts):
        wide = spread(b, part, tuple(range(rank)), sizes)
        if number in long:
            count = positions(b, windows[number], ElementType.S64)
            wide = _sum(b, wide, spread(b, count, (rank + long.index(number),), sizes), 1)
        found.append(wide)
    return found


def flat_places(b: Building, parts: Sequence[Array], sizes: Sequence[int]) -> Array:
    """Return the places of index vectors in a row of all elements of some dimensions.

    Each component lies within its size.
    """
    place = parts[0]
    for part, size in zip(parts[1:], sizes[1:], strict=True):
        place = _sum(b, place, part, size)
    return place


def _sum(b: Building, place: Array, more: Array, size: int) -> Array:
    """Return places times a size, and more. 64 bits hold them, which their type may not."""
    shape = ArrayShape(ElementType.S64, place.sizes)
    if place.known is not None and more.known is not None:
        rows = place.known.astype(np.int64) * size
        return b.known(shape, rows + more.known.astype(np.int64))
    scaled = place.name if size == 1 else b.emit("mul", (place.name, Number(size)), shape)
    return b.array("add", (scaled, more.name), shape, span=_sum_span(place, more, size))


def _sum_span(place: Array, more: Array, size: int) -> Span | None:
    if place.span is None or more.span is None:
        return None
    low, high = place.span[0] * size, (place.span[1] - 1) * size
    return low + more.span[0], high + more.span[1]


# --- rows
@dataclass(frozen=True)
class Rows:
    """An array and the places of its index vectors as rows: for each batch, one behind the other.

    Attributes:
        array: the array, shape (*batches, places, *whole).
        index: the places, shape (*batches, index vectors).
        arranged: the dimensions of the places in the order of ``index``.
        sizes: the sizes of the places in that order.
    """

    array: Array
    index: Array
    arranged: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def axis(self) -> int:
        """The dimension of places, and of index vectors."""
        return self.index.rank - 1

    @property
    def rest(self) -> tuple[int, ...]:
        """The sizes of the dimensions that are whole."""
        return self.array.sizes[self.index.rank :]

    def wide_index(self, b: Building) -> Array:
        """Return the places once for each element of the dimensions that are whole."""
        sizes = (*self.index.sizes, *self.rest)
        return spread(b, self.index, tuple(range(self.index.rank)), sizes)


def rows_of(b: Building, x: Array, place: Array, numbers: DimensionNumbers) -> Rows:
    """Return an array and its places as rows of each batch."""
    others = [d for d in range(place.rank) if d not in numbers.paired]
    arranged = (*numbers.paired, *others)
    heads = tuple(x.sizes[d] for d in numbers.batching)
    rest = tuple(x.sizes[d] for d in numbers.whole)
    count = prod(x.sizes[d] for d in numbers.mapped)
    array = reshaped(b, permuted(b, x, numbers.order), (*heads, count, *rest))
    moved = permuted(b, place, arranged)
    index = reshaped(b, moved, (*heads, prod(place.sizes[d] for d in others)))
    return Rows(array, index, arranged, moved.sizes)


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the order that undoes another."""
    return tuple(order.index(d) for d in range(len(order)))
