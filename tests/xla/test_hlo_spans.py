"""Spans of integers against all integers in them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from pitcheck.frontends.xla.lowering.arrays import Array, Span
from pitcheck.frontends.xla.lowering.spans import contradict, decided, fact_of, spanned
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


FACTS = [("sign", 1), ("remainder", 2), ("remainder", 3)]
"""Operators on a number, with the second operand of those of two."""


def _made(opcode: str, number: int) -> Callable[[int], int]:
    return ONE["sign"] if opcode == "sign" else lambda x: TWO[opcode](x, number)


def _compared(x: Array, fact: tuple[str, int], direction: str, number: int) -> Array:
    """Return the comparison of an operator on ``x`` with a number."""
    shape, truths = ArrayShape(ElementType.S8, ()), ArrayShape(ElementType.PRED, ())
    made = Array(shape, lambda: "")
    made.fact = fact_of(fact[0], "", (x, _number(fact[1])))
    found = Array(truths, lambda: "")
    found.fact = fact_of("compare", direction, (made, _number(number)))
    return found


def _number(number: int) -> Array:
    known = np.full((1,), number, dtype=np.int8)
    return Array(ArrayShape(ElementType.S8, ()), lambda: "", known=known)


@pytest.mark.parametrize("span", [(0, 5), (1, 4), (-2, 3), (-3, 0)])
def test_truths_that_contradict_each_other_never_both_hold(span: Span) -> None:
    x, found = _array(span), 0
    comparisons = list(product(FACTS, COMPARE, (-1, 0, 1, 2)))
    for first, second in product(comparisons, comparisons):
        if contradict(_compared(x, *first), _compared(x, *second)):
            found += 1
            (one, direction, a), (two, other, b) = first, second
            assert not any(
                COMPARE[direction](_made(*one)(n), a) and COMPARE[other](_made(*two)(n), b)
                for n in range(*span)
            )
    # A floor division asks if a number has no sign, and a remainder.
    assert (found > 0) == (span[0] >= 0)


def test_truths_on_other_numbers_do_not_contradict_each_other() -> None:
    first = _compared(_array((0, 5)), ("sign", 1), "NE", 1)
    second = _compared(_array((0, 5)), ("remainder", 2), "NE", 0)
    assert not contradict(first, second)
    assert not contradict(first, _array((0, 2)))
