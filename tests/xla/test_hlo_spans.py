"""Spans of integers against all integers in them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from itertools import product

import pytest

from pitcheck.frontends.xla.lowering.arrays import Array, Span
from pitcheck.frontends.xla.lowering.spans import decided, spanned
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType

SPANS = [(low, high) for low in range(-3, 4) for high in range(low + 1, 5)]
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}
TWO: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "maximum": max,
    "minimum": min,
    "divide": lambda a, b: math.trunc(a / b),
    "remainder": lambda a, b: int(math.fmod(a, b)),
}
ONE: dict[str, Callable[[int], int]] = {
    "negate": operator.neg,
    "abs": abs,
    "sign": lambda a: (a > 0) - (a < 0),
    "copy": lambda a: a,
}


def _array(span: Span) -> Array:
    return Array(ArrayShape(ElementType.S8, ()), lambda: "", span=span)


@pytest.mark.parametrize("direction", COMPARE)
def test_a_comparison_is_decided_if_all_integers_agree(direction: str) -> None:
    for a, b in product(SPANS, SPANS):
        answers = {COMPARE[direction](x, y) for x in range(*a) for y in range(*b)}
        assert decided(direction, a, b) == (answers.pop() if len(answers) == 1 else None)


@pytest.mark.parametrize("opcode", TWO)
def test_a_span_of_two_has_all_results_and_ends_with_them(opcode: str) -> None:
    for a, b in product(SPANS, SPANS):
        if opcode in {"divide", "remainder"} and b[0] <= 0:
            continue
        found = [TWO[opcode](x, y) for x in range(*a) for y in range(*b)]
        span = spanned(opcode, (_array(a), _array(b)), ElementType.S8)
        assert span is not None
        assert span[0] <= min(found) and max(found) < span[1]
        if opcode != "remainder":
            assert span == (min(found), max(found) + 1)


@pytest.mark.parametrize("opcode", ONE)
def test_a_span_of_one_is_exact(opcode: str) -> None:
    for a in SPANS:
        found = [ONE[opcode](x) for x in range(*a)]
        span = spanned(opcode, (_array(a),), ElementType.S8)
        assert span == (min(found), max(found) + 1)


def test_a_span_that_the_type_does_not_hold_is_none() -> None:
    most = _array((127, 128))
    assert spanned("add", (most, _array((0, 1))), ElementType.S8) == (127, 128)
    assert spanned("add", (most, _array((0, 2))), ElementType.S8) is None
    assert spanned("negate", (_array((-128, 0)),), ElementType.S8) is None
