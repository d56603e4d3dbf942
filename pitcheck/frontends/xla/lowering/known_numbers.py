"""Arithmetic on numbers that are known while a program is read, with the types of XLA."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from pitcheck.frontends.xla.lowering.arrays import NUMPY, Array, Numbers
from pitcheck.frontends.xla.text.shapes import ArrayShape

_COMPARE = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def _divide(a: Numbers, b: Numbers) -> Numbers | None:
    """Return quotients rounded toward 0, as XLA does; None if one is not defined."""
    lowest = np.iinfo(a.dtype).min
    if bool((b == 0).any()) or (lowest < 0 and bool(((a == lowest) & (b == -1)).any())):
        return None
    return (a - np.fmod(a, b)) // b


def _remainder(a: Numbers, b: Numbers) -> Numbers | None:
    """Return remainders with the sign of the dividend, as XLA does; None if one is not defined."""
    return None if bool((b == 0).any()) else np.fmod(a, b)


def _shifted(a: Numbers, b: Numbers, left: bool) -> Numbers | None:
    bits = a.dtype.itemsize * 8
    if bool(((b < 0) | (b >= bits)).any()):
        return None
    return a << b if left else a >> b


_BINARY: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
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
        "shift-left": lambda a, b: _shifted(a, b, True),
    }
)
_UNARY: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "negate": np.negative,
        "abs": np.abs,
        "sign": np.sign,
        "not": np.invert,
        "copy": np.array,
    }
)
_OF_TRUTHS = frozenset({"and", "or", "xor", "not", "copy"})
"""The arithmetic that truths have."""


def computed(
    opcode: str, operands: Sequence[Array], shape: ArrayShape, direction: str
) -> Numbers | None:
    """Return the numbers of an elementwise operator on known ones; None if they are not followed.

    ``direction``: that of a comparison.
    """
    numbers = [a.known for a in operands if a.known is not None]
    kind = NUMPY[shape.element]
    with np.errstate(over="ignore"):
        if opcode == "compare":
            return np.asarray(_COMPARE[direction](*numbers))
        if opcode == "convert":
            source = operands[0].shape.element
            if kind is np.bool_:
                return numbers[0] != 0
            wraps = source in NUMPY
            return numbers[0].astype(kind) if wraps else None
        if opcode == "select":
            return np.where(*numbers)
        if opcode == "clamp":
            low, x, high = numbers
            return np.asarray(np.minimum(np.maximum(x, low), high), dtype=kind)
        if kind is np.bool_ and opcode not in _OF_TRUTHS:
            return None
        if opcode in _BINARY:
            found = _BINARY[opcode](*numbers)
        elif opcode in _UNARY:
            found = _UNARY[opcode](*numbers)
        else:
            return None
    return None if found is None else np.asarray(found, dtype=kind)
