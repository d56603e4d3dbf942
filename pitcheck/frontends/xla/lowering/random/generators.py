"""Generators of random bits, and bits that are taken for numbers of another type.

A generator's bits are a function of its algorithm, its state and the whole array that is asked for.
A bit pattern that is taken for a floating-point number stands for a finite one: patterns that may
be an infinity, or no number, or -0, are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import prod
from types import MappingProxyType

import numpy as np

from pitcheck.frontends.xla.lowering.arrays import (
    NUMPY,
    Array,
    Numbers,
    Tuple,
    Value,
    limits,
    width_of,
)
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.random.codebook import Codebook, Ints
from pitcheck.frontends.xla.lowering.random.codes import MIXED, Codes, coded
from pitcheck.frontends.xla.text.literals import Special
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType, TupleShape

_FLOATS: Mapping[ElementType, tuple[int, int, int]] = MappingProxyType(
    {
        ElementType.F16: (16, 10, 15),
        ElementType.BF16: (16, 7, 127),
        ElementType.F32: (32, 23, 127),
        ElementType.F64: (64, 52, 1023),
    }
)
"""The bits of a number, those of its fraction, and the exponent that stands for 0."""


def random_bits(b: Building, instruction: Instruction, given: Sequence[Array]) -> Value | None:
    """Return the result of a generator or of bits that change their type; None for others.

    Raises UnsupportedError for what has no meaning in a plan.
    """
    lower = _LOWER.get(instruction.opcode)
    return None if lower is None or b.drawing is None else lower(b, instruction, given)


# --- generators
def _generator(b: Building, instruction: Instruction, given: Sequence[Array]) -> Value:
    """Return the new state of a generator, and its bits."""
    state, shapes = given[0], instruction.shape
    if state.codes is None:
        raise unsupported(b, "random bits of a state that is computed from other numbers")
    if not isinstance(shapes, TupleShape):
        raise unsupported(b, "a generator of random bits that gives no state")
    b.stated(state.shape)
    results = []
    for number, shape in enumerate(shapes.elements):
        if not isinstance(shape, ArrayShape) or not shape.element.is_integer:
            raise unsupported(b, "random bits that are no integers")
        algorithm = str(instruction.attributes["algorithm"])
        operator = "rng-bit-generator", algorithm, state.shape, shapes, number
        codes = _of_state(operator, state.codes, shape)
        results.append(b.drawn(shape, codes, limits(shape.element)))
    return Tuple(tuple(results))


def _of_state(operator: tuple[object, ...], state: Codes, shape: ArrayShape) -> Codes:
    """Return an element of each place, that an operator makes of all elements of a state."""

    def code(book: Codebook, states: Ints) -> Ints:
        size = prod(shape.dimensions)
        book.spend(len(states) * size)
        words = states.reshape(len(states), -1).T
        whole = book.code("state", *words) if len(words) > 1 else words[0]
        places = np.arange(size, dtype=np.int64).reshape(1, *shape.dimensions)
        return book.code(operator, places, whole.reshape(-1, *(1,) * len(shape.dimensions)))

    return coded(shape.element, [state], code, mixing=MIXED)


# --- bits of other types
def _bitcast(b: Building, instruction: Instruction, given: Sequence[Array]) -> Value | None:
    """Return the same bits as elements of another type; None if the shapes do not fit."""
    x, shape = given[0], instruction.shape
    if not isinstance(shape, ArrayShape):
        return None
    b.stated(shape)
    source, target = x.shape.element, shape.element
    if source is target and x.sizes == shape.dimensions:
        return x
    if x.number is not None and source in _FLOATS and target in NUMPY and target.is_integer:
        return _of_float(b, x, shape)
    if not source.is_integer or source not in NUMPY or x.codes is None:
        raise unsupported(b, f"the bits of {source} that are not known as {target}")
    lower = _floats if target in _FLOATS else _integers
    return lower(b, x, x.codes, shape)


def _integers(b: Building, x: Array, codes: Codes, shape: ArrayShape) -> Array | None:
    """Return bits as integers of another type; None if the shapes do not fit."""
    source, target = x.shape.element, shape.element
    if not target.is_integer or target not in NUMPY:
        raise unsupported(b, f"bits of integers as {target}")
    ratio = width_of(target) / width_of(source)
    if shape.dimensions != _sizes(x.sizes, ratio):
        return None
    if x.known is not None and b.computes(shape, x):
        return b.known(shape, _viewed(x.known, shape))
    is_same = ratio == 1 and x.within(0, 1 << (width_of(source) - 1))
    return b.drawn(shape, _cast(codes, source, shape, ratio), x.span if is_same else limits(target))


def _sizes(sizes: tuple[int, ...], ratio: float) -> tuple[int, ...] | None:
    """Return the sizes of an array of elements ``ratio`` times as wide; None if there are none."""
    if ratio < 1:
        return (*sizes, round(1 / ratio))
    if ratio > 1:
        return sizes[:-1] if sizes and sizes[-1] == ratio else None
    return sizes


def _viewed(numbers: Numbers, shape: ArrayShape) -> Numbers:
    """Return the bits of known numbers as integers of another type; the first are the lowest."""
    flat = np.ascontiguousarray(numbers).reshape(len(numbers), -1)
    return flat.view(NUMPY[shape.element]).reshape(len(numbers), *shape.dimensions)


def _cast(x: Codes, source: ElementType, shape: ArrayShape, ratio: float) -> Codes:
    """Return bits as integers of another type: a part of one, or several joined."""
    operator = "bitcast-convert", source, shape.element

    def code(book: Codebook, codes: Ints) -> Ints:
        book.spend(codes.size * max(1, round(1 / ratio)))
        if ratio > 1:
            return book.code(operator, *np.moveaxis(codes, -1, 0))
        if ratio == 1:
            return book.code(operator, codes)
        parts = np.arange(shape.dimensions[-1], dtype=np.int64)
        return book.code(operator, codes[..., None], parts)

    return coded(shape.element, [x], code)


def _floats(b: Building, x: Array, codes: Codes, shape: ArrayShape) -> Array | None:
    """Return bits as floating-point numbers; None if the shapes do not fit."""
    width, fraction, bias = _FLOATS[shape.element]
    if x.sizes != shape.dimensions or width_of(x.shape.element) != width:
        return None
    infinity = (2 * bias + 1) << fraction
    if x.known is not None:
        if not bool(((x.known >= 0) & (x.known < infinity)).all()):
            raise unsupported(b, f"bits that are no finite positive {shape.element}")
        values = {int(n): _value(int(n), shape.element) for n in np.unique(x.known)}
        return b.numbers(shape, x.known, values)
    if not x.within(0, infinity):
        raise unsupported(
            b, f"random bits as {shape.element}, which may be infinite or no number, or negative,"
        )
    return b.drawn(shape, _cast(codes, x.shape.element, shape, 1), None)


def _of_float(b: Building, x: Array, shape: ArrayShape) -> Array | None:
    """Return the bits of one floating-point number, which is 0 or positive.

    None if the shapes do not fit.
    """
    width, fraction, bias = _FLOATS[x.shape.element]
    if x.sizes != shape.dimensions or width_of(shape.element) != width:
        return None
    number = x.number
    bits = 0
    if number != 0:
        # The number is that of the bits, if these are between those of 0 and of infinity.
        low, high = 0, ((2 * bias + 1) << fraction) - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (
                (middle, high)
                if isinstance(number, Fraction) and _value(middle, x.shape.element) <= number
                else (low, middle - 1)
            )
        bits = low
    if number is Special.MINUS_ZERO or _value(bits, x.shape.element) != number:
        raise unsupported(b, f"the bits of {x.shape.element} that are not known as {shape.element}")
    return b.known(shape, np.full((1, *shape.dimensions), bits, dtype=NUMPY[shape.element]))


def _value(bits: int, element: ElementType) -> Fraction:
    """Return the number that a pattern of bits is, whose sign is positive."""
    _, fraction, bias = _FLOATS[element]
    exponent, rest = bits >> fraction, bits & ((1 << fraction) - 1)
    if exponent == 0:
        return Fraction(rest, 1 << (bias - 1 + fraction))
    power = exponent - bias - fraction
    whole = rest | (1 << fraction)
    return whole * Fraction(2) ** power


Lower = Callable[[Building, Instruction, Sequence[Array]], Value | None]
_LOWER: Mapping[str, Lower] = MappingProxyType(
    {"rng-bit-generator": _generator, "bitcast-convert": _bitcast}
)
