"""Operators that have no meaning in a plan, but give every element a code.

These are integers that wrap around, operators on bits, and what is made of random bits: their
spans are too wide to be worth a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pitcheck.frontends.xla.lowering.arrays import DTYPES, NUMPY, Array, Numbers, limits
from pitcheck.frontends.xla.lowering.building import Building
from pitcheck.frontends.xla.lowering.random.expressions import operator
from pitcheck.frontends.xla.lowering.random.parameters import KEYS
from pitcheck.frontends.xla.lowering.spans import span_of_bits
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType

MOST_VALUES = 1 << 16
"""The integers that a random number may be at most to be a tensor before it must be."""
_OPCODES = frozenset(
    {
        "add",
        "subtract",
        "multiply",
        "divide",
        "remainder",
        "maximum",
        "minimum",
        "clamp",
        "select",
        "compare",
        "convert",
        "negate",
        "abs",
        "sign",
        "and",
        "or",
        "xor",
        "not",
        "shift-left",
        "shift-right-logical",
        "shift-right-arithmetic",
        "popcnt",
        "count-leading-zeros",
    }
)
_WRAPPING = frozenset({"add", "subtract", "multiply"})
_LARGEST = {
    ElementType.F16: 65504,
    ElementType.BF16: 1 << 64,
    ElementType.F32: 1 << 64,
    ElementType.F64: 1 << 64,
}
"""The largest integers of 64 bits that a conversion to a floating-point type gives no infinity."""


def has_code(
    b: Building, instruction: Instruction, shape: ArrayShape, given: Sequence[Array]
) -> bool:
    """Return True if codes tell the result of an elementwise operator."""
    if b.drawing is None or any(a.codes is None for a in given):
        return False
    if instruction.get("type", "") == "TOTALORDER":
        return False
    elements = shape.element, *(a.shape.element for a in given)
    if b.drawing.late and any(element not in NUMPY for element in elements):
        return instruction.opcode != "copy"
    if instruction.opcode not in _OPCODES or any(a.shape.element not in NUMPY for a in given):
        return False
    if shape.element in NUMPY:
        return True
    most, x = _LARGEST.get(shape.element), given[0]
    return most is not None and (x.span is None or x.within(-most, most + 1))


def is_drawn_later(
    b: Building, instruction: Instruction, shape: ArrayShape, given: Sequence[Array]
) -> bool:
    """Return True if the result of an operator is to have codes, though it may have a meaning.

    That is so for random integers that may be many, and for integers of which plans have no type.
    If numbers are drawn late, it is so for all that depend on random numbers alone.
    """
    if any(each.element not in DTYPES for each in (shape, *(a.shape for a in given))):
        return True
    drawn = [a for a in given if a.drawn]
    if drawn and (is_late(b) or (instruction.opcode == "convert" and shape.element.is_integer)):
        return True
    # The sum of a key and 0 does not wrap, but the key is no tensor for it.
    sums = instruction.opcode in _WRAPPING and shape.element in KEYS
    return any(_is_wide(a) for a in drawn) or (sums and any(_is_any(a) for a in given))


def _is_any(a: Array) -> bool:
    return a.span == limits(a.shape.element)


def is_late(b: Building) -> bool:
    """Return True if what depends on random numbers alone is a random number, too."""
    return b.drawing is not None and b.drawing.late


def _is_wide(a: Array) -> bool:
    return a.span is not None and a.span[1] - a.span[0] > MOST_VALUES


def coded(
    b: Building,
    instruction: Instruction,
    shape: ArrayShape,
    given: Sequence[Array],
    made: Callable[[], Array] | None = None,
) -> Array:
    """Return the result of an elementwise operator that :func:`has_code`.

    ``made`` gives it by its meaning in a plan, for a program that draws only its operands.
    """
    opcode, element = instruction.opcode, shape.element
    codes = [a.codes for a in given if a.codes is not None]
    span = span_of_bits(opcode, given, element) if element.is_integer else None
    if span is not None and span[1] - span[0] == 1:
        whole: Numbers = np.broadcast_to(np.array(span[0], NUMPY[element]), (1, *shape.dimensions))
        return b.known(shape, whole)
    return b.drawn(shape, operator(opcode, shape, codes, direction_of(instruction)), span, made)


def with_codes(
    b: Building, instruction: Instruction, found: Array, given: Sequence[Array]
) -> Array:
    """Return a result that has a meaning in a plan, with its codes beside."""
    fresh = found.codes is None and all(found is not a for a in given)
    if fresh and has_code(b, instruction, found.shape, given):
        codes = [a.codes for a in given if a.codes is not None]
        found.codes = operator(instruction.opcode, found.shape, codes, direction_of(instruction))
    return found


def direction_of(instruction: Instruction) -> str:
    """Return the direction of a comparison, "" for other operators."""
    return instruction.get("direction", "EQ") if instruction.opcode == "compare" else ""
