"""Choice of expressions are what NumPy computes, and say which numbers are finite and vary."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pitcheck.frontends.xla.lowering.arrays import NUMPY
from pitcheck.frontends.xla.lowering.random.codebook import Codebook, Ints
from pitcheck.frontends.xla.lowering.random.codes import Codes, leaf, of_numbers
from pitcheck.frontends.xla.lowering.random.expressions import operator
from pitcheck.frontends.xla.lowering.random.samples import Choice, Sampled
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType

KINDS = [ElementType.U32, ElementType.S32, ElementType.U64, ElementType.U8]
SHIFTS = ["shift-left", "shift-right-logical", "shift-right-arithmetic"]
OTHERS = ["add", "subtract", "multiply", "and", "or", "xor", "maximum", "minimum"]
REALS = {
    "add": np.add,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "power": np.power,
}
FUNCTIONS = {
    "log": np.log,
    "log-plus-one": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "tanh": np.tanh,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "cosine": np.cos,
    "sine": np.sin,
    "abs": np.abs,
    "negate": np.negative,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
}
NUMBERS = [0.0, 1.0, -1.0, 0.5, -2.5, 700.0, 1e300, -1e300, math.inf, -math.inf, math.nan]


def _leaf(shape: ArrayShape, number: int) -> Codes:
    places: Ints = np.arange(shape.size, dtype=np.int64).reshape(1, *shape.dimensions)
    return leaf(shape, 1, ("parameter", number), lambda: places)


def _samples(book: Codebook, codes: Ints) -> list[float]:
    samples = Choice(book.by_code(), 0)
    return [samples.value(code) for code in codes.reshape(-1).tolist()]


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.lists(st.sampled_from([*SHIFTS, *OTHERS]), min_size=1, max_size=6),
    st.integers(0, 7),
)
def test_integers_are_what_numpy_computes(kind: ElementType, opcodes: list[str], by: int) -> None:
    shape, book = ArrayShape(kind, (3,)), Codebook()
    first, second = (_leaf(shape, number) for number in range(2))
    words = [np.array([_samples(book, each.held(book).codes(book))]) for each in (first, second)]
    places = of_numbers(kind, np.full((1, 3), by, dtype=NUMPY[kind]))
    known, other = (of_numbers(kind, each.astype(NUMPY[kind])) for each in words)
    for opcode in opcodes:
        first = operator(opcode, shape, (first, places if opcode in SHIFTS else second))
        known = operator(opcode, shape, (known, places if opcode in SHIFTS else other))
    expected = known.held(book).numbers
    assert expected is not None
    assert _samples(book, first.held(book).codes(book)) == expected.reshape(-1).tolist()


def _of_reals(opcode: str, *numbers: float) -> float:
    """Return the value of an operator of real numbers, entered as codes of constants."""
    book, types = Codebook(), (ElementType.F64,) * (len(numbers) + 1)
    codes = []
    for number in numbers:
        # Constants are named by their numbers, which need only have a value.
        name = ("real", ElementType.F64, np.float64(number))
        codes.append(book.code(name, np.zeros(1, dtype=np.int64)))
    return float(_samples(book, book.code((opcode, "", types), *codes))[0])


@pytest.mark.parametrize("opcode", FUNCTIONS)
def test_functions_are_those_of_numpy(opcode: str) -> None:
    with np.errstate(all="ignore"):
        for number in NUMBERS:
            expected = float(FUNCTIONS[opcode](np.float64(number)))
            found = _of_reals(opcode, number)
            if math.isfinite(expected):
                assert math.isclose(found, expected, rel_tol=1e-12), number
            else:
                assert not math.isfinite(found), number


@pytest.mark.parametrize("opcode", REALS)
def test_operators_of_two_real_numbers_are_those_of_numpy(opcode: str) -> None:
    with np.errstate(all="ignore"):
        for a in NUMBERS:
            for b in NUMBERS:
                expected = float(REALS[opcode](np.float64(a), np.float64(b)))
                found = _of_reals(opcode, a, b)
                assert math.isfinite(found) == math.isfinite(expected), (a, b)
                assert not math.isfinite(expected) or found == expected, (a, b)


def test_what_has_no_value_is_not_finite_and_does_not_vary() -> None:
    book, types = Codebook(), (ElementType.F32, ElementType.U32)
    word = book.code(("parameter", 0), np.arange(4))
    known = book.code(("convert", "", types), word)
    unknown = book.code(("made-up", "", types), word)
    assert (Sampled(book).are_finite([known]), Sampled(book).varies(known)) == (True, True)
    assert (Sampled(book).are_finite([unknown]), Sampled(book).varies(unknown)) == (False, False)
    assert not Sampled(book).are_finite([known, unknown])


def test_nothing_is_finite() -> None:
    assert Sampled(Codebook()).are_finite([])


def test_numbers_that_seldom_are_infinite_are_finite_or_not_for_some_keys() -> None:
    """A quarter of the elements: 1 by a number of two bits."""
    book, word = Codebook(), ElementType.U32
    bits = book.code(("parameter", 0), np.arange(8))
    three = book.code(("number", word), np.full(1, 3))
    low = book.code(("and", "", (word, word, word)), *np.broadcast_arrays(bits, three))
    real = book.code(("convert", "", (ElementType.F32, word)), low)
    one = book.code(("real", ElementType.F32, 1.0), np.zeros(1, dtype=np.int64))
    types = (ElementType.F32,) * 3
    quotient = book.code(("divide", "", types), *np.broadcast_arrays(one, real))
    assert Sampled(book).are_finite([real])
    assert not Sampled(book).are_finite([quotient])
