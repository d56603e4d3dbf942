"""Scatters: updates that are written at index vectors into a base.

XLA drops an update whose window does not lie inside. It does not say in which order it takes those
that meet: they are combined by what does not depend on it, or none may meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import Array, Span
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.elementwise import chosen
from pitcheck.frontends.xla.lowering.indexed.dynamic_slices import clamped
from pitcheck.frontends.xla.lowering.indexed.index_vectors import (
    SCATTER,
    DimensionNumbers,
    Rows,
    components,
    dimension_numbers,
    flat_places,
    inverse,
    rows_of,
    widened,
)
from pitcheck.frontends.xla.lowering.indexed.shard_places import places_in_part
from pitcheck.frontends.xla.lowering.reductions import added_span, check_operator, of_two, over
from pitcheck.frontends.xla.lowering.regions.of_two import REPLACE, reduction_of
from pitcheck.frontends.xla.lowering.spans import held
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
from pitcheck.plan.model import Number

MOST_COMPARED = 1 << 22
"""The pairs of an element of the base and an update that are compared at most."""


@dataclass(frozen=True)
class _Updates:
    """Updates as rows beside those of the base.

    Attributes:
        rows: the base, and the places of the updates, which lie inside.
        numbers: the updates, shape (*batches, index vectors, *whole).
        inside: truths, shape (*batches, index vectors): the updates that are not dropped; None if
            all are.
        vectors: the number of index vectors of each batch, each of a window that meets itself
            nowhere.
        apart: True if no two windows of a batch that lie inside meet, by a promise or by what is
            known of their index vectors.
    """

    rows: Rows
    numbers: Array
    inside: Array | None
    vectors: int
    apart: bool

    def spread_inside(self, b: Building) -> Array | None:
        """Return for each number of the updates if it is not dropped."""
        if self.inside is None:
            return None
        return spread(b, self.inside, tuple(range(self.inside.rank)), self.numbers.sizes)


def scatter(b: Building, instruction: Instruction, given: Sequence[Array]) -> Array:
    """Return a base with updates combined with it, or written into it, at index vectors."""
    if len(given) != 3:
        raise unsupported(b, "a scatter into several arrays at once")
    base, indices, updates = given
    operator = reduction_of(b.module, instruction)
    if operator != REPLACE:
        check_operator(b, operator, base.shape.element)
    numbers = dimension_numbers(b, instruction, base, indices, SCATTER)
    windows = _windows(b, base, updates, numbers)
    starts = components(b, indices, numbers)
    apart = instruction.get("unique_indices", False) or _differ(base, starts, numbers, windows)
    return _into_part(b, base, starts, updates, numbers, windows, operator, apart)


def _windows(
    b: Building, base: Array, updates: Array, numbers: DimensionNumbers
) -> tuple[int, ...]:
    """Return the size of a window along each dimension of the base.

    Raises PlanError for updates of another type, or larger than the base.
    """
    sizes = [1] * base.rank
    if updates.shape.element is base.shape.element and max(numbers.offsets, default=0) < max(
        updates.rank, 1
    ):
        for d, offset in zip(numbers.kept, numbers.offsets, strict=True):
            sizes[d] = updates.sizes[offset]
        if all(size <= whole for size, whole in zip(sizes, base.sizes, strict=True)):
            return tuple(sizes)
    raise PlanError(f"{updates.shape} is scattered into {base.shape}", b.place)


def _into_part(
    b: Building,
    base: Array,
    starts: Sequence[Array],
    updates: Array,
    numbers: DimensionNumbers,
    windows: tuple[int, ...],
    operator: str,
    apart: bool,
) -> Array:
    """Return a base, written to in the part that windows may reach."""
    for d in numbers.whole:
        size = windows[d]
        if size < base.sizes[d]:
            part = sliced(b, base, d, 0, size)
            written = _into_part(b, part, starts, updates, numbers, windows, operator, apart)
            return joined(b, (written, sliced(b, base, d, size, base.sizes[d])), d)
    prepared = _prepared(b, base, starts, updates, numbers, windows, apart)
    if operator == "add":
        rows = _added(b, prepared)
    elif operator == REPLACE:
        rows = _replaced(b, prepared)
    else:
        rows = _compared(b, prepared, operator)
    sizes = tuple(base.sizes[d] for d in numbers.order)
    return permuted(b, reshaped(b, rows, sizes), inverse(numbers.order))


def _prepared(
    b: Building,
    base: Array,
    starts: Sequence[Array],
    updates: Array,
    numbers: DimensionNumbers,
    windows: tuple[int, ...],
    apart: bool,
) -> _Updates:
    """Return updates as rows."""
    mapped, batch = numbers.mapped, starts[0].sizes
    most = [base.sizes[d] - windows[d] for d in mapped]
    mask, begins = _inside(b, base, starts, dict(zip(mapped, most, strict=True)))
    sizes = [windows[d] for d in mapped]
    parts = widened(b, begins, sizes)
    rows = rows_of(b, base, flat_places(b, parts, [base.sizes[d] for d in mapped]), numbers)
    turned = (*rows.arranged, *range(len(rows.arranged), len(rows.arranged) + len(rows.rest)))
    moved = permuted(b, _arranged(b, updates, numbers, parts[0].sizes, rows.rest), turned)
    inside = None
    if mask is not None:
        wide = spread(b, mask, tuple(range(len(batch))), parts[0].sizes)
        inside = reshaped(b, permuted(b, wide, rows.arranged), rows.index.sizes)
    vectors = prod(size for d, size in enumerate(batch) if d not in numbers.paired)
    number = reshaped(b, moved, (*rows.index.sizes, *rows.rest))
    return _Updates(rows, number, inside, vectors, apart)


def _differ(
    base: Array, starts: Sequence[Array], numbers: DimensionNumbers, windows: Sequence[int]
) -> bool:
    """Return True if the index vectors of a batch that lie inside differ where they are known.

    That is in a component of windows of one place, so that windows do not meet.
    """
    parts = [
        (part.known, base.sizes[d])
        for part, d in zip(starts, numbers.mapped, strict=True)
        if part.known is not None and windows[d] == 1
    ]
    if not parts:
        return False
    known = np.stack(np.broadcast_arrays(*(part for part, _ in parts)), axis=-1)
    sizes = np.array([size for _, size in parts])
    paired = [1 + d for d in numbers.paired]
    others = [d for d in range(1, known.ndim - 1) if d not in paired]
    count = prod(known.shape[d] for d in others)
    moved = known.transpose(0, *paired, *others, known.ndim - 1).reshape(-1, count, len(parts))
    for batch in moved:
        inside = batch[((batch >= 0) & (batch < sizes)).all(axis=1)]
        if len(np.unique(inside, axis=0)) < len(inside):
            return False
    return True


def _inside(
    b: Building, base: Array, starts: Sequence[Array], most: Mapping[int, int]
) -> tuple[Array | None, list[Array]]:
    """Return for each index vector if its window lies inside, None if all do; and where it begins.

    What is dropped begins anywhere. ``most``: the last place of a window along each dimension.
    """
    if len(most) == 1:
        ((axis, last),) = most.items()
        found = places_in_part(b, base, axis, starts[0]) if last == base.sizes[axis] - 1 else None
        if found is not None:
            return found[0], [found[1]]
    ends = list(most.values())
    begins = [clamped(b, part, 0, end) for part, end in zip(starts, ends, strict=True)]
    return _mask(b, starts, ends), begins


def _arranged(
    b: Building,
    updates: Array,
    numbers: DimensionNumbers,
    sizes: tuple[int, ...],
    rest: tuple[int, ...],
) -> Array:
    """Return updates by index vectors, places of windows, and dimensions that are whole."""
    scattered = tuple(d for d in range(updates.rank) if d not in numbers.offsets)
    offset = dict(zip(numbers.kept, numbers.offsets, strict=True))
    order = [offset[d] for d in (*numbers.mapped, *numbers.whole) if d in offset]
    moved = permuted(b, updates, (*scattered, *order))
    if prod(moved.sizes) != prod((*sizes, *rest)):
        raise PlanError(f"{updates.shape} has other sizes than its indices", b.place)
    return reshaped(b, moved, (*sizes, *rest))


def _mask(b: Building, starts: Sequence[Array], most: Sequence[int]) -> Array | None:
    """Return for each index vector if its window lies inside; None if all do."""
    truths = ArrayShape(ElementType.PRED, starts[0].sizes)
    mask: Array | None = None
    for part, end in zip(starts, most, strict=True):
        if part.known is not None:
            test = b.known(truths, (part.known >= 0) & (part.known <= end))
            mask = test if mask is None else of_two(b, "and", mask, test)
            continue
        low, high = part.span or (0, end + 1)
        if low < 0:
            test = b.array("ge", (part.name, Number(0)), truths)
            mask = test if mask is None else of_two(b, "and", mask, test)
        if high > end + 1:
            test = b.array("lt", (part.name, Number(end + 1)), truths)
            mask = test if mask is None else of_two(b, "and", mask, test)
    return None if mask is None or mask.uniform is True else mask


# --- sums
def _added(b: Building, given: _Updates) -> Array:
    """Return the base with updates added."""
    numbers = _or_nothing(b, given, given.numbers)
    span = _added_span(b, given.rows.array, numbers)
    return _summed(b, given.rows, given.rows.array, numbers, span)


def _or_nothing(b: Building, given: _Updates, numbers: Array) -> Array:
    """Return numbers of updates, those that are dropped replaced by 0."""
    inside = given.spread_inside(b)
    if inside is None:
        return numbers
    zero = b.scalar(numbers.shape.element, 0)
    return chosen(b, numbers.shape, inside, numbers, spread(b, zero, (), numbers.sizes))


def _summed(b: Building, rows: Rows, base: Array, numbers: Array, span: Span | None) -> Array:
    """Return numbers added to the rows of a base."""
    if rows.index.rank == 1:
        names = base.name, rows.index.name, numbers.name
        return b.array("index_add", names, base.shape, {"axis": 0}, span=span)
    names = base.name, rows.wide_index(b).name, numbers.name
    return b.array("scatter_add", names, base.shape, {"axis": rows.axis}, span=span)


def _added_span(b: Building, base: Array, updates: Array) -> Span | None:
    """Return the span of a base with any of the updates added; None for other than integers."""
    if base.span is None or updates.span is None:
        return None
    added = added_span(b, updates, prod(updates.sizes)) or (0, 1)
    low, high = min(added[0], 0), max(added[1], 1)
    span = held((base.span[0] + low, base.span[1] + high - 1), base.shape.element)
    if span is None:
        raise unsupported(b, f"a sum of {base.shape.element}, which may wrap around,")
    return span


# --- numbers that replace others
def _replaced(b: Building, given: _Updates) -> Array:
    """Return the base with updates in the place of what was there.

    They are added to zeros, in places that none shares with another. Equal updates may share one.

    Raises UnsupportedError if others may.
    """
    equal = given.numbers.uniform is not None
    if given.vectors > 1 and not (equal or given.apart or _distinct(given)):
        raise unsupported(
            b,
            "a scatter that replaces, at places of which two may be one (promise that they are "
            "not by unique_indices=True),",
        )
    rows, base = given.rows, given.rows.array
    counts = ArrayShape(ElementType.S32, given.rows.index.sizes)
    ones = spread(b, b.scalar(ElementType.S32, 1), (), counts.dimensions)
    kept = ones
    if given.inside is not None:
        kept = b.array("cast", (given.inside.name,), counts, {"dtype": "int32"}, span=(0, 2))
    hits = _zeros(b, ElementType.S32, base.sizes[: rows.axis + 1])
    alone = Rows(hits, rows.index, rows.arranged, rows.sizes)
    found = _summed(b, alone, hits, kept, (0, given.vectors + 1))
    truths = ArrayShape(ElementType.PRED, hits.sizes)
    here = b.array("gt", (found.name, Number(0)), truths)
    wide = spread(b, here, tuple(range(here.rank)), base.sizes)
    if equal:
        return chosen(b, base.shape, wide, _filled(b, given), base)
    return chosen(b, base.shape, wide, _alone(b, given), base)


def _filled(b: Building, given: _Updates) -> Array:
    """Return the number that all updates are, at each place of the base."""
    numbers, sizes = given.numbers, given.rows.array.sizes
    shape = ArrayShape(numbers.shape.element, sizes)
    if numbers.number is not None:
        return b.filled(shape, numbers.number)
    return b.known(shape, np.full((1, *sizes), numbers.uniform))


def _alone(b: Building, given: _Updates) -> Array:
    """Return the updates at their places among zeros."""
    numbers, rows = given.numbers, given.rows
    element = numbers.shape.element
    if element is ElementType.PRED:
        whole = ArrayShape(ElementType.S32, numbers.sizes)
        numbers = b.array("cast", (numbers.name,), whole, {"dtype": "int32"}, span=(0, 2))
    kind = numbers.shape.element
    span = numbers.span
    span = None if span is None else (min(span[0], 0), max(span[1], 1))
    zeros = _zeros(b, kind, rows.array.sizes)
    found = _summed(b, rows, zeros, _or_nothing(b, given, numbers), span)
    if element is ElementType.PRED:
        return b.array("ne", (found.name, Number(0)), ArrayShape(element, found.sizes))
    return found


def _zeros(b: Building, element: ElementType, sizes: tuple[int, ...]) -> Array:
    return spread(b, b.scalar(element, 0), (), sizes)


def _distinct(given: _Updates) -> bool:
    """Return True if the places of each batch are known, and differ."""
    known = given.rows.index.known
    if known is None or given.inside is not None:
        return False
    ordered = np.sort(known.reshape(-1, known.shape[-1]), axis=-1)
    return bool((ordered[:, 1:] != ordered[:, :-1]).all())


# --- products and extrema
def _compared(b: Building, given: _Updates, operator: str) -> Array:
    """Return the base combined with the updates of each element.

    Each element of the base is compared with each place. What is not at its place is what changes
    nothing: 1 in a product, and the element itself elsewhere.
    """
    rows, base = given.rows, given.rows.array
    axis, rest = rows.axis, rows.rest
    heads, count, vectors = base.sizes[:axis], base.sizes[axis], rows.index.sizes[-1]
    sizes = (*heads, count, vectors, *rest)
    if prod(sizes) > MOST_COMPARED:
        raise unsupported(b, f"a scatter by {operator} of so many elements")
    before = tuple(range(axis))
    behind = tuple(range(axis + 2, len(sizes)))
    pairs = ArrayShape(ElementType.PRED, sizes[: axis + 2])
    own = spread(b, positions(b, count, ElementType.S64), (axis,), pairs.dimensions)
    there = spread(b, rows.index, (*before, axis + 1), pairs.dimensions)
    here = b.array("eq", (own.name, there.name), pairs)
    if given.inside is not None:
        inside = spread(b, given.inside, (*before, axis + 1), pairs.dimensions)
        here = of_two(b, "and", here, inside)
    shape = ArrayShape(base.shape.element, sizes)
    updates = spread(b, given.numbers, (*before, axis + 1, *behind), sizes)
    if operator == "multiply":
        other = spread(b, b.scalar(base.shape.element, 1), (), sizes)
    else:
        other = spread(b, base, (*before, axis, *behind), sizes)
    wide = spread(b, here, tuple(range(axis + 2)), sizes)
    candidates = chosen(b, shape, wide, updates, other)
    found = over(b, candidates, base.shape, operator, (axis + 1,))
    return of_two(b, operator, base, found)
