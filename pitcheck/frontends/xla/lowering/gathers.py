"""Gather and scatter with dimension numbers, of slices that are whole but for single places.

XLA clamps indices that are read, and drops what is written outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

import numpy as np

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import Array, Span
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.dynamic_slices import LowerIndexed, clamped
from pitcheck.frontends.xla.lowering.reductions import added_span
from pitcheck.frontends.xla.lowering.regions import reduction_of
from pitcheck.frontends.xla.lowering.spans import held
from pitcheck.frontends.xla.lowering.structure import permuted, reshaped, sliced, spread
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.plan.model import Number


@dataclass(frozen=True)
class Numbers:
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


_GATHER = (
    "start_index_map",
    "collapsed_slice_dims",
    "operand_batching_dims",
    "start_indices_batching_dims",
    "offset_dims",
)
_SCATTER = (
    "scatter_dims_to_operand_dims",
    "inserted_window_dims",
    "input_batching_dims",
    "scatter_indices_batching_dims",
    "update_window_dims",
)


def _numbers(
    b: Building, instruction: Instruction, x: Array, indices: Array, names: Sequence[str]
) -> Numbers:
    """Return dimension numbers.

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
    if (
        components != len(mapped)
        or len(batching) != len(paired)
        or len({*named}) < len(named)
        or not {*named, *collapsed} <= {*range(x.rank)}
        or not {*paired} <= {*range(indices.rank)} - {vector}
    ):
        raise PlanError(
            f"the dimension numbers of {instruction.opcode} do not fit {x.shape} and indices "
            f"{indices.shape}",
            b.place,
        )
    return Numbers(
        mapped,
        collapsed,
        batching,
        tuple(d - (d > vector) for d in paired),
        offsets,
        vector,
        tuple(d for d in range(x.rank) if d not in named),
        tuple(d for d in range(x.rank) if d not in collapsed and d not in batching),
    )


# --- index vectors
def _components(b: Building, indices: Array, numbers: Numbers) -> list[Array]:
    """Return the components of index vectors, each of the sizes of their batch."""
    vector = numbers.vector
    if vector == indices.rank:
        return [indices]
    batch = (*indices.sizes[:vector], *indices.sizes[vector + 1 :])
    return [
        reshaped(b, sliced(b, indices, vector, number, number + 1), batch)
        for number in range(len(numbers.mapped))
    ]


def _places(b: Building, components: Sequence[Array], sizes: Sequence[int]) -> Array:
    """Return the places of index vectors in a row of all elements of some dimensions.

    Each component lies within its size.
    """
    place = components[0]
    for component, size in zip(components[1:], sizes[1:], strict=True):
        # 64 bits hold each place, which the type of the indices may not.
        shape = ArrayShape(ElementType.S64, place.sizes)
        if place.known is not None and component.known is not None:
            rows = place.known.astype(np.int64) * size
            place = b.known(shape, rows + component.known.astype(np.int64))
            continue
        scaled = b.emit("mul", (place.name, Number(size)), shape)
        span = _place_span(place, component, size)
        place = b.array("add", (scaled, component.name), shape, span=span)
    return place


def _place_span(place: Array, component: Array, size: int) -> Span | None:
    if place.span is None or component.span is None:
        return None
    low, high = place.span[0] * size, (place.span[1] - 1) * size
    return low + component.span[0], high + component.span[1]


# --- gather
def _gather(b: Building, instruction: Instruction, given: Sequence[Array]) -> Array:
    """Return elements, or slices that are whole but for single places, at index vectors."""
    x, indices = given
    numbers = _numbers(b, instruction, x, indices, _GATHER)
    _check_slices(b, instruction.integers("slice_sizes"), x, numbers)
    mapped = numbers.mapped
    parts = [
        clamped(b, part, 0, x.sizes[d] - 1)
        for part, d in zip(_components(b, indices, numbers), mapped, strict=True)
    ]
    place = _places(b, parts, [x.sizes[d] for d in mapped])
    if numbers.batching:
        return _gathered_by_batch(b, x, place, numbers)
    columns = permuted(b, x, (*mapped, *numbers.whole))
    rest = tuple(x.sizes[d] for d in numbers.whole)
    rows = reshaped(b, columns, (prod(x.sizes[d] for d in mapped), *rest))
    flat = ArrayShape(x.shape.element, (*place.sizes, *rest))
    found = b.array("index_select", (rows.name, place.name), flat, {"axis": 0}, span=x.span)
    return _with_offsets(b, found, place, x, numbers)


def _check_slices(b: Building, sizes: tuple[int, ...], x: Array, numbers: Numbers) -> None:
    """Raise UnsupportedError unless slices are of one place, or whole, along each dimension."""
    if len(sizes) != x.rank:
        raise PlanError(f"gather takes slices of {list(sizes)} from {x.shape}", b.place)
    single = all(sizes[d] == 1 for d in (*numbers.mapped, *numbers.batching))
    if not single or any(sizes[d] != x.sizes[d] for d in numbers.whole):
        raise unsupported(b, "a gather of slices that are neither whole nor of one place")
    if any(sizes[d] != 1 for d in numbers.collapsed):
        raise PlanError("gather collapses a dimension of more than one place", b.place)
    if numbers.batching and numbers.kept:
        raise unsupported(b, "a gather of slices in batches")


def _with_offsets(b: Building, found: Array, place: Array, x: Array, numbers: Numbers) -> Array:
    """Return slices behind their index vectors' dimensions with each dimension in its place."""
    inner = [d for d in numbers.kept if d in numbers.whole]
    single = [d for d in numbers.kept if d in numbers.mapped]
    behind = (*(x.sizes[d] for d in inner), *(1 for _ in single))
    full = reshaped(b, found, (*place.sizes, *behind))
    order = [*inner, *single]
    target = [0] * full.rank
    batched = [d for d in range(full.rank) if d not in numbers.offsets]
    for number, d in enumerate(batched):
        target[d] = number
    for d, offset in zip(numbers.kept, numbers.offsets, strict=True):
        target[offset] = place.rank + order.index(d)
    return permuted(b, full, tuple(target))


@dataclass(frozen=True)
class _Batches:
    """An array and its index vectors as rows: for each batch, one behind the other.

    Attributes:
        rows: the array, shape (*batches, places).
        index: the places, shape (*batches, index vectors).
        order: the dimensions of the array in the order of ``rows``.
        arranged: the dimensions of the places in the order of ``index``.
        sizes: the sizes of the places in that order.
    """

    rows: Array
    index: Array
    order: tuple[int, ...]
    arranged: tuple[int, ...]
    sizes: tuple[int, ...]


def _batches(b: Building, x: Array, place: Array, numbers: Numbers) -> _Batches:
    """Return an array and its places as rows of each batch."""
    others = [d for d in range(place.rank) if d not in numbers.paired]
    arranged = (*numbers.paired, *others)
    order = (*numbers.batching, *numbers.mapped, *numbers.whole)
    heads = tuple(x.sizes[d] for d in numbers.batching)
    rows = reshaped(b, permuted(b, x, order), (*heads, prod(x.sizes[d] for d in numbers.mapped)))
    moved = permuted(b, place, arranged)
    index = reshaped(b, moved, (*heads, prod(place.sizes[d] for d in others)))
    return _Batches(rows, index, order, arranged, moved.sizes)


def _gathered_by_batch(b: Building, x: Array, place: Array, numbers: Numbers) -> Array:
    """Return the element at each index vector of each batch."""
    batches = _batches(b, x, place, numbers)
    rows, index = batches.rows, batches.index
    shape = ArrayShape(x.shape.element, index.sizes)
    attributes = {"axis": index.rank - 1}
    found = b.array("gather", (rows.name, index.name), shape, attributes, span=x.span)
    return permuted(b, reshaped(b, found, batches.sizes), _inverse(batches.arranged))


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(d) for d in range(len(order)))


# --- scatter
def _scatter(b: Building, instruction: Instruction, given: Sequence[Array]) -> Array:
    """Return a base with updates added at index vectors; what lies outside is dropped."""
    if len(given) != 3:
        raise unsupported(b, "a scatter into several arrays at once")
    base, indices, updates = given
    if reduction_of(b.module, instruction) != "add" or base.shape.element is ElementType.PRED:
        raise unsupported(b, "a scatter that does not add")
    numbers = _numbers(b, instruction, base, indices, _SCATTER)
    scattered = tuple(d for d in range(updates.rank) if d not in numbers.offsets)
    _check_windows(b, base, updates, numbers)
    parts = _components(b, indices, numbers)
    updates = permuted(b, updates, (*scattered, *numbers.offsets))
    updates = _inside(b, parts, [base.sizes[d] for d in numbers.mapped], updates)
    parts = [
        clamped(b, part, 0, base.sizes[d] - 1)
        for part, d in zip(parts, numbers.mapped, strict=True)
    ]
    place = _places(b, parts, [base.sizes[d] for d in numbers.mapped])
    span = _scattered_span(b, base, updates)
    if numbers.batching:
        return _added_by_batch(b, base, place, updates, numbers, span)
    return _added(b, base, place, updates, numbers, span)


def _check_windows(b: Building, base: Array, updates: Array, numbers: Numbers) -> None:
    """Raise an error unless windows are of one place, or whole, along each dimension."""
    if updates.shape.element is not base.shape.element:
        raise PlanError(f"{updates.shape} is scattered into {base.shape}", b.place)
    windows = [updates.sizes[d] for d in numbers.offsets]
    whole = [base.sizes[d] for d in numbers.whole]
    if sorted(numbers.mapped) != sorted(numbers.collapsed) or windows != whole:
        raise unsupported(b, "a scatter of windows that are neither whole nor of one place")
    if numbers.batching and whole:
        raise unsupported(b, "a scatter of windows in batches")


def _scattered_span(b: Building, base: Array, updates: Array) -> Span | None:
    """Return the span of a base with any of the updates added; None for other than integers."""
    if base.span is None or updates.span is None:
        return None
    added = added_span(b, updates, prod(updates.sizes)) or (0, 1)
    low, high = min(added[0], 0), max(added[1], 1)
    span = held((base.span[0] + low, base.span[1] + high - 1), base.shape.element)
    if span is None:
        raise unsupported(b, f"a sum of {base.shape.element}, which may wrap around,")
    return span


def _added(
    b: Building, base: Array, place: Array, updates: Array, numbers: Numbers, span: Span | None
) -> Array:
    """Return a base with each slice of the updates added at its place."""
    order = (*numbers.mapped, *numbers.whole)
    columns = permuted(b, base, order)
    rest = tuple(base.sizes[d] for d in numbers.whole)
    rows = reshaped(b, columns, (prod(base.sizes[d] for d in numbers.mapped), *rest))
    given = rows.name, place.name, updates.name
    added = b.array("index_add", given, rows.shape, {"axis": 0}, span=span)
    return permuted(b, reshaped(b, added, columns.sizes), _inverse(order))


def _inside(b: Building, parts: Sequence[Array], sizes: Sequence[int], updates: Array) -> Array:
    """Return updates, those at index vectors outside of the base replaced by 0."""
    tests: list[str] = []
    truths = ArrayShape(ElementType.PRED, parts[0].sizes)
    for part, size in zip(parts, sizes, strict=True):
        if not part.within(0, part.span[1] if part.span else 0):
            tests.append(b.emit("ge", (part.name, Number(0)), truths))
        if not part.within(part.span[0] if part.span else 0, size):
            tests.append(b.emit("lt", (part.name, Number(size)), truths))
    if not tests:
        return updates
    mask = tests[0]
    for test in tests[1:]:
        mask = b.emit("logical_and", (mask, test), truths)
    wide = spread(b, Array(truths, lambda: mask), tuple(range(len(parts[0].sizes))), updates.sizes)
    span = None if updates.span is None else (min(updates.span[0], 0), max(updates.span[1], 1))
    return b.array("where", (wide.name, updates.name, Number(0)), updates.shape, span=span)


def _added_by_batch(
    b: Building, base: Array, place: Array, updates: Array, numbers: Numbers, span: Span | None
) -> Array:
    """Return a base with each batch's updates added at its places."""
    batches = _batches(b, base, place, numbers)
    rows, index = batches.rows, batches.index
    source = reshaped(b, permuted(b, updates, batches.arranged), index.sizes)
    given = rows.name, index.name, source.name
    added = b.array("scatter_add", given, rows.shape, {"axis": index.rank - 1}, span=span)
    sizes = tuple(base.sizes[d] for d in batches.order)
    return permuted(b, reshaped(b, added, sizes), _inverse(batches.order))


GATHERS: Mapping[str, LowerIndexed] = MappingProxyType({"gather": _gather, "scatter": _scatter})
"""The lowerings of reads and writes at index vectors, by their opcodes."""
