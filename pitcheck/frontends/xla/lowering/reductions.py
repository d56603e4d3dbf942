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
from pitcheck.frontends.xla.lowering.regions import reduction_of
from pitcheck.frontends.xla.lowering.spans import held, spanned, summed
from pitcheck.frontends.xla.lowering.structure import reshaped
from pitcheck.frontends.xla.text.literals import Special
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.plan.model import Attribute

_OVER_AXES = MappingProxyType(
    {"add": "sum", "maximum": "amax", "minimum": "amin", "and": "all", "or": "any"}
)
_OF_TWO = MappingProxyType(
    {
        "add": "add",
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
        "maximum": np.maximum.reduce,
        "minimum": np.minimum.reduce,
        "and": np.logical_and.reduce,
        "or": np.logical_or.reduce,
    }
)
_NEUTRAL: Mapping[str, tuple[bool | Special | Fraction, ...]] = MappingProxyType(
    {
        "add": (Fraction(0), Special.MINUS_ZERO),
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
    if operator not in _OVER_AXES or (element is ElementType.PRED) != (operator in _TRUTHS):
        raise unsupported(b, f"a reduction by {operator} of {element}")


def is_neutral(operator: str, start: Array) -> bool:
    """Return True if a reduction that begins at a number is that of the elements alone."""
    number = start.uniform
    if number is None:
        return False
    if start.is_integer:
        low, high = limits(start.shape.element)
        return number == {"add": 0, "maximum": low, "minimum": high - 1}[operator]
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
    count = prod(x.sizes[axis] for axis in axes)
    span = added_span(b, x, count) if operator == "add" else x.span
    attributes: Mapping[str, Attribute] = {"axes": axes, "keepdim": False}
    return b.array(_OVER_AXES[operator], (x.name,), shape, attributes, span=span)


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
    if b.computes(shape, result, start):
        numbers = computed(operator, (result, start), shape, "")
        if numbers is not None:
            return b.known(shape, numbers)
    span = None
    if shape.element.is_integer:
        span = spanned(operator, (result, start), shape.element)
        if span is None:
            raise unsupported(b, f"a sum of {shape.element}, which may wrap around,")
    first = b.operand(start)
    return b.array(_OF_TWO[operator], (result.name, first), shape, span=span)
