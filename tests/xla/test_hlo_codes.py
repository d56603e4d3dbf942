"""Codes of expressions: equal ones for equal expressions, and what they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xla.code_values import values

from pitcheck.errors import BudgetError
from pitcheck.frontends.xla.lowering.arrays import NUMPY
from pitcheck.frontends.xla.lowering.random.codebook import (
    MOST_CODES,
    MOST_IN_ARRAY,
    Codebook,
    Ints,
)
from pitcheck.frontends.xla.lowering.random.codes import Codes, leaf, of_numbers
from pitcheck.frontends.xla.lowering.random.expressions import operator
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType

LEAVES = st.tuples(st.sampled_from(["x", "y"]), st.integers(-2, 2))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.just("f"), inner),
        st.tuples(st.sampled_from(["f", "g"]), inner, inner),
        st.tuples(st.sampled_from(["f", "h"]), inner, inner, inner),
        st.tuples(st.just("h"), inner, inner, inner, inner),
    ),
    max_leaves=6,
)


def code_of(book: Codebook, tree: Any) -> int:
    """Return the code of a tree."""
    name, *operands = tree
    if name in {"x", "y"}:
        return int(book.code(name, np.array([operands[0]], dtype=np.int64))[0])
    codes = [np.array([code_of(book, each)], dtype=np.int64) for each in operands]
    return int(book.code(name, *codes)[0])


@settings(max_examples=200, deadline=None)
@given(st.lists(TREES, min_size=2, max_size=8))
def test_trees_are_equal_if_and_only_if_their_codes_are(trees: list[Any]) -> None:
    book = Codebook()
    codes = [code_of(book, tree) for tree in trees]
    for tree, code in zip(trees, codes, strict=True):
        for other, theirs in zip(trees, codes, strict=True):
            assert (tree == other) == (code == theirs)
    assert codes == [code_of(book, tree) for tree in trees]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6), max_size=5))
def test_arrays_have_the_codes_that_their_elements_have(arrays: list[list[int]]) -> None:
    book, singly = Codebook(), Codebook()
    together = [book.code("x", np.array(each, dtype=np.int64)).tolist() for each in arrays]
    for array in arrays:
        for number in array:
            singly.code("x", np.array([number], dtype=np.int64))
    seen: dict[int, int] = {}
    for array, codes in zip(arrays, together, strict=True):
        for number, code in zip(array, codes, strict=True):
            assert seen.setdefault(number, code) == code
    assert len(set(seen.values())) == len(seen)


KINDS = [ElementType.U32, ElementType.S32, ElementType.U64, ElementType.U8]
OPERATORS = ["add", "subtract", "multiply", "and", "or", "xor", "shift-left", "shift-right-logical"]


def _given(shape: ArrayShape, number: int) -> Codes:
    places: Ints = np.arange(shape.size, dtype=np.int64).reshape(1, *shape.dimensions)
    return leaf(shape, 1, ("parameter", number), lambda: places)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(KINDS), st.lists(st.sampled_from(OPERATORS), min_size=1), st.data())
def test_codes_stand_for_what_numpy_computes(
    kind: ElementType, opcodes: list[str], data: st.DataObject
) -> None:
    """The same operators of numbers that are known, and of numbers that are not."""
    shape = ArrayShape(kind, (3,))
    limits = np.iinfo(NUMPY[kind])
    numbers = st.lists(st.integers(limits.min, limits.max), min_size=3, max_size=3)
    held = [np.array([data.draw(numbers)], dtype=NUMPY[kind]) for _ in range(2)]
    held[1] %= NUMPY[kind](8)  # so that all may be shifted by it
    unknown = [_given(shape, number) for number in range(2)]
    known = [of_numbers(kind, each) for each in held]
    for opcode in opcodes:
        unknown[0] = operator(opcode, shape, unknown)
        known[0] = operator(opcode, shape, known)
    book = Codebook()
    codes = unknown[0].held(book).codes(book)
    parameters = {number: each.reshape(-1).tolist() for number, each in enumerate(held)}
    found = values(book, parameters)
    result = known[0].held(book).numbers
    assert result is not None
    assert [found[code] for code in codes.reshape(-1).tolist()] == result.reshape(-1).tolist()


@pytest.mark.parametrize("opcode", ["add", "multiply", "and", "or", "xor", "maximum"])
def test_operands_may_change_places(opcode: str) -> None:
    shape = ArrayShape(ElementType.U32, (4,))
    book, (a, b) = Codebook(), (_given(shape, number) for number in range(2))
    one, other = (operator(opcode, shape, each).held(book) for each in ((a, b), (b, a)))
    assert np.array_equal(one.codes(book), other.codes(book))


@pytest.mark.parametrize("opcode", ["subtract", "divide", "remainder", "shift-left", "clamp"])
def test_other_operands_may_not(opcode: str) -> None:
    shape = ArrayShape(ElementType.U32, (4,))
    book, (a, b) = Codebook(), (_given(shape, number) for number in range(2))
    given = ((a, b), (b, a)) if opcode != "clamp" else ((a, b, b), (b, a, b))
    one, other = (operator(opcode, shape, each).held(book).codes(book) for each in given)
    assert not bool((one == other).any())


def test_types_directions_and_places_are_told_apart() -> None:
    wide, narrow = ArrayShape(ElementType.S32, (2,)), ArrayShape(ElementType.U32, (2,))
    truths = ArrayShape(ElementType.PRED, (2,))
    book = Codebook()
    x = _given(wide, 0)
    found = [
        x,
        _given(wide, 1),
        operator("convert", narrow, [x]),
        operator("negate", wide, [x]),
        operator("abs", wide, [x]),
        operator("compare", truths, [x, _given(wide, 1)], "LT"),
        operator("compare", truths, [x, _given(wide, 1)], "GT"),
        operator("compare", truths, [x, _given(narrow, 1)], "LT"),
        of_numbers(ElementType.S32, np.array([[5, 6]])),
        of_numbers(ElementType.S64, np.array([[5, 6]])),
    ]
    codes = [code for each in found for code in each.held(book).codes(book).reshape(-1).tolist()]
    assert len(set(codes)) == len(codes)


def test_a_long_chain_needs_no_deep_stack() -> None:
    shape = ArrayShape(ElementType.U32, (2,))
    x = _given(shape, 0)
    for _ in range(20_000):
        x = operator("add", shape, [x, _given(shape, 1)])
    book = Codebook()
    assert x.held(book).codes(book).shape == (1, 2)


def test_too_many_expressions_are_refused() -> None:
    book = Codebook()
    with pytest.raises(BudgetError, match="elements over all devices"):
        book.spend(MOST_IN_ARRAY + 1)
    for _ in range(MOST_CODES // MOST_IN_ARRAY):
        book.spend(MOST_IN_ARRAY)
    with pytest.raises(BudgetError, match="steps of single elements"):
        book.spend(1)
