"""Sums over windows that move by one place, such as running sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import Array
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.reductions import added_span, is_neutral
from pitcheck.frontends.xla.lowering.regions import reduction_of
from pitcheck.frontends.xla.lowering.structure import padded, sliced
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.frontends.xla.text.values import Pad, WindowDimension
from pitcheck.plan.model import Attribute

MOST_ADDED = 64
"""The elements of a window that are added one by one."""


def window_sums(b: Building, instruction: Instruction, operands: Sequence[Array]) -> Array | None:
    """Return the sums over windows; None if the opcode is another.

    Raises:
        UnsupportedError: for what has no meaning in a plan.
        PlanError: for a window that does not fit.
    """
    shape = instruction.shape
    if instruction.opcode != "reduce-window" or not isinstance(shape, ArrayShape):
        return None
    if len(operands) != 2:
        raise unsupported(b, "reduce-window of several arrays at once")
    x, start = operands
    window = cast("tuple[WindowDimension, ...]", instruction.attributes.get("window", ()))
    if len(window) != x.rank or start.shape != ArrayShape(x.shape.element, ()):
        raise PlanError(f"reduce-window of {x.shape} from {start.shape}: no such window", b.place)
    operator = reduction_of(b.module, instruction)
    if operator != "add" or x.shape.element is ElementType.PRED or not is_neutral("add", start):
        raise unsupported(b, "reduce-window that is no sum from 0")
    for axis, dimension in enumerate(window):
        x = _along(b, x, axis, dimension, start)
    return x


def _along(b: Building, x: Array, axis: int, window: WindowDimension, zero: Array) -> Array:
    """Return the sums over windows along one dimension.

    A window that always begins in the padding is a running sum; one that always ends in it is one
    from the other end.
    """
    if window.stride != 1 or window.base_dilation != 1 or window.window_dilation != 1:
        raise unsupported(b, "a window with a stride or a dilation")
    x = padded(b, x, axis, Pad(window.low, window.high, 0), zero)
    size = window.size
    last = x.sizes[axis] - size
    if last < 0:
        raise PlanError(f"a window of {size} is larger than {x.shape} along {axis}", b.place)
    if size == 1:
        return x
    if last <= window.low:
        return sliced(b, _running(b, x, axis, size), axis, size - 1, size + last)
    if last <= window.high:
        backwards = _flipped(b, _running(b, _flipped(b, x, axis), axis, size), axis)
        return sliced(b, backwards, axis, 0, last + 1)
    if size > MOST_ADDED:
        raise unsupported(b, f"a window of {size} places within an array")
    total = sliced(b, x, axis, 0, last + 1)
    span = added_span(b, x, size)
    for first in range(1, size):
        more = sliced(b, x, axis, first, first + last + 1)
        total = b.array("add", (total.name, more.name), total.shape, span=span)
    return total


def _running(b: Building, x: Array, axis: int, size: int) -> Array:
    span = added_span(b, x, size)
    if span is not None:
        span = min(span[0], 0), max(span[1], 1)
    return b.array("cumsum", (x.name,), x.shape, {"axis": axis}, span=span)


def _flipped(b: Building, x: Array, axis: int) -> Array:
    attributes: Mapping[str, Attribute] = {"axes": (axis,)}
    return b.array("flip", (x.name,), x.shape, attributes, span=x.span)
