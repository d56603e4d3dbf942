"""The integers that codes stand for, computed by Python from a codebook: an oracle for codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pitcheck.frontends.xla.lowering.random.codebook import Codebook
from pitcheck.frontends.xla.text.shapes import ElementType

_LOW = (1 << 32) - 1


def values(book: Codebook, parameters: Mapping[int, Sequence[int]]) -> dict[int, Any]:
    """Return the number that each code of integers, truths and bits as reals stands for."""
    entries = sorted((code, operator, key) for operator, key, code in book.entries())
    found: dict[int, Any] = {}
    operands: dict[int, tuple[int, ...]] = {}
    for code, (operator, *form), key in entries:
        if form == [1]:
            found[code] = _of_one(operator, key, found, parameters)
            continue
        first, last = key >> 32, key & _LOW
        before = operands[first] if form[-1] != 2 and first in operands else (first,)
        if form[0] == "pair":
            operands[code] = (*(operands[first] if form[1] else (first,)), last)
        elif form == [2]:
            found[code] = _of_several(operator, (first, last), found)
        else:
            found[code] = _of_several(operator, (*before, last), found)
    return found


def _of_one(operator: Any, key: int, found: Any, parameters: Any) -> Any:
    if operator[0] == "number":
        return key % (1 << 64) if operator[1] is ElementType.U64 else key
    if operator[0] == "parameter":
        return parameters[operator[1]][key]
    if operator[0] == "bitcast-convert":
        return _reinterpreted(found[key], operator[1], operator[2])
    return _computed(operator, [found[key]])


def _of_several(operator: Any, codes: tuple[int, ...], found: Any) -> Any:
    if operator[0] != "bitcast-convert":
        return _computed(operator, [found[code] for code in codes])
    source, target = _bits(operator[1]), _bits(operator[2])
    if source < target:
        return sum(found[code] << (source * place) for place, code in enumerate(codes))
    return (found[codes[0]] >> (target * codes[1])) % (1 << target)


def _reinterpreted(number: int, source: Any, target: Any) -> Any:
    if target is ElementType.F32:
        return float(np.array(number, np.uint32).view(np.float32))
    if target is ElementType.BF16:
        return float(np.array(number << 16, np.uint32).view(np.float32))
    return _held(number, target)


def _bits(element: ElementType) -> int:
    return int(element.value[1:])


def _held(number: int, element: ElementType) -> int:
    """Return the integer of a type that has the same bits, as many as it has."""
    if element is ElementType.PRED:
        return int(bool(number))
    number %= 1 << _bits(element)
    signed = element.value[0] == "s" and number >> (_bits(element) - 1)
    return number - (1 << _bits(element)) if signed else number


def _computed(operator: Any, given: list[int]) -> int:
    opcode, direction, (target, source, *_) = operator
    a, b = given[0], given[-1]
    width = _bits(source) if source is not ElementType.PRED else 1
    natural = a % (1 << width)
    results = {
        "add": lambda: a + b,
        "subtract": lambda: a - b,
        "multiply": lambda: a * b,
        "remainder": lambda: abs(a) % abs(b) * (1 if a >= 0 else -1),
        "and": lambda: a & b,
        "or": lambda: a | b,
        "xor": lambda: a ^ b,
        "not": lambda: ~a,
        "convert": lambda: a,
        "negate": lambda: -a,
        "minimum": lambda: min(a, b),
        "maximum": lambda: max(a, b),
        "popcnt": natural.bit_count,
        "count-leading-zeros": lambda: width - natural.bit_length(),
        "shift-left": lambda: natural << b if b < width else 0,
        "shift-right-logical": lambda: natural >> b if b < width else 0,
        "select": lambda: given[1] if a else b,
        "compare": lambda: {
            "LT": a < b,
            "LE": a <= b,
            "GT": a > b,
            "GE": a >= b,
            "EQ": a == b,
            "NE": a != b,
        }[direction],
    }
    return _held(int(results[opcode]()), target)
