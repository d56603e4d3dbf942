"""Reading and writing at indices: dynamic slices, gather and scatter with dimension numbers.

XLA clamps where a read begins, and drops what is written outside. Indices are clamped here unless
they are known to lie inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import prod
from types import MappingProxyType
from typing import cast

import numpy as np

from pitcheck.frontends.xla.lowering.arrays import Array
from pitcheck.frontends.xla.lowering.building import DEVICE, Building, unsupported
from pitcheck.frontends.xla.lowering.regions import reduction_of
from pitcheck.frontends.xla.lowering.structure import (
    joined,
    permuted,
    positions,
    reshaped,
    sliced,
    spread,
)
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.plan.model import Number, Table

Lower = Callable[[Building, Instruction, ArrayShape, Sequence[Array]], Array]


def indexed(b: Building, instruction: Instruction, operands: Sequence[Array]) -> Array | None:
    """Return the result of an operator that reads or writes at indices; None for other opcodes.

    Raises UnsupportedError for what has no meaning in a plan.
    """
    lower = _LOWER.get(instruction.opcode)
    if lower is None or not isinstance(instruction.shape, ArrayShape):
        return None
    return lower(b, instruction, instruction.shape, operands)


def clamped(b: Building, x: Array, low: int, most: int) -> Array:
    """Return integers, those below ``low`` or above ``most`` replaced by these."""
    if x.within(low, most + 1):
        return x
    if x.known is not None:
        return b.known(x.shape, np.clip(x.known, low, most))
    limits = {"min": low, "max": most}
    span = (low, most + 1)
    if x.span is not None:
        span = max(low, min(x.span[0], most)), min(most, max(x.span[1] - 1, low)) + 1
    return b.array("clamp", (x.name,), x.shape, limits, span=span)


# --- slices that begin at an index
def _dynamic_slice(
    b: Building, instruction: Instruction, _: ArrayShape, given: Sequence[Array]
) -> Array:
    x, *starts = given
    for axis, size in enumerate(instruction.get("dynamic_slice_sizes", ())):
        x = _cut(b, x, axis, size, starts[axis])
    return x


def _cut(b: Building, x: Array, axis: int, size: int, start: Array) -> Array:
    """Return ``size`` elements along ``axis``, from a place that may differ on each device."""
    most = x.sizes[axis] - size
    if not most:
        return x
    begin = clamped(b, start, 0, most)
    places = begin.per_device
    if places is None:
        return _taken(b, x, axis, size, begin)
    if len(set(places)) == 1:
        return sliced(b, x, axis, places[0], places[0] + size)
    shape = ArrayShape(x.shape.element, (*x.sizes[:axis], size, *x.sizes[axis + 1 :]))
    ends = Table((DEVICE,), tuple(place + size for place in places))
    cut = {"axis": axis, "start": Table((DEVICE,), places), "stop": ends}
    if x.known is not None and b.computes(shape, x):
        rows = np.broadcast_to(x.known, (len(places), *x.sizes))
        parts = [
            np.take(row, range(place, place + size), axis=axis)
            for row, place in zip(rows, places, strict=True)
        ]
        return b.known(shape, np.stack(parts), lambda: b.emit("slice", (x.name,), shape, cut))
    if x.number is not None:
        return b.filled(shape, x.number)
    return b.array("slice", (x.name,), shape, cut, span=x.span)


def _taken(b: Building, x: Array, axis: int, size: int, begin: Array) -> Array:
    """Return ``size`` elements along ``axis`` from an index that inputs decide."""
    line = ArrayShape(begin.shape.element, (size,))
    moved = begin.name
    if size > 1:
        first = spread(b, begin, (), (size,))
        moved = b.emit("add", (positions(b, size, begin.shape.element).name, first.name), line)
    else:
        moved = reshaped(b, begin, (1,)).name
    shape = ArrayShape(x.shape.element, (*x.sizes[:axis], size, *x.sizes[axis + 1 :]))
    return b.array("index_select", (x.name, moved), shape, {"axis": axis}, span=x.span)


def _dynamic_update_slice(
    b: Building, _: Instruction, shape: ArrayShape, given: Sequence[Array]
) -> Array:
    """Return ``x`` with a part replaced: axis by axis the update is put into its rows."""
    x, update, *starts = given
    axes = [d for d in range(x.rank) if update.sizes[d] != x.sizes[d]]
    if not axes:
        return update
    places = [clamped(b, starts[d], 0, x.sizes[d] - update.sizes[d]) for d in axes]
    known = [place.per_device for place in places]
    if all(each is not None and len(set(each)) == 1 for each in known):
        begins = {d: each[0] for d, each in zip(axes, known, strict=True) if each is not None}
        return _put(b, x, update, axes, begins)
    return _masked(b, x, update, dict(zip(axes, places, strict=True)))


def _put(
    b: Building, x: Array, update: Array, axes: Sequence[int], begins: Mapping[int, int]
) -> Array:
    """Return ``x`` with the part that begins at known places replaced."""
    if not axes:
        return update
    axis, *others = axes
    begin, size = begins[axis], update.sizes[axis]
    middle = _put(b, sliced(b, x, axis, begin, begin + size), update, others, begins)
    parts = []
    if begin:
        parts.append(sliced(b, x, axis, 0, begin))
    parts.append(middle)
    if begin + size < x.sizes[axis]:
        parts.append(sliced(b, x, axis, begin + size, x.sizes[axis]))
    return joined(b, parts, axis)


def _masked(b: Building, x: Array, update: Array, begins: Mapping[int, Array]) -> Array:
    """Return ``x`` with the part replaced that begins at places of each device, or of inputs."""
    inside: list[str] = []
    for axis, begin in begins.items():
        size = x.sizes[axis]
        line = ArrayShape(ElementType.S32, (size,))
        count = positions(b, size, ElementType.S32)
        first = spread(b, begin, (), (size,))
        after = b.array("sub", (count.name, first.name), line)
        truths = ArrayShape(ElementType.PRED, (size,))
        lower = b.emit("ge", (after.name, Number(0)), truths)
        upper = b.emit("lt", (after.name, Number(update.sizes[axis])), truths)
        both = b.array("logical_and", (lower, upper), truths)
        inside.append(spread(b, both, (axis,), x.sizes).name)
        place = clamped(b, after, 0, update.sizes[axis] - 1)
        wide = (*update.sizes[:axis], size, *update.sizes[axis + 1 :])
        shape = ArrayShape(update.shape.element, wide)
        update = b.array("index_select", (update.name, place.name), shape, {"axis": axis})
    mask = inside[0]
    for more in inside[1:]:
        mask = b.emit("logical_and", (mask, more), ArrayShape(ElementType.PRED, x.sizes))
    return b.array("where", (mask, update.name, x.name), x.shape)


# --- gather and scatter
def _components(
    b: Building, indices: Array, vector: int, count: int
) -> tuple[list[Array], tuple[int, ...]]:
    """Return the components of index vectors, each of the sizes of their batch."""
    if vector == indices.rank:
        if count != 1:
            raise unsupported(b, f"index vectors of 1 component for {count} dimensions")
        return [indices], indices.sizes
    batch = (*indices.sizes[:vector], *indices.sizes[vector + 1 :])
    if indices.sizes[vector] != count:
        raise unsupported(
            b, f"index vectors of {indices.sizes[vector]} components for {count} dimensions"
        )
    return [
        reshaped(b, sliced(b, indices, vector, number, number + 1), batch)
        for number in range(count)
    ], batch


def _line(b: Building, components: Sequence[Array], sizes: Sequence[int]) -> Array:
    """Return the places of index vectors in a row of all elements of some dimensions."""
    place = components[0]
    for component, size in zip(components[1:], sizes[1:], strict=True):
        span = None
        if place.span is not None and component.span is not None:
            low, high = place.span[0] * size, (place.span[1] - 1) * size
            span = low + component.span[0], high + component.span[1]
        shape = place.shape
        if place.known is not None and component.known is not None:
            place = b.known(shape, place.known * size + component.known)
            continue
        scaled = (
            b.emit("mul", (b.operand(place), Number(size)), shape)
            if (place.uniform is None)
            else b.known(shape, np.full((1, *place.sizes), int(place.uniform) * size)).name
        )
        place = b.array("add", (scaled, component.name), shape, span=span)
    return place


def _gather(
    b: Building, instruction: Instruction, shape: ArrayShape, given: Sequence[Array]
) -> Array:
    """Return elements, or slices that are whole but for single places, at index vectors."""
    x, indices = given
    numbers = instruction.attributes
    mapped = cast("tuple[int, ...]", numbers["start_index_map"])
    sizes = cast("tuple[int, ...]", numbers["slice_sizes"])
    batching = instruction.get("operand_batching_dims", ())
    collapsed = cast("tuple[int, ...]", numbers["collapsed_slice_dims"])
    offsets = cast("tuple[int, ...]", numbers["offset_dims"])
    whole = [d for d in range(x.rank) if d not in mapped and d not in batching]
    if any(sizes[d] != 1 for d in (*mapped, *batching)) or any(
        sizes[d] != x.sizes[d] for d in whole
    ):
        raise unsupported(b, "a gather of slices that are neither whole nor of one place")
    if any(d in collapsed and x.sizes[d] != 1 for d in whole):
        raise unsupported(b, "a gather that drops a dimension of more than one place")
    vector = instruction.get("index_vector_dim", indices.rank)
    parts, batch = _components(b, indices, vector, len(mapped))
    parts = [clamped(b, p, 0, x.sizes[d] - 1) for p, d in zip(parts, mapped, strict=True)]
    place = _line(b, parts, [x.sizes[d] for d in mapped])
    kept = [d for d in range(x.rank) if d not in collapsed and d not in batching]
    batched = [d for d in range(shape_rank(shape)) if d not in offsets]
    if batching:
        if kept:
            raise unsupported(b, "a gather of slices in batches")
        paired = _without(instruction.get("start_indices_batching_dims", ()), vector)
        return _along(b, x, place, (batching, mapped, whole), paired)
    columns = permuted(b, x, (*mapped, *whole))
    rest = tuple(x.sizes[d] for d in whole)
    rows = reshaped(b, columns, (prod(x.sizes[d] for d in mapped), *rest))
    flat = ArrayShape(shape.element, (*batch, *rest))
    found = b.array("index_select", (rows.name, place.name), flat, {"axis": 0}, span=x.span)
    # Kept dimensions of one place, which are indexed, stand again where they were.
    found = reshaped(b, found, (*batch, *(sizes[d] for d in whole if d in kept)))
    inner = [d for d in kept if d not in mapped]
    full = reshaped(b, found, (*batch, *(sizes[d] for d in [*inner, *_only(kept, mapped)])))
    order = [*inner, *_only(kept, mapped)]
    target: list[int] = [0] * shape_rank(shape)
    for number, d in enumerate(batched):
        target[d] = number
    for d, offset in zip(kept, offsets, strict=True):
        target[offset] = len(batch) + order.index(d)
    return permuted(b, full, tuple(target))


def _only(kept: Sequence[int], mapped: Sequence[int]) -> list[int]:
    return [d for d in kept if d in mapped]


def shape_rank(shape: ArrayShape) -> int:
    """Return the number of dimensions of a shape."""
    return len(shape.dimensions)


def _without(dimensions: Sequence[int], vector: int) -> tuple[int, ...]:
    """Return dimensions of indices, counted without that of the index vectors."""
    return tuple(d - (d > vector) for d in dimensions)


def _along(
    b: Building,
    x: Array,
    place: Array,
    dimensions: tuple[Sequence[int], Sequence[int], Sequence[int]],
    paired: Sequence[int],
) -> Array:
    """Return the element at the index of each batch.

    ``dimensions``: those of ``x`` that batches run over, that are indexed, and the others, each of
    one place. ``paired``: the dimensions of the indices that batches run over.
    """
    batching, mapped, whole = dimensions
    others = [d for d in range(place.rank) if d not in paired]
    order = (*paired, *others)
    heads = tuple(x.sizes[d] for d in batching)
    columns = permuted(b, x, (*batching, *mapped, *whole))
    rows = reshaped(b, columns, (*heads, prod(x.sizes[d] for d in mapped)))
    arranged = permuted(b, place, order)
    count = prod(place.sizes[d] for d in others)
    index = reshaped(b, arranged, (*heads, count))
    shape = ArrayShape(x.shape.element, index.sizes)
    found = b.array("gather", (rows.name, index.name), shape, {"axis": len(heads)}, span=x.span)
    back = reshaped(b, found, arranged.sizes)
    return permuted(b, back, tuple(int(d) for d in np.argsort(order)))


def _scatter(
    b: Building, instruction: Instruction, shape: ArrayShape, given: Sequence[Array]
) -> Array:
    """Return a base with updates added at index vectors; what lies outside is dropped."""
    if len(given) != 3:
        raise unsupported(b, "a scatter into several arrays at once")
    base, indices, updates = given
    if reduction_of(b.module, instruction) != "add":
        raise unsupported(b, "a scatter that does not add")
    mapped = instruction.get("scatter_dims_to_operand_dims", ())
    inserted = instruction.get("inserted_window_dims", ())
    batching = instruction.get("input_batching_dims", ())
    windows = instruction.get("update_window_dims", ())
    vector = instruction.get("index_vector_dim", indices.rank)
    whole = [d for d in range(base.rank) if d not in inserted and d not in batching]
    if sorted(mapped) != sorted(inserted) or [updates.sizes[d] for d in windows] != [
        base.sizes[d] for d in whole
    ]:
        raise unsupported(b, "a scatter of windows that are neither whole nor of one place")
    parts, batch = _components(b, indices, vector, len(mapped))
    scattered = [d for d in range(updates.rank) if d not in windows]
    updates = permuted(b, updates, (*scattered, *windows))
    updates = _inside(b, parts, [base.sizes[d] for d in mapped], updates)
    parts = [clamped(b, p, 0, base.sizes[d] - 1) for p, d in zip(parts, mapped, strict=True)]
    place = _line(b, parts, [base.sizes[d] for d in mapped])
    if batching:
        if whole:
            raise unsupported(b, "a scatter of windows in batches")
        paired = _without(instruction.get("scatter_indices_batching_dims", ()), vector)
        return _add_along(b, base, place, updates, (batching, mapped), paired)
    order = (*mapped, *whole)
    columns = permuted(b, base, order)
    rest = tuple(base.sizes[d] for d in whole)
    rows = reshaped(b, columns, (prod(base.sizes[d] for d in mapped), *rest))
    added = b.array("index_add", (rows.name, place.name, updates.name), rows.shape, {"axis": 0})
    back = reshaped(b, added, columns.sizes)
    return permuted(b, back, tuple(int(d) for d in np.argsort(order)))


def _inside(b: Building, parts: Sequence[Array], sizes: Sequence[int], updates: Array) -> Array:
    """Return updates, those at index vectors outside of the base replaced by 0."""
    tests: list[str] = []
    for part, size in zip(parts, sizes, strict=True):
        truths = ArrayShape(ElementType.PRED, part.sizes)
        if part.span is None or part.span[0] < 0:
            tests.append(b.emit("ge", (part.name, Number(0)), truths))
        if part.span is None or part.span[1] > size:
            tests.append(b.emit("lt", (part.name, Number(size)), truths))
    if not tests:
        return updates
    mask = tests[0]
    truths = ArrayShape(ElementType.PRED, parts[0].sizes)
    for test in tests[1:]:
        mask = b.emit("logical_and", (mask, test), truths)
    inside = Array(truths, lambda: mask)
    wide = spread(b, inside, tuple(range(inside.rank)), updates.sizes)
    if updates.known is not None or updates.number is not None:
        value = b.operand(updates)
        zero = b.filled(updates.shape, Fraction(0)).name
        return b.array("where", (wide.name, value, zero), updates.shape)
    return b.array("where", (wide.name, updates.name, Number(0)), updates.shape)


def _add_along(
    b: Building,
    base: Array,
    place: Array,
    updates: Array,
    dimensions: tuple[Sequence[int], Sequence[int]],
    paired: Sequence[int],
) -> Array:
    """Return a base with each batch's updates added at its indices."""
    batching, mapped = dimensions
    others = [d for d in range(place.rank) if d not in paired]
    arranged = (*paired, *others)
    order = (*batching, *mapped)
    heads = tuple(base.sizes[d] for d in batching)
    columns = permuted(b, base, order)
    rows = reshaped(b, columns, (*heads, prod(base.sizes[d] for d in mapped)))
    count = prod(place.sizes[d] for d in others)
    index = reshaped(b, permuted(b, place, arranged), (*heads, count))
    source = reshaped(b, permuted(b, updates, arranged), (*heads, count))
    added = b.array(
        "scatter_add",
        (rows.name, index.name, source.name),
        rows.shape,
        {"axis": len(heads)},
    )
    back = reshaped(b, added, columns.sizes)
    return permuted(b, back, tuple(int(d) for d in np.argsort(order)))


_LOWER: Mapping[str, Lower] = MappingProxyType(
    {
        "dynamic-slice": _dynamic_slice,
        "dynamic-update-slice": _dynamic_update_slice,
        "gather": _gather,
        "scatter": _scatter,
    }
)
