"""Reductions over dimensions: sums, extrema, conjunctions and disjunctions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import NUMPY, Array, Span, limits
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.known_numbers import computed
from pitcheck.frontends.xla.lowering.regions.of_two import reduction_of
from pitcheck.frontends.xla.lowering.spans import held, spanned, summed
from pitcheck.frontends.xla.lowering.structure import joined, reshaped, sliced, spread
from pitcheck.frontends.xla.text.literals import Special
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.plan.model import Attribute

_OVER_AXES = MappingProxyType(
    {"add": "sum", "maximum": "amax", "minimum": "amin", "and": "all", "or": "any"}
)
"""The operators that reduce over dimensions. There is none of products."""
_OF_TWO = MappingProxyType(
    {
        "add": "add",
        "multiply": "mul",
        "maximum": "maximum",
        "minimum": "minimum",
        "and": "logical_and",
        "or": "logical_or",
    }
)
_TRUTHS = frozenset({"and", "or"})
_FOLDS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "add": np.add.reduce,
        "multiply": np.multiply.reduce,
        "maximum": np.maximum.reduce,
        "minimum": np.minimum.reduce,
        "and": np.logical_and.reduce,
        "or": np.logical_or.reduce,
    }
)
_NEUTRAL: Mapping[str, tuple[bool | Special | Fraction, ...]] = MappingProxyType(
    {
        "add": (Fraction(0), Special.MINUS_ZERO),
        "multiply": (Fraction(1),),
        "maximum": (Special.MINUS_INFINITY,),
        "minimum": (Special.INFINITY,),
        "and": (True,),
        "or": (False,),
    }
)
"""The truths and floating-point numbers from which a reduction begins without a change."""


def reduced(b: Building, instruction: Instruction, operands: Sequence[Array]) -> Array | None:
    """Return a reduction over some dimensions; None if the opcode is another.

    Raises:
        UnsupportedError: for what has no meaning in a plan.
        PlanError: for operands of types that do not agree.
    """
    shape = instruction.shape
    if instruction.opcode != "reduce" or not isinstance(shape, ArrayShape):
        return None
    if len(operands) != 2:
        raise unsupported(b, "a reduction of several arrays at once")
    x, start = operands
    operator = reduction_of(b.module, instruction)
    _check(b, x, start, shape, operator)
    axes = instruction.integers("dimensions")
    result = over(b, x, shape, operator, axes)
    if is_neutral(operator, start):
        return result
    if not axes:
        # XLA drops the start then.
        raise unsupported(b, "a reduction over no dimension from a number that is not neutral")
    return _begun(b, result, start, shape, operator)


def _check(b: Building, x: Array, start: Array, shape: ArrayShape, operator: str) -> None:
    """Raise an error unless an operator reduces arrays of this type, from a number."""
    element = shape.element
    if start.rank or {x.shape.element, start.shape.element} != {element}:
        raise PlanError(f"reduce of {x.shape} from {start.shape} gives no {shape}", b.place)
    check_operator(b, operator, element)


def check_operator(b: Building, operator: str, element: ElementType) -> None:
    """Raise UnsupportedError unless an operator reduces elements of a type."""
    if operator not in _OF_TWO or (element is ElementType.PRED) != (operator in _TRUTHS):
        raise unsupported(b, f"a reduction by {operator} of {element}")


def is_neutral(operator: str, start: Array) -> bool:
    """Return True if a reduction that begins at a number is that of the elements alone."""
    number = start.uniform
    if number is None:
        return False
    if start.is_integer:
        low, high = limits(start.shape.element)
        neutral = {"add": 0, "multiply": 1, "maximum": low, "minimum": high - 1}
        return number == neutral[operator]
    return number in _NEUTRAL[operator]


def over(b: Building, x: Array, shape: ArrayShape, operator: str, axes: tuple[int, ...]) -> Array:
    """Return the reduction over ``axes``. Raises UnsupportedError for sums that may wrap."""
    if x.known is not None and x.known.size and b.computes(shape, x):
        places = tuple(axis + 1 for axis in axes)
        numbers = _FOLDS[operator](x.known, axis=places, dtype=NUMPY[shape.element])
        return b.known(shape, numbers, lambda: _over(b, x, shape, operator, axes).name)
    return _over(b, x, shape, operator, axes)


def _over(b: Building, x: Array, shape: ArrayShape, operator: str, axes: tuple[int, ...]) -> Array:
    if all(x.sizes[axis] == 1 for axis in axes):
        return reshaped(b, x, shape.dimensions)
    if operator == "multiply":
        return reshaped(b, _product(b, x, axes), shape.dimensions)
    count = prod(x.sizes[axis] for axis in axes)
    span = added_span(b, x, count) if operator == "add" else x.span
    attributes: Mapping[str, Attribute] = {"axes": axes, "keepdim": False}
    return b.array(_OVER_AXES[operator], (x.name,), shape, attributes, span=span)


def _product(b: Building, x: Array, axes: tuple[int, ...]) -> Array:
    """Return products over dimensions, which keep one place: each half times the other."""
    for axis in axes:
        while (size := x.sizes[axis]) > 1:
            half = size // 2
            first, second = sliced(b, x, axis, 0, half), sliced(b, x, axis, half, 2 * half)
            both = of_two(b, "multiply", first, second)
            x = joined(b, (both, sliced(b, x, axis, 2 * half, size)), axis) if size % 2 else both
    return x


def added_span(b: Building, x: Array, count: int) -> Span | None:
    """Return the span of sums of ``count`` elements; None for floating-point numbers.

    Raises UnsupportedError for integers whose sum may wrap.
    """
    if x.span is None:
        return None
    span = held(summed(x.span, count), x.shape.element)
    if span is None:
        raise unsupported(b, f"a sum of {x.shape.element}, which may wrap around,")
    return span


def _begun(b: Building, result: Array, start: Array, shape: ArrayShape, operator: str) -> Array:
    """Return a reduction together with the number that it begins at."""
    return of_two(b, operator, result, spread(b, start, (), shape.dimensions))


def of_two(b: Building, operator: str, first: Array, second: Array) -> Array:
    """Return a reduction of two arrays of one shape, element by element.

    Raises UnsupportedError for integers that may wrap.
    """
    shape = first.shape
    if b.computes(shape, first, second):
        given = [np.asarray(each.known) for each in (first, second)]
        numbers = computed(operator, given, shape, "")
        if numbers is not None:
            return b.known(shape, numbers)
    span = None
    if shape.element.is_integer:
        span = spanned(operator, (first, second), shape.element)
        if span is None:
            raise unsupported(b, f"{operator} of {shape.element}, which may wrap around,")
    return b.array(_OF_TWO[operator], (first.name, b.operand(second)), shape, span=span)
