"""Slices that begin at an index, read and written.

XLA clamps where one begins so that it lies inside. Indices are clamped here unless they are known
to lie inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import Array, Numbers, limits
from pitcheck.frontends.xla.lowering.building import DEVICE, Building
from pitcheck.frontends.xla.lowering.elementwise import chosen
from pitcheck.frontends.xla.lowering.random.codes import moved
from pitcheck.frontends.xla.lowering.structure import joined, positions, reshaped, sliced, spread
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.plan.model import Attribute, Number, Table

LowerIndexed = Callable[[Building, Instruction, Sequence[Array]], Array]
"""A function of an instruction and its operands, which raises UnsupportedError for what has no
meaning in a plan, and PlanError for operands that do not fit together.
"""


def clamped(b: Building, x: Array, low: int, most: int) -> Array:
    """Return integers, those below ``low`` or above ``most`` replaced by these."""
    if x.within(low, most + 1):
        return x
    if x.known is not None:
        least, greatest = limits(x.shape.element)
        return b.known(x.shape, np.clip(x.known, max(low, least), min(most, greatest - 1)))
    bounds: Mapping[str, Attribute] = {"min": low, "max": most}
    first, behind = x.span or (low, most + 1)
    span = max(low, min(first, most)), min(most, max(behind - 1, low)) + 1
    return b.array("clamp", (x.name,), x.shape, bounds, span=span)


def _check_starts(b: Building, x: Array, starts: Sequence[Array], sizes: Sequence[int]) -> None:
    """Raise PlanError unless there is an index, and a size that fits, for each dimension."""
    fits = len(starts) == len(sizes) == x.rank and all(
        size <= whole for size, whole in zip(sizes, x.sizes, strict=True)
    )
    if not fits or any(start.rank or not start.is_integer for start in starts):
        raise PlanError(
            f"a slice of {list(sizes)} with {len(starts)} starts does not fit {x.shape}", b.place
        )


def _dynamic_slice(b: Building, instruction: Instruction, given: Sequence[Array]) -> Array:
    x, *starts = given
    sizes = instruction.integers("dynamic_slice_sizes")
    _check_starts(b, x, starts, sizes)
    for axis, (size, start) in enumerate(zip(sizes, starts, strict=True)):
        x = _cut(b, x, axis, size, start)
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
    return _cut_by_device(b, x, axis, size, places)


def _cut_by_device(b: Building, x: Array, axis: int, size: int, places: tuple[int, ...]) -> Array:
    """Return ``size`` elements along ``axis`` from the place of each device."""
    shape = ArrayShape(x.shape.element, (*x.sizes[:axis], size, *x.sizes[axis + 1 :]))
    ends = Table((DEVICE,), tuple(place + size for place in places))
    cut: Mapping[str, Attribute] = {"axis": axis, "start": Table((DEVICE,), places), "stop": ends}

    def taken(elements: Numbers) -> Numbers:
        rows = np.broadcast_to(elements, (len(places), *x.sizes))
        parts = [
            np.take(row, range(place, place + size), axis=axis)
            for row, place in zip(rows, places, strict=True)
        ]
        return np.stack(parts)

    if x.known is not None and b.computes(shape, x):
        return b.known(shape, taken(x.known), lambda: b.emit("slice", (x.name,), shape, cut))
    if x.number is not None:
        return b.filled(shape, x.number)
    codes = x.codes and moved(x.codes, shape, taken)
    return b.moved("slice", x, shape, cut, codes, x.span)


def _taken(b: Building, x: Array, axis: int, size: int, begin: Array) -> Array:
    """Return ``size`` elements along ``axis`` from an index that inputs decide."""
    if size > 1:
        # 64 bits hold each place, which the type of the index may not.
        line = ArrayShape(ElementType.S64, (size,))
        first = spread(b, begin, (), (size,))
        places = b.emit("add", (positions(b, size, ElementType.S64).name, first.name), line)
    else:
        places = reshaped(b, begin, (1,)).name
    shape = ArrayShape(x.shape.element, (*x.sizes[:axis], size, *x.sizes[axis + 1 :]))
    return b.array("index_select", (x.name, places), shape, {"axis": axis}, span=x.span)


def _dynamic_update_slice(b: Building, _: Instruction, given: Sequence[Array]) -> Array:
    """Return ``x`` with a part replaced: axis by axis the update is put into its rows."""
    x, update, *starts = given
    _check_starts(b, x, starts, update.sizes)
    if update.shape.element is not x.shape.element:
        raise PlanError(f"{update.shape} is written into {x.shape}", b.place)
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
    mask: Array | None = None
    for axis, begin in begins.items():
        single = update.sizes[axis] == 1
        inside, update = (_one_place if single else _several_places)(
            b, x.sizes[axis], update, axis, begin
        )
        wide = spread(b, inside, (axis,), x.sizes)
        truths = ArrayShape(ElementType.PRED, x.sizes)
        mask = wide if mask is None else b.array("logical_and", (mask.name, wide.name), truths)
    return x if mask is None else chosen(b, x.shape, mask, update, x)


def _one_place(
    b: Building, size: int, update: Array, axis: int, begin: Array
) -> tuple[Array, Array]:
    """Return where one element along an axis of ``size`` places lies, and it at each of them."""
    line, truths = (ArrayShape(each, (size,)) for each in (ElementType.S64, ElementType.PRED))
    first = spread(b, begin, (), (size,))
    counted = positions(b, size, line.element)
    inside = b.array("eq", (counted.name, first.name), truths)
    others = [d for d in range(update.rank) if d != axis]
    rest = reshaped(b, update, tuple(update.sizes[d] for d in others))
    sizes = (*update.sizes[:axis], size, *update.sizes[axis + 1 :])
    return inside, spread(b, rest, tuple(others), sizes)


def _several_places(
    b: Building, size: int, update: Array, axis: int, begin: Array
) -> tuple[Array, Array]:
    """Return where the elements along an axis of ``size`` places lie, and each at its place."""
    inside, place = _places_inside(b, size, update.sizes[axis], begin)
    sizes = (*update.sizes[:axis], size, *update.sizes[axis + 1 :])
    shape = ArrayShape(update.shape.element, sizes)
    given = update.name, place.name
    return inside, b.array("index_select", given, shape, {"axis": axis}, span=update.span)


def _places_inside(b: Building, size: int, count: int, begin: Array) -> tuple[Array, Array]:
    """Return where a part of ``count`` elements that begins at an index covers ``size`` places.

    Returns: truths, and the place in the part, clamped where there is none.
    """
    line = ArrayShape(ElementType.S64, (size,))
    truths = ArrayShape(ElementType.PRED, (size,))
    first = spread(b, begin, (), (size,))
    counted = positions(b, size, ElementType.S64)
    low, high = begin.span or (0, size)
    after = b.array("sub", (counted.name, first.name), line, span=(1 - high, size - low))
    lower = b.emit("ge", (after.name, Number(0)), truths)
    upper = b.emit("lt", (after.name, Number(count)), truths)
    return b.array("logical_and", (lower, upper), truths), clamped(b, after, 0, count - 1)


DYNAMIC_SLICES: Mapping[str, LowerIndexed] = MappingProxyType(
    {"dynamic-slice": _dynamic_slice, "dynamic-update-slice": _dynamic_update_slice}
)
"""The lowerings of slices that begin at an index, by their opcodes."""
