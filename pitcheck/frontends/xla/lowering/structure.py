"""Operators that move, repeat or cut elements, and products and sums of them."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import cast

import numpy as np

from pitcheck.frontends.xla.lowering.arrays import MOST_KNOWN, NUMPY, Array, Numbers, Span, dtype_of
from pitcheck.frontends.xla.lowering.building import Building, literal, unsupported
from pitcheck.frontends.xla.lowering.regions import reduction_of
from pitcheck.frontends.xla.text.literals import Special
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.frontends.xla.text.values import Pad, Range
from pitcheck.plan.model import Attribute

Lower = Callable[[Building, Instruction, ArrayShape, Sequence[Array]], Array]


def structural(b: Building, instruction: Instruction, operands: Sequence[Array]) -> Array | None:
    """Return the result of an operator that moves, joins or sums; None if the opcode is another.

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
    return Array(shape, make, span=x.span, shown=x if kind == "view" else None)


def joined(b: Building, parts: Sequence[Array], axis: int) -> Array:
    """Return arrays joined along ``axis``."""
    parts = [
        inner
        for part in parts
        for inner in (part.parts if part.parts and part.axis == axis else (part,))
    ]
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
    spans = [part.span for part in parts if part.span is not None]
    span: Span | None = None
    if len(spans) == len(parts):
        span = min(low for low, _ in spans), max(high for _, high in spans)
    make = b.later(lambda: b.emit("cat", [part.name for part in parts], shape, {"axis": axis}))
    return Array(shape, make, span=span, parts=parts, axis=axis)


def positions(b: Building, size: int, element: ElementType) -> Array:
    """Return 0, 1, ... below ``size``."""
    shape = ArrayShape(element, (size,))

    def counted() -> str:
        line = b.emit("full", (), shape, {"sizes": (size,), "value": 0, "dtype": dtype_of(element)})
        return b.emit("positions", (line,), shape, {"axis": 0})

    if b.devices * size <= MOST_KNOWN:
        return b.known(shape, np.arange(size, dtype=NUMPY[element])[None], counted)
    return Array(shape, counted, span=(0, size))


def _reshape(b: Building, _: Instruction, shape: ArrayShape, given: Sequence[Array]) -> Array:
    return reshaped(b, given[0], shape.dimensions)


def _transpose(
    b: Building, instruction: Instruction, _: ArrayShape, given: Sequence[Array]
) -> Array:
    return permuted(b, given[0], instruction.get("dimensions", ()))


def _broadcast(
    b: Building, instruction: Instruction, shape: ArrayShape, given: Sequence[Array]
) -> Array:
    return spread(b, given[0], instruction.get("dimensions", ()), shape.dimensions)


def _slice(b: Building, instruction: Instruction, _: ArrayShape, given: Sequence[Array]) -> Array:
    x = given[0]
    for axis, cut in enumerate(cast("tuple[Range, ...]", instruction.attributes["slice"])):
        x = sliced(b, x, axis, cut.start, cut.limit, cut.stride)
    return x


def _concatenate(
    b: Building, instruction: Instruction, _: ArrayShape, given: Sequence[Array]
) -> Array:
    return joined(b, given, instruction.get("dimensions", (0,))[0])


def _reverse(
    b: Building, instruction: Instruction, shape: ArrayShape, given: Sequence[Array]
) -> Array:
    axes = instruction.get("dimensions", ())
    return b.array("flip", (given[0].name,), shape, {"axes": axes}, span=given[0].span)


def _iota(b: Building, instruction: Instruction, shape: ArrayShape, _: Sequence[Array]) -> Array:
    axis = instruction.get("iota_dimension", 0)
    if shape.element not in NUMPY or shape.element is ElementType.PRED:
        count = positions(b, shape.dimensions[axis], ElementType.S32)
        line = ArrayShape(shape.element, count.sizes)
        cast_to = b.array("cast", (count.name,), line, {"dtype": dtype_of(shape.element)})
        return spread(b, cast_to, (axis,), shape.dimensions)
    return spread(b, positions(b, shape.dimensions[axis], shape.element), (axis,), shape.dimensions)


# --- padding
def padded(b: Building, x: Array, axis: int, pad: Pad, value: int | float | str) -> Array:
    """Return ``x`` with elements put before, behind and between those along ``axis``."""
    if pad.interior and x.sizes[axis] > 1:
        x = _spaced(b, x, axis, pad.interior, value)
    low, high = max(0, -pad.low), max(0, -pad.high)
    x = sliced(b, x, axis, low, x.sizes[axis] - high)
    before, after = max(0, pad.low), max(0, pad.high)
    if not before and not after:
        return x
    size = x.sizes[axis] + before + after
    shape = ArrayShape(x.shape.element, (*x.sizes[:axis], size, *x.sizes[axis + 1 :]))
    attributes = {"axis": axis, "before": before, "after": after, "value": value}
    return b.array("pad", (x.name,), shape, attributes)


def _spaced(b: Building, x: Array, axis: int, between: int, value: int | float | str) -> Array:
    """Return ``x`` with elements between those along ``axis``."""
    size, element = x.sizes[axis], x.shape.element
    head, tail = x.sizes[:axis], x.sizes[axis + 1 :]
    x = reshaped(b, x, (*head, size, 1, *tail))
    shape = ArrayShape(element, (*head, size, 1 + between, *tail))
    attributes = {"axis": axis + 1, "before": 0, "after": between, "value": value}
    wide = b.array("pad", (x.name,), shape, attributes)
    flat = reshaped(b, wide, (*head, size * (1 + between), *tail))
    return sliced(b, flat, axis, 0, size * (1 + between) - between)


def _pad(b: Building, instruction: Instruction, _: ArrayShape, given: Sequence[Array]) -> Array:
    x, filler = given
    number = filler.uniform
    pads = cast("tuple[Pad, ...]", instruction.attributes["padding"])
    if number is None and any(p.low > 0 or p.high > 0 or p.interior for p in pads):
        raise unsupported(b, "padding with a number that is not known")
    value = literal(number if number is not None else 0)
    for axis, pad in enumerate(pads):
        x = padded(b, x, axis, pad, value)
    return x


# --- sums and products
_REDUCED = MappingProxyType(
    {"add": "sum", "maximum": "amax", "minimum": "amin", "and": "all", "or": "any"}
)
_ZERO = MappingProxyType(
    {
        "add": (0, Fraction(0), Special.MINUS_ZERO),
        "maximum": (Special.MINUS_INFINITY,),
        "minimum": (Special.INFINITY,),
        "and": (True,),
        "or": (False,),
    }
)
"""The numbers from which a reduction may begin without a change of its result."""


def _reduce(
    b: Building, instruction: Instruction, shape: ArrayShape, given: Sequence[Array]
) -> Array:
    """Return a sum, an extremum, or a conjunction over some dimensions."""
    if len(given) != 2:
        raise unsupported(b, "a reduction of several arrays at once")
    x, start = given
    operator = reduction_of(b.module, instruction)
    if operator not in _REDUCED or (shape.element is ElementType.PRED) != (
        operator in {"and", "or"}
    ):
        raise unsupported(b, f"a reduction by {operator} of {shape.element}")
    axes = instruction.get("dimensions", ())
    result = x if not axes else _over(b, x, shape, operator, axes)
    number = start.uniform
    if number is not None and _is_neutral(b, operator, number, shape):
        return result
    kind = {"add": "add", "maximum": "maximum", "minimum": "minimum"}.get(operator)
    if kind is None:
        raise unsupported(
            b, f"a reduction by {operator} that does not begin at its neutral element"
        )
    return b.array(kind, (result.name, b.operand(start)), shape)


def _is_neutral(b: Building, operator: str, number: object, shape: ArrayShape) -> bool:
    if operator in {"maximum", "minimum"} and shape.element in NUMPY:
        limits = np.iinfo(NUMPY[shape.element])
        return number == (limits.min if operator == "maximum" else limits.max)
    return any(
        number is each or (number == each and not isinstance(each, bool))
        for each in _ZERO[operator]
    )


def _over(b: Building, x: Array, shape: ArrayShape, operator: str, axes: tuple[int, ...]) -> Array:
    """Return the reduction over ``axes``."""
    if operator in {"and", "or"} and isinstance(x.uniform, bool):
        return b.known(shape, np.full((1, *shape.dimensions), x.uniform))
    if all(x.sizes[axis] == 1 for axis in axes):
        return reshaped(b, x, shape.dimensions)
    span = x.span if operator in {"maximum", "minimum"} else None
    attributes = {"axes": tuple(axes), "keepdim": False}
    return b.array(_REDUCED[operator], (x.name,), shape, attributes, span=span)


def _dot(b: Building, instruction: Instruction, shape: ArrayShape, given: Sequence[Array]) -> Array:
    """Return a product of matrices, as a sum of products over named indices."""
    left, right = given
    if left.shape.element in NUMPY:
        raise unsupported(b, f"a product of matrices of {left.shape.element}")
    batch = instruction.get("lhs_batch_dims", ()), instruction.get("rhs_batch_dims", ())
    summed = (
        instruction.get("lhs_contracting_dims", ()),
        instruction.get("rhs_contracting_dims", ()),
    )
    if left.rank + right.rank > len(string.ascii_letters):
        raise unsupported(b, "a product of arrays of so many dimensions")
    letters = iter(string.ascii_letters)
    names: list[dict[int, str]] = [{}, {}]
    for mine, theirs in (*zip(*batch, strict=True), *zip(*summed, strict=True)):
        names[0][mine] = names[1][theirs] = next(letters)
    result = [names[0][d] for d in batch[0]]
    for side, x in enumerate((left, right)):
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
        "reduce": _reduce,
        "dot": _dot,
    }
)
