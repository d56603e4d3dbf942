"""Reductions over windows that move over an array, such as running sums and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import Array
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.reductions import (
    added_span,
    check_operator,
    is_neutral,
    of_two,
)
from pitcheck.frontends.xla.lowering.regions.of_two import reduction_of
from pitcheck.frontends.xla.lowering.structure import flipped, padded, sliced, spread
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape
from pitcheck.frontends.xla.text.values import Pad, WindowDimension

_IDEMPOTENT = frozenset({"maximum", "minimum", "and", "or"})
"""The operators that give the same if an element is counted twice."""


def window_of(b: Building, instruction: Instruction, rank: int) -> tuple[WindowDimension, ...]:
    """Return the dimensions of a window over an array. Raises PlanError for another number."""
    window = cast("tuple[WindowDimension, ...]", instruction.attributes.get("window", ()))
    if len(window) != rank:
        raise PlanError(
            f"{instruction.opcode} of {rank} dimensions has a window of {len(window)}", b.place
        )
    return window


def placements(b: Building, size: int, window: WindowDimension) -> int:
    """Return in how many places a window stands along a dimension that is padded already.

    Raises PlanError if it does not fit.
    """
    room = size - (window.size - 1) * window.window_dilation - 1
    if room < 0:
        raise PlanError(f"a window of {window.size} places does not fit {size} elements", b.place)
    return room // window.stride + 1


def window_reductions(
    b: Building, instruction: Instruction, operands: Sequence[Array]
) -> Array | None:
    """Return the reductions over windows; None if the opcode is another.

    Raises:
        UnsupportedError: for what has no meaning in a plan.
        PlanError: for a window that does not fit.
    """
    if instruction.opcode != "reduce-window":
        return None
    if len(operands) != 2:
        raise unsupported(b, "reduce-window of several arrays at once")
    x, start = operands
    window = window_of(b, instruction, x.rank)
    if start.shape != ArrayShape(x.shape.element, ()):
        raise PlanError(f"reduce-window of {x.shape} from {start.shape}: no such window", b.place)
    operator = reduction_of(b.module, instruction)
    check_operator(b, operator, x.shape.element)
    neutral = is_neutral(operator, start)
    if not neutral and operator not in _IDEMPOTENT and not all(map(_lies_within, window)):
        raise unsupported(b, "a window with padding, from a number that is not neutral,")
    for axis, dimension in enumerate(window):
        x = _along(b, x, axis, dimension, start, operator)
    return x if neutral else of_two(b, operator, x, spread(b, start, (), x.sizes))


def _lies_within(window: WindowDimension) -> bool:
    """Return True if a window covers nothing but elements of the array."""
    return window.low <= 0 and window.high <= 0 and window.base_dilation == 1


def _along(
    b: Building, x: Array, axis: int, window: WindowDimension, start: Array, operator: str
) -> Array:
    """Return the reductions over windows along one dimension.

    A window that always begins in the padding is a running sum; one that always ends in it is one
    from the other end.
    """
    x = padded(b, x, axis, Pad(window.low, window.high, window.base_dilation - 1), start)
    count = placements(b, x.sizes[axis], window)
    last, size = x.sizes[axis] - window.size, window.size
    if size == 1:
        return sliced(b, x, axis, 0, (count - 1) * window.stride + 1, window.stride)
    close = window.stride == window.window_dilation == window.base_dilation == 1
    if operator == "add" and close:
        if last <= window.low:
            return sliced(b, _running(b, x, axis, size), axis, size - 1, size + last)
        if last <= window.high:
            backwards = flipped(b, _running(b, flipped(b, x, axis), axis, size), axis)
            return sliced(b, backwards, axis, 0, last + 1)
    return _combined(b, x, axis, window, count, operator)


def _combined(
    b: Building, x: Array, axis: int, window: WindowDimension, count: int, operator: str
) -> Array:
    """Return the reductions of each window, put together from windows of 1, 2, 4, ... elements.

    The parts of a window have the numbers of elements that its size has as a binary number.
    """
    step = window.window_dilation
    reach = (count - 1) * window.stride + 1
    found: Array | None = None
    begin, width, part = 0, 1, x
    while True:
        if window.size & width:
            piece = sliced(b, part, axis, begin, begin + reach)
            found = piece if found is None else of_two(b, operator, found, piece)
            begin += width * step
        if 2 * width > window.size:
            break
        shift, long = width * step, part.sizes[axis]
        first = sliced(b, part, axis, 0, long - shift)
        part = of_two(b, operator, first, sliced(b, part, axis, shift, long))
        width *= 2
    return sliced(b, found or x, axis, 0, reach, window.stride)


def _running(b: Building, x: Array, axis: int, size: int) -> Array:
    span = added_span(b, x, size)
    if span is not None:
        span = min(span[0], 0), max(span[1], 1)
    return b.array("cumsum", (x.name,), x.shape, {"axis": axis}, span=span)
