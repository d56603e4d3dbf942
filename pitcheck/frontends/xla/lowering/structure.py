"""Operators that move, repeat, cut or pad elements, and products of matrices."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import cast

import numpy as np

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import MOST_KNOWN, NUMPY, Array, Numbers, dtype_of
from pitcheck.frontends.xla.lowering.building import Building, literal, unsupported
from pitcheck.frontends.xla.lowering.random.codes import Codes, counted_codes, of_numbers
from pitcheck.frontends.xla.lowering.random.codes import joined as codes_joined
from pitcheck.frontends.xla.lowering.random.codes import moved as codes_moved
from pitcheck.frontends.xla.lowering.spans import held, joined_span
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.frontends.xla.text.values import Pad, Range
from pitcheck.plan.model import Attribute

Lower = Callable[[Building, Instruction, ArrayShape, Sequence[Array]], Array]


def structural(b: Building, instruction: Instruction, operands: Sequence[Array]) -> Array | None:
    """Return the result of an operator that moves or multiplies; None for another opcode.

    Raises UnsupportedError for what has no meaning in a plan.
    """
    lower = _LOWER.get(instruction.opcode)
    if lower is None or not isinstance(instruction.shape, ArrayShape):
        return None
    return lower(b, instruction, instruction.shape, operands)


# --- views
def reshaped(b: Building, x: Array, sizes: tuple[int, ...]) -> Array:
    """Return the same elements, row by row, in other sizes."""
    x = x.shown or x
    if sizes == x.sizes:
        return x
    shape = ArrayShape(x.shape.element, sizes)
    return _moved(
        b, x, shape, lambda known: known.reshape(len(known), *sizes), "view", {"sizes": sizes}
    )


def permuted(b: Building, x: Array, order: tuple[int, ...]) -> Array:
    """Return an array whose dimension i is dimension ``order[i]`` of ``x``."""
    if order == tuple(range(x.rank)):
        return x
    shape = ArrayShape(x.shape.element, tuple(x.sizes[d] for d in order))
    places = 0, *(d + 1 for d in order)
    return _moved(
        b, x, shape, lambda known: known.transpose(places), "permute", {"permutation": order}
    )


def spread(b: Building, x: Array, dimensions: tuple[int, ...], sizes: tuple[int, ...]) -> Array:
    """Return ``x`` repeated: its dimension i becomes dimension ``dimensions[i]`` of the result."""
    shape = ArrayShape(x.shape.element, sizes)
    order = tuple(int(d) for d in np.argsort(dimensions, kind="stable"))
    x = permuted(b, x, order)
    places = dict(zip(sorted(dimensions), x.sizes, strict=True))
    ones = tuple(places.get(d, 1) for d in range(len(sizes)))
    x = reshaped(b, x, ones)
    if ones == sizes:
        return x
    return _moved(
        b,
        x,
        shape,
        lambda known: np.broadcast_to(known, (len(known), *sizes)).copy(),
        "expand",
        {"sizes": sizes},
    )


def sliced(b: Building, x: Array, axis: int, start: int, stop: int, step: int = 1) -> Array:
    """Return the elements ``start``, ``start + step``, ... below ``stop`` along ``axis``.

    Those of arrays that are joined are taken from these: a loop puts what it computes into one
    array for all iterations, and the derivative's loop takes it out.
    """
    if (start, stop, step) == (0, x.sizes[axis], 1):
        return x
    if x.parts and x.axis == axis and step == 1 and start < stop:
        return joined(b, list(_overlapping(b, x.parts, axis, start, stop)), axis)
    count = len(range(start, stop, step))
    shape = ArrayShape(x.shape.element, (*x.sizes[:axis], count, *x.sizes[axis + 1 :]))
    taken = (slice(None),) * (axis + 1) + (slice(start, stop, step),)
    cut = {"axis": axis, "start": start, "stop": stop} | ({"step": step} if step > 1 else {})
    return _moved(b, x, shape, lambda known: known[taken], "slice", cut)


def _overlapping(
    b: Building, parts: Sequence[Array], axis: int, start: int, stop: int
) -> Iterator[Array]:
    """Yield the elements from ``start`` to ``stop`` along ``axis`` of each part that has some."""
    for part in parts:
        size = part.sizes[axis]
        low, high = max(start, 0), min(stop, size)
        if low < high:
            yield sliced(b, part, axis, low, high)
        start, stop = start - size, stop - size


def flipped(b: Building, x: Array, *axes: int) -> Array:
    """Return the elements of ``x`` in the opposite order along some dimensions."""
    if not axes:
        return x
    places = tuple(axis + 1 for axis in axes)
    return _moved(b, x, x.shape, lambda known: np.flip(known, places), "flip", {"axes": axes})


def _moved(
    b: Building,
    x: Array,
    shape: ArrayShape,
    move: Callable[[Numbers], Numbers],
    kind: str,
    attributes: Mapping[str, Attribute],
) -> Array:
    """Return elements of ``x`` at other places: ``move`` moves those that are known."""
    b.stated(shape)
    if x.known is not None and b.computes(shape, x):
        return b.known(shape, move(x.known), lambda: b.emit(kind, (x.name,), shape, attributes))
    if x.number is not None:
        return b.filled(shape, x.number)
    make = b.later(lambda: b.emit(kind, (x.name,), shape, attributes))
    shown = x if kind == "view" else None
    codes = x.codes and codes_moved(x.codes, shape, move)
    return Array(shape, make, span=x.span, shown=shown, codes=codes, drawn=x.drawn)


def joined(b: Building, parts: Sequence[Array], axis: int) -> Array:
    """Return arrays joined along ``axis``."""
    parts = [
        inner
        for part in parts
        if part.sizes[axis]
        for inner in (part.parts if part.parts and part.axis == axis else (part,))
    ] or list(parts[:1])
    first = parts[0]
    if len(parts) == 1:
        return first
    size = sum(part.sizes[axis] for part in parts)
    shape = ArrayShape(first.shape.element, (*first.sizes[:axis], size, *first.sizes[axis + 1 :]))
    if b.computes(shape, *parts):
        numbers = [part.known for part in parts if part.known is not None]
        rows = max(map(len, numbers))
        whole = [np.broadcast_to(each, (rows, *each.shape[1:])) for each in numbers]
        return b.known(
            shape,
            np.concatenate(whole, axis=axis + 1),
            lambda: b.emit("cat", [part.name for part in parts], shape, {"axis": axis}),
        )
    span = joined_span([part.span for part in parts])
    make = b.later(lambda: b.emit("cat", [part.name for part in parts], shape, {"axis": axis}))
    found = Array(shape, make, span=span, parts=parts, axis=axis)
    codes = [part.codes for part in parts if part.codes is not None]
    if len(codes) == len(parts):
        found.codes = codes_joined(shape, codes, axis)
        found.drawn = any(part.drawn for part in parts)
    return found


def positions(b: Building, size: int, element: ElementType) -> Array:
    """Return 0, 1, ... below ``size``. Raises UnsupportedError if the type does not hold them."""
    shape = ArrayShape(element, (size,))
    if held((0, size), element) is None:
        raise unsupported(b, f"a count to {size} of {element}, which wraps around,")

    def counted() -> str:
        line = b.emit("full", (), shape, {"sizes": (size,), "value": 0, "dtype": dtype_of(element)})
        return b.emit("positions", (line,), shape, {"axis": 0})

    if b.devices * size <= MOST_KNOWN:
        return b.known(shape, np.arange(size, dtype=NUMPY[element])[None], counted)
    codes = counted_codes(element, size, NUMPY[element])
    return Array(shape, counted, span=(0, size), codes=codes)


def _reshape(b: Building, _: Instruction, shape: ArrayShape, given: Sequence[Array]) -> Array:
    return reshaped(b, given[0], shape.dimensions)


def _transpose(
    b: Building, instruction: Instruction, _: ArrayShape, given: Sequence[Array]
) -> Array:
    return permuted(b, given[0], instruction.integers("dimensions"))


def _broadcast(
    b: Building, instruction: Instruction, shape: ArrayShape, given: Sequence[Array]
) -> Array:
    return spread(b, given[0], instruction.integers("dimensions"), shape.dimensions)


def _slice(b: Building, instruction: Instruction, _: ArrayShape, given: Sequence[Array]) -> Array:
    x = given[0]
    for axis, cut in enumerate(cast("tuple[Range, ...]", instruction.attributes["slice"])):
        x = sliced(b, x, axis, cut.start, cut.limit, cut.stride)
    return x


def _concatenate(
    b: Building, instruction: Instruction, _: ArrayShape, given: Sequence[Array]
) -> Array:
    return joined(b, given, instruction.get("dimensions", (0,))[0])


def _reverse(b: Building, instruction: Instruction, _: ArrayShape, given: Sequence[Array]) -> Array:
    return flipped(b, given[0], *instruction.integers("dimensions"))


def _iota(b: Building, instruction: Instruction, shape: ArrayShape, _: Sequence[Array]) -> Array:
    axis = instruction.get("iota_dimension", 0)
    if shape.element not in NUMPY or shape.element is ElementType.PRED:
        count = positions(b, shape.dimensions[axis], ElementType.S32)
        line = ArrayShape(shape.element, count.sizes)
        cast_to = b.array("cast", (count.name,), line, {"dtype": dtype_of(shape.element)})
        return spread(b, cast_to, (axis,), shape.dimensions)
    return spread(b, positions(b, shape.dimensions[axis], shape.element), (axis,), shape.dimensions)


# --- padding
def padded(b: Building, x: Array, axis: int, pad: Pad, filler: Array) -> Array:
    """Return ``x`` with elements put before, behind and between those along ``axis``."""
    if pad.interior and x.sizes[axis] > 1:
        x = _spaced(b, x, axis, pad.interior, filler)
    low, high = max(0, -pad.low), max(0, -pad.high)
    x = sliced(b, x, axis, low, x.sizes[axis] - high)
    before, after = max(0, pad.low), max(0, pad.high)
    if not before and not after:
        return x
    size = x.sizes[axis] + before + after
    shape = ArrayShape(x.shape.element, (*x.sizes[:axis], size, *x.sizes[axis + 1 :]))
    return _surrounded(b, x, shape, filler, axis, before)


def _surrounded(
    b: Building, x: Array, shape: ArrayShape, filler: Array, axis: int, before: int
) -> Array:
    """Return ``x`` within an array of a shape that is larger along ``axis`` alone."""
    after = shape.dimensions[axis] - x.sizes[axis] - before
    number = filler.uniform
    if number is None:
        raise unsupported(b, "padding with a number that is not known")
    attributes = {"axis": axis, "before": before, "after": after, "value": literal(number)}
    span = joined_span((x.span, filler.span))
    if x.known is None or not b.computes(shape, x):
        codes = _codes_surrounded(x, shape, filler, axis, before)
        return b.moved("pad", x, shape, attributes, codes, span)
    widths = [(0, 0)] * (x.rank + 1)
    widths[axis + 1] = before, after
    numbers = np.pad(x.known, widths, constant_values=np.asarray(number, dtype=x.known.dtype))
    return b.known(shape, numbers, lambda: b.emit("pad", (x.name,), shape, attributes))


def _codes_surrounded(
    x: Array, shape: ArrayShape, filler: Array, axis: int, before: int
) -> Codes | None:
    """Return the codes of an array within one that is larger along ``axis``; None without."""
    if x.codes is None or filler.known is None:
        return None
    number = filler.known.reshape(-1)[:1]
    parts = [x.codes]
    for place, size in ((0, before), (2, shape.dimensions[axis] - x.sizes[axis] - before)):
        if size:
            sizes = (1, *x.sizes[:axis], size, *x.sizes[axis + 1 :])
            parts.insert(place, of_numbers(shape.element, np.broadcast_to(number, sizes)))
    return codes_joined(shape, parts, axis)


def _spaced(b: Building, x: Array, axis: int, between: int, filler: Array) -> Array:
    """Return ``x`` with elements between those along ``axis``."""
    size, element = x.sizes[axis], x.shape.element
    head, tail = x.sizes[:axis], x.sizes[axis + 1 :]
    x = reshaped(b, x, (*head, size, 1, *tail))
    shape = ArrayShape(element, (*head, size, 1 + between, *tail))
    wide = _surrounded(b, x, shape, filler, axis + 1, 0)
    flat = reshaped(b, wide, (*head, size * (1 + between), *tail))
    return sliced(b, flat, axis, 0, size * (1 + between) - between)


def _pad(b: Building, instruction: Instruction, shape: ArrayShape, given: Sequence[Array]) -> Array:
    x, filler = given
    pads = cast("tuple[Pad, ...]", instruction.attributes["padding"])
    if filler.rank or filler.shape.element is not x.shape.element or len(pads) != x.rank:
        raise PlanError(f"pad of {x.shape} with {filler.shape} gives no {shape}", b.place)
    for axis, pad in enumerate(pads):
        x = padded(b, x, axis, pad, filler)
    return x


# --- products
def _dot(b: Building, instruction: Instruction, shape: ArrayShape, given: Sequence[Array]) -> Array:
    """Return a product of matrices, as a sum of products over named indices."""
    left, right = given
    for element in (left.shape.element, right.shape.element, shape.element):
        if element in NUMPY:
            raise unsupported(b, f"a product of matrices of {element}")
    batch = [instruction.integers(f"{side}_batch_dims") for side in ("lhs", "rhs")]
    summed = [instruction.integers(f"{side}_contracting_dims") for side in ("lhs", "rhs")]
    if left.rank + right.rank > len(string.ascii_letters):
        raise unsupported(b, "a product of arrays of so many dimensions")
    if any(len(mine) != len(theirs) for mine, theirs in (batch, summed)):
        raise PlanError("dot pairs different numbers of dimensions", b.place)
    letters = iter(string.ascii_letters)
    names: list[dict[int, str]] = [{}, {}]
    for mine, theirs in (*zip(*batch, strict=True), *zip(*summed, strict=True)):
        names[0][mine] = names[1][theirs] = next(letters)
    result = [names[0][d] for d in batch[0]]
    for side, x in enumerate(given):
        for d in range(x.rank):
            if d not in names[side]:
                names[side][d] = next(letters)
                result.append(names[side][d])
    sides = ["".join(own[d] for d in range(x.rank)) for own, x in zip(names, given, strict=True)]
    equation = f"{sides[0]},{sides[1]}->{''.join(result)}"
    return b.array("einsum", (left.name, right.name), shape, {"equation": equation})


_LOWER: Mapping[str, Lower] = MappingProxyType(
    {
        "reshape": _reshape,
        "transpose": _transpose,
        "broadcast": _broadcast,
        "slice": _slice,
        "concatenate": _concatenate,
        "reverse": _reverse,
        "iota": _iota,
        "pad": _pad,
        "dot": _dot,
    }
)
