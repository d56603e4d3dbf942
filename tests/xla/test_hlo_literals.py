"""Large literals are read at once, with the elements and the errors of reading token by token."""

from __future__ import annotations

import time
from fractions import Fraction
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pitcheck.errors import PitcheckError, PlanError
from pitcheck.frontends.xla.text import literals
from pitcheck.frontends.xla.text.lexer import Kind, Lexer
from pitcheck.frontends.xla.text.literals import Complex, Special
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType

NEVER = 1 << 62
BEHIND = '), metadata={op_name="(a)"}\n  /* } ) */ %x = f32[] add(%c\n'
REALS = ("0", "-0", "1", "0.5", "-1.5", ".5", "1.", "2e-3", "1E+1", "15", "inf", "-inf", "nan",
         "-nan", "nan(0x7f)", "-nan(0x1)", "1e-0", "-0.0e9", "00.10")  # fmt: skip
WRONG = ("1e999", "1e9999", "9" * 101, "128", "-1", "1_1", "1x1", "+1", "--1", "e5", "1.5.2", "...",
         "nan(1)", "nan(0x)", "Inf", "(1, 2)", "", "{1}", "1 2", "1,2", "%c", "f32[2]{0}", "é",
         "nan (0x1)", "nan(0x1)(0x1)", "nan(0x1)1", "1nan(0x1)", '"1"', "- 1", "true",
         "99999")  # fmt: skip
GAPS = ("", " ", " ", "\n", "\t\v", "/*i0=0*/", " /* { 1, ) \n */ ", "/**/ /***/")
PIECES = (*"{}(),-.+e /*\n1n_[\"'\x1c\xa0", "{}", "/*", "*/", "/*,*/", "{...}", "1,", "),", "\0")


def shape_of(element: ElementType, *dimensions: int) -> ArrayShape:
    """Return the shape of an array."""
    return ArrayShape(element, dimensions)


def outcome(text: str, shape: ArrayShape, by_tokens: int) -> tuple[object, ...]:
    """Return what reading a literal gives, and where the lexer stands then, or the error."""
    try:
        lexer = Lexer(text, "dump.txt")
        read = literals_read(lexer, shape, by_tokens)
        kinds = [type(element) for element in read.elements]
        after = (lexer.kind, lexer.text, lexer.start, lexer.line())
        followers = []
        while lexer.kind is not Kind.END:
            followers.append((lexer.kind, lexer.advance(), lexer.line()))
    except PitcheckError as error:
        return type(error), str(error)
    return read, kinds, after, followers


def literals_read(lexer: Lexer, shape: ArrayShape, by_tokens: int) -> literals.Literal:
    """Read a literal, token by token if it has at most this number of elements."""
    with patch.object(literals, "MOST_BY_TOKENS", by_tokens):
        return literals.read_literal(lexer, shape)


def agree(text: str, shape: ArrayShape) -> tuple[object, ...]:
    """Return the outcome of a text, which is the same in both ways of reading."""
    at_once = outcome(text, shape, 0)
    assert at_once == outcome(text, shape, NEVER)
    return at_once


def _right(element: ElementType, in_array: bool) -> tuple[str, ...]:
    """Return texts of numbers that an element type has."""
    if element is ElementType.PRED:
        return ("true", "false", "0", "1", "00", "-0") if in_array else ("true", "false")
    if element.is_integer:
        return "0", "1", "-0", "01"
    infinite = element not in literals._FINITE_ONLY
    return tuple(text for text in REALS if infinite or "inf" not in text)


@st.composite
def written(draw: st.DrawFn, wrong: bool) -> tuple[str, ArrayShape]:
    """Draw a literal, with comments and space anywhere, and wrong numbers if so asked."""
    element = draw(st.sampled_from([kind for kind in ElementType if kind.has_values]))
    dimensions = draw(st.lists(st.integers(0 if wrong else 1, 3), max_size=3))
    gaps = st.sampled_from(GAPS)
    right = _right(element, bool(dimensions))
    numbers = st.sampled_from((*right, *right, *WRONG) if wrong else right)

    def number() -> str:
        if not element.is_complex:
            return draw(gaps) + draw(numbers) + draw(gaps)
        pieces = [draw(gaps) + draw(numbers) + draw(gaps) for _ in range(2)]
        return draw(gaps) + "(" + ",".join(pieces) + ")" + draw(gaps)

    def level(axis: int) -> str:
        if axis == len(dimensions):
            return number()
        inner = ",".join(level(axis + 1) for _ in range(dimensions[axis]))
        return draw(gaps) + "{" + inner + (draw(gaps) if not inner else "") + "}" + draw(gaps)

    return level(0), ArrayShape(element, tuple(dimensions))


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, ArrayShape]:
    """Draw a literal with characters deleted, put in or swapped."""
    text, shape = draw(written(draw(st.booleans())))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        how = draw(st.sampled_from(("delete", "insert", "swap", "cut")))
        if how == "delete":
            text = text[:start] + text[start + draw(st.integers(1, 3)) :]
        elif how == "insert":
            text = text[:start] + draw(st.sampled_from(PIECES)) + text[start:]
        elif how == "swap":
            text = text[:start] + text[start : start + 2][::-1] + text[start + 2 :]
        else:
            text = text[:start]
    return text, shape


@settings(max_examples=250)
@given(written(wrong=False))
def test_a_right_literal_is_read_at_once(drawn: tuple[str, ArrayShape]) -> None:
    """Forbid the other way, so that no agreement is one of a way with itself."""
    text, shape = drawn
    with patch.object(literals._Reader, "level", side_effect=AssertionError(text)):
        at_once = outcome(text + BEHIND, shape, 0)
    assert at_once == outcome(text + BEHIND, shape, NEVER)
    assert isinstance(at_once[0], literals.Literal)


@settings(max_examples=250)
@given(written(wrong=True), st.sampled_from((BEHIND, "", ")", "}", ", 1)", "/*")))
def test_wrong_numbers_are_read_or_refused_in_both_ways(
    drawn: tuple[str, ArrayShape], behind: str
) -> None:
    agree(drawn[0] + behind, drawn[1])


@settings(max_examples=600)
@given(damaged(), st.sampled_from((BEHIND, BEHIND, "", ")")))
def test_damage_gives_the_same_error_on_the_same_line(
    drawn: tuple[str, ArrayShape], behind: str
) -> None:
    agree(drawn[0] + behind, drawn[1])


F32, PRED, S8, C64 = ElementType.F32, ElementType.PRED, ElementType.S8, ElementType.C64
TWO = shape_of(F32, 2)
SQUARE = shape_of(F32, 2, 2)


@pytest.mark.parametrize(
    ("text", "shape", "elements"),
    [
        ("{ {1, 2}, /*i0=1*/ {3,\n4} }", SQUARE, (1, 2, 3, 4)),
        ("{-0, /* , } ) */ inf}", TWO, (Special.MINUS_ZERO, Special.INFINITY)),
        ("{nan(0xff), -nan}", TWO, (Special.NAN, Special.NAN)),
        ("{0.1e-1, -2E2}", TWO, (Fraction(1, 100), Fraction(-200))),
        ("{1, 0}", shape_of(PRED, 2), (True, False)),
        ("{-128, 127}", shape_of(S8, 2), (-128, 127)),
        ("{(1, nan(0x1)), (-0, 2)}", shape_of(C64, 2),
         (Complex(Fraction(1), Special.NAN), Complex(Special.MINUS_ZERO, Fraction(2)))),
        ("7", shape_of(F32), (7,)),
        ("(1, 2)", shape_of(C64), (Complex(Fraction(1), Fraction(2)),)),
        ("{}", shape_of(F32, 0, 3), ()),
        ("{{}, {}}", shape_of(F32, 2, 0), ()),
    ],
)  # fmt: skip
def test_a_literal_has_these_elements(
    text: str, shape: ArrayShape, elements: tuple[object, ...]
) -> None:
    read, _, after, _ = agree(text + BEHIND, shape)
    assert isinstance(read, literals.Literal)
    assert read.elements == elements
    assert isinstance(after, tuple)
    assert after[1] == ")"


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        ("{{1, 2}, 3, {4}})", SQUARE, "'{' is expected"),
        ("{{1, 2, {3, 4}}})", SQUARE, "'}' is expected"),
        ("{1{,}2})", TWO, "',' is expected"),
        ("{{,}1 2})", SQUARE, "a number of f32 is expected, not ','"),
        ("{,1 2})", TWO, "not ','"),
        ("{1})", TWO, "',' is expected"),
        ("{1, 2, 3})", TWO, "'}' is expected"),
        ("{1, 2,})", TWO, "'}' is expected"),
        ("{1,, 2})", TWO, "not ','"),
        ("{1 2})", TWO, "',' is expected"),
        ("{1/**/2})", TWO, "',' is expected"),
        ("{1,\n\n1e39})", TWO, "dump.txt:3: '1e39' is beyond"),
        ("{1, -inf})", shape_of(ElementType.F8E4M3FN, 2), "no infinity"),
        ("{1,\n128})", shape_of(S8, 2), "dump.txt:2: .* from -128 to 127"),
        ("{1, 1.0})", shape_of(S8, 2), "whole number"),
        ("{1, 2})", shape_of(PRED, 2), "from 0 to 1"),
        ("{1, inf(0x1)})", TWO, "number of f32"),
        ("{...})", TWO, "left out"),
        ("{1,\n", TWO, "the text ends"),
        ("{1, 2", TWO, "the text ends"),
        ("{1, /* 2})", TWO, "begins nothing"),
        ("{(1), (2)})", TWO, "not '\\('"),
        ("{(1, 2), 3, (4)})", shape_of(C64, 2), "'\\(' is expected"),
        ("{(1, 2, (3, 4))})", shape_of(C64, 2), "'\\)' is expected"),
        ("1)", shape_of(PRED), "true or false"),
        ("{{}})", shape_of(F32, 0, 3), "'}' is expected"),
        ("{1})", shape_of(F32, *[1] * 60, 4), "'{' is expected"),
    ],
)
def test_a_damaged_literal_is_refused(text: str, shape: ArrayShape, message: str) -> None:
    kind, said = agree(text, shape)
    assert isinstance(kind, type)
    assert issubclass(kind, Exception)
    with pytest.raises(kind, match=message):
        raise kind(said)


def test_lines_behind_a_large_literal_are_right() -> None:
    rows = ",\n".join("{" + ", ".join(["0.5"] * 64) + "}" for _ in range(64))
    text = "{" + rows + "}\n) \n and"
    with patch.object(literals._Reader, "level", side_effect=AssertionError):
        lexer = Lexer(text, "dump.txt")
        read = literals.read_literal(lexer, shape_of(F32, 64, 64))
    assert read.elements == (Fraction(1, 2),) * 4096
    assert (lexer.advance(), lexer.text, lexer.line()) == (")", "and", 66)


@pytest.mark.parametrize(
    "text",
    ["{", "(", "/*", "/* ", "/**/", "(0x", "(0x1)", "(1)", " ", ",", "{1,", "1 ", "nan(", "0"],
)
@pytest.mark.parametrize("behind", ["", "})", "\0"])
def test_a_hostile_literal_is_refused_in_time(text: str, behind: str) -> None:
    source = "{" + text * (1_000_000 // len(text)) + behind
    start = time.process_time()
    with pytest.raises(PlanError, match=r"dump\.txt:1: "):
        literals.read_literal(Lexer(source, "dump.txt"), shape_of(F32, 2000))
    assert time.process_time() - start < 1


def test_four_million_truth_values_are_read() -> None:
    """Read a mask of the largest size, of a triangle as of causal attention."""
    size = 2048
    rows = (", ".join(["1"] * row + ["0"] * (size - row)) for row in range(1, size + 1))
    text = "{ { " + " }, { ".join(rows) + " } })"
    read = literals.read_literal(Lexer(text, "dump.txt"), shape_of(PRED, size, size))
    assert len(read.elements) == size * size
    for row in range(size):
        values = read.elements[row * size : (row + 1) * size]
        assert values == (True,) * (row + 1) + (False,) * (size - row - 1)
