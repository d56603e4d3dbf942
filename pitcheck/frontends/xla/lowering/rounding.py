"""Floating-point numbers rounded to whole ones, and tests for finite ones.

What is below or above is told by the number that a conversion to integers, which cuts off what
stands behind the point, gives. A plan's conversion has a meaning for numbers that 64 bits hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from pitcheck.frontends.xla.lowering.arrays import NUMPY, Array, dtype_of
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.plan.model import Number

_LARGEST = {
    ElementType.F16: 65504.0,
    ElementType.BF16: float(Fraction(255, 128) * 2**127),
    ElementType.F32: float(Fraction(2**24 - 1, 2**23) * 2**127),
    ElementType.F64: float(Fraction(2**53 - 1, 2**52) * 2**1023),
}
"""The largest finite number of each type."""


def rounded(
    b: Building, instruction: Instruction, shape: ArrayShape, given: Sequence[Array]
) -> Array:
    """Return numbers rounded down, up, or to the nearest whole one."""
    opcode, x = instruction.opcode, given[0]
    if shape.element in NUMPY:
        raise unsupported(b, f"{opcode} of {shape.element}")
    if opcode == "floor":
        name = _beside(b, x.name, shape, "gt", "sub")
    elif opcode == "ceil":
        name = _beside(b, x.name, shape, "lt", "add")
    elif opcode == "round-nearest-even":
        name = _nearest_even(b, x.name, shape)
    else:
        name = _nearest_away(b, x.name, shape)
    return Array(shape, lambda: name)


def _whole(b: Building, x: str, shape: ArrayShape) -> str:
    """Return the integers that are left of numbers without what stands behind the point."""
    return b.emit("cast", (x,), ArrayShape(ElementType.S64, shape.dimensions), {"dtype": "int64"})


def _beside(b: Building, x: str, shape: ArrayShape, comparison: str, step: str) -> str:
    """Return whole numbers, one step further where that without a fraction is beyond ``x``."""
    number = b.emit("cast", (_whole(b, x, shape),), shape, {"dtype": dtype_of(shape.element)})
    beyond = b.emit(comparison, (number, x), ArrayShape(ElementType.PRED, shape.dimensions))
    return b.emit("where", (beyond, b.emit(step, (number, Number(1)), shape), number), shape)


def _nearest_even(b: Building, x: str, shape: ArrayShape) -> str:
    """Return the nearest whole number; of two, the even one."""
    truths = ArrayShape(ElementType.PRED, shape.dimensions)
    more = b.emit("add", (x, Number("1/2")), shape)
    upper = _beside(b, more, shape, "gt", "sub")
    whole = _whole(b, upper, shape)
    integers = ArrayShape(ElementType.S64, shape.dimensions)
    odd = b.emit("ne", (b.emit("remainder", (whole, Number(2)), integers), Number(0)), truths)
    between = b.emit("logical_and", (b.emit("eq", (upper, more), truths), odd), truths)
    return b.emit("where", (between, b.emit("sub", (upper, Number(1)), shape), upper), shape)


def _nearest_away(b: Building, x: str, shape: ArrayShape) -> str:
    """Return the nearest whole number; of two, the one that is further from 0."""
    more = b.emit("add", (b.emit("abs", (x,), shape), Number("1/2")), shape)
    magnitude = _beside(b, more, shape, "gt", "sub")
    return b.emit("mul", (b.emit("sign", (x,), shape), magnitude), shape)


def is_finite(b: Building, _: Instruction, shape: ArrayShape, given: Sequence[Array]) -> Array:
    """Return true for each number whose magnitude is at most the largest of its type.

    It is not true of all real numbers: a plan's numbers may be larger than the type holds.
    """
    x = given[0]
    largest = _LARGEST.get(x.shape.element)
    if largest is None:
        raise unsupported(b, f"is-finite of {x.shape.element}")
    magnitude = b.emit("abs", (x.name,), x.shape)
    return b.array("le", (magnitude, Number(largest)), shape)
