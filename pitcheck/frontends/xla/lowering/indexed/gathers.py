"""Gathers: slices that begin at index vectors. XLA clamps these so that slices lie inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import Array
from pitcheck.frontends.xla.lowering.building import Building
from pitcheck.frontends.xla.lowering.indexed.dynamic_slices import clamped
from pitcheck.frontends.xla.lowering.indexed.index_vectors import (
    GATHER,
    DimensionNumbers,
    components,
    dimension_numbers,
    flat_places,
    inverse,
    rows_of,
    widened,
)
from pitcheck.frontends.xla.lowering.indexed.shard_places import clamped_in_part
from pitcheck.frontends.xla.lowering.structure import permuted, reshaped, sliced
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape


def gather(b: Building, instruction: Instruction, given: Sequence[Array]) -> Array:
    """Return slices at index vectors."""
    x, indices = given
    numbers = dimension_numbers(b, instruction, x, indices, GATHER)
    sizes = instruction.integers("slice_sizes")
    _check_slices(b, sizes, x, numbers)
    for d in numbers.whole:
        x = sliced(b, x, d, 0, sizes[d])
    mapped = numbers.mapped
    starts = components(b, indices, numbers)
    inside = _inside(b, x, starts, {d: x.sizes[d] - sizes[d] for d in mapped})
    parts = widened(b, inside, [sizes[d] for d in mapped])
    place = flat_places(b, parts, [x.sizes[d] for d in mapped])
    found = _taken(b, x, place, numbers)
    return _with_offsets(b, found, inside[0].sizes, sizes, numbers)


def _inside(b: Building, x: Array, starts: Sequence[Array], most: Mapping[int, int]) -> list[Array]:
    """Return where slices begin, so that they lie inside. ``most``: where the last ones do."""
    if len(most) == 1:
        ((axis, last),) = most.items()
        found = clamped_in_part(b, x, axis, starts[0]) if last == x.sizes[axis] - 1 else None
        if found is not None:
            return [found]
    return [clamped(b, part, 0, last) for part, last in zip(starts, most.values(), strict=True)]


def _check_slices(b: Building, sizes: tuple[int, ...], x: Array, numbers: DimensionNumbers) -> None:
    """Raise PlanError unless slices fit the array, and have one place where they are without."""
    fits = len(sizes) == x.rank and all(
        0 <= size <= whole for size, whole in zip(sizes, x.sizes, strict=True)
    )
    if not fits or any(sizes[d] != 1 for d in (*numbers.collapsed, *numbers.batching)):
        raise PlanError(
            f"gather takes slices of {list(sizes)} from {x.shape}: they do not fit, or a "
            f"dimension that they are taken without has not one place",
            b.place,
        )


def _taken(b: Building, x: Array, place: Array, numbers: DimensionNumbers) -> Array:
    """Return what is at places, shape (*places, *whole dimensions)."""
    rows = rows_of(b, x, place, numbers)
    if not numbers.batching:
        flat = ArrayShape(x.shape.element, (*place.sizes, *rows.rest))
        given = rows.array.name, place.name
        return b.array("index_select", given, flat, {"axis": 0}, span=x.span)
    index = rows.wide_index(b)
    shape = ArrayShape(x.shape.element, index.sizes)
    given = rows.array.name, index.name
    found = b.array("gather", given, shape, {"axis": rows.axis}, span=x.span)
    behind = range(place.rank, place.rank + len(rows.rest))
    return permuted(
        b, reshaped(b, found, (*rows.sizes, *rows.rest)), (*inverse(rows.arranged), *behind)
    )


def _with_offsets(
    b: Building,
    found: Array,
    batch: tuple[int, ...],
    sizes: tuple[int, ...],
    numbers: DimensionNumbers,
) -> Array:
    """Return slices behind their index vectors' dimensions with each dimension in its place."""
    order = [d for d in (*numbers.mapped, *numbers.whole) if d in numbers.kept]
    full = reshaped(b, found, (*batch, *(sizes[d] for d in order)))
    target = [0] * full.rank
    batched = [d for d in range(full.rank) if d not in numbers.offsets]
    for number, d in enumerate(batched):
        target[d] = number
    for d, offset in zip(numbers.kept, numbers.offsets, strict=True):
        target[offset] = len(batch) + order.index(d)
    return permuted(b, full, tuple(target))
