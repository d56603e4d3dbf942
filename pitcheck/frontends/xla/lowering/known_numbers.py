"""Arithmetic on numbers that are known while a program is read, with the types of XLA."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from pitcheck.frontends.xla.lowering.arrays import NUMPY, Numbers
from pitcheck.frontends.xla.text.shapes import ArrayShape

_COMPARE: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "EQ": np.equal,
        "NE": np.not_equal,
        "LT": np.less,
        "LE": np.less_equal,
        "GT": np.greater,
        "GE": np.greater_equal,
    }
)


def _divide(a: Numbers, b: Numbers) -> Numbers | None:
    """Return quotients rounded toward 0, as XLA does; None if one is not defined."""
    lowest = np.iinfo(a.dtype).min
    if bool((b == 0).any()) or (lowest < 0 and bool(((a == lowest) & (b == -1)).any())):
        return None
    return (a - np.fmod(a, b)) // b


def _remainder(a: Numbers, b: Numbers) -> Numbers | None:
    """Return remainders with the sign of the dividend, as XLA does; None if one is not defined."""
    return None if bool((b == 0).any()) else np.fmod(a, b)


def _shifted(a: Numbers, b: Numbers, shift: Callable[[Numbers, Numbers], Any]) -> Any:
    """Return shifted bits; None if one is shifted by more than its type has."""
    bits = a.dtype.itemsize * 8
    return None if bool(((b < 0) | (b >= bits)).any()) else shift(a, b)


def _left(a: Numbers, b: Numbers) -> Any:
    return _shifted(a, b, np.left_shift)


def _right(a: Numbers, b: Numbers) -> Any:
    """Return bits shifted to the right, with zeros at the left."""
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    return _shifted(a, b, lambda x, y: np.right_shift(x.view(unsigned), y.view(unsigned)))


def _right_signed(a: Numbers, b: Numbers) -> Any:
    """Return bits shifted to the right, with copies of the sign at the left."""
    signed = np.dtype(f"i{a.dtype.itemsize}")
    return _shifted(a, b, lambda x, y: np.right_shift(x.view(signed), y.view(signed)))


def _clamp(low: Numbers, x: Numbers, high: Numbers) -> Numbers:
    return np.minimum(np.maximum(x, low), high)


_TRUTHS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "and": np.logical_and,
        "or": np.logical_or,
        "xor": np.logical_xor,
        "not": np.logical_not,
        "select": np.where,
    }
)
"""The arithmetic that truths have."""
_INTEGERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "add": np.add,
        "subtract": np.subtract,
        "multiply": np.multiply,
        "maximum": np.maximum,
        "minimum": np.minimum,
        "divide": _divide,
        "remainder": _remainder,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "shift-left": _left,
        "shift-right-logical": _right,
        "shift-right-arithmetic": _right_signed,
        "negate": np.negative,
        "abs": np.abs,
        "sign": np.sign,
        "not": np.invert,
        "select": np.where,
        "clamp": _clamp,
    }
)


COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})
"""The operators whose operands may change places."""


def computed(
    opcode: str, operands: Sequence[Numbers], shape: ArrayShape, direction: str
) -> Numbers | None:
    """Return the numbers of an elementwise operator on known ones; None if they are not followed.

    Each operand has a first dimension for devices. ``direction``: that of a comparison.
    """
    numbers = [_aligned(each, shape) for each in operands]
    kind = NUMPY.get(shape.element)
    if kind is None:
        return None
    if opcode == "compare":
        function: Callable[..., Any] | None = _COMPARE[direction]
    elif opcode == "convert":
        function = np.array if kind is not np.bool_ else lambda x: x != 0
    else:
        function = (_TRUTHS if kind is np.bool_ else _INTEGERS).get(opcode)
    if function is None:
        return None
    with np.errstate(over="ignore"):
        found = function(*numbers)
    return None if found is None else np.asarray(found).astype(kind)


def _aligned(numbers: Numbers, shape: ArrayShape) -> Numbers:
    """Return numbers with a dimension for each of the result's: a scalar stands for all."""
    if numbers.ndim == 1:
        return numbers.reshape(len(numbers), *(1,) * len(shape.dimensions))
    return numbers
