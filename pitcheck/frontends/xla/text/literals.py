"""The numbers of constants, exactly as they are written.

A decimal is kept as a fraction. XLA prints the shortest decimal that rounds to the number that it
holds, so the constant is the number of its element type nearest to the fraction.

A token is made in Python, which takes minutes for the millions of numbers of a large constant. So
the source of a large literal is split at its commas as a whole, and each distinct number in it is
read once. Source that is not exactly what the shape demands is read again token by token, so that
an error does not depend on the size.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import TypeAlias, TypeVar

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.text.lexer import Kind, Lexer, without_comments
from pitcheck.frontends.xla.text.limits import LARGEST_LITERAL
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType, Shape


class Special(Enum):
    """A floating-point number that is no fraction. The sign and payload of a NaN are dropped."""

    INFINITY = "inf"
    MINUS_INFINITY = "-inf"
    NAN = "nan"
    MINUS_ZERO = "-0"


_T = TypeVar("_T")
Real: TypeAlias = Fraction | Special


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex number."""

    real: Real
    imaginary: Real


Number: TypeAlias = bool | int | Real | Complex
"""An element: bool for pred, int for integers, Complex for complex types, Real for the others."""


@dataclass(frozen=True, slots=True)
class Literal:
    """The elements of a constant, row by row."""

    shape: ArrayShape
    elements: tuple[Number, ...]


_FLOAT = re.compile(r"-?[0-9]*\.?[0-9]*(?:[eE][+-]?[0-9]{1,3})?")
_LONGEST_NUMBER = 100
MOST_BY_TOKENS = 1024
"""Elements of the largest literal that is read token by token at once."""
_NO_MARKS = str.maketrans("", "", string.ascii_letters + string.digits + string.whitespace + ".+-")
_PAYLOAD = re.compile(r"nan\(0x[0-9a-fA-F]{1,16}\)")
_PART = re.compile(r"[\s{(]*+([^\s{}()]++)[\s})]*+")
_BEYOND = {
    ElementType.F8E5M2: Fraction(61440),
    ElementType.F8E4M3: Fraction(248),
    ElementType.F8E4M3FN: Fraction(464),
    ElementType.F8E4M3B11FNUZ: Fraction(31),
    ElementType.F8E5M2FNUZ: Fraction(61440),
    ElementType.F8E4M3FNUZ: Fraction(248),
    ElementType.F8E3M4: Fraction(63, 4),
    ElementType.F8E8M0FNU: Fraction(3 << 126),
    ElementType.F16: Fraction(65520),
    ElementType.BF16: Fraction((1 << 128) - (1 << 119)),
    ElementType.F32: Fraction((1 << 128) - (1 << 103)),
    ElementType.F64: Fraction((1 << 1024) - (1 << 970)),
}
"""The magnitude from which a decimal rounds to no finite number: half a step above the largest."""
_PARTS = {ElementType.C64: ElementType.F32, ElementType.C128: ElementType.F64}
_FINITE_ONLY = frozenset(
    {
        ElementType.F8E4M3FN,
        ElementType.F8E4M3B11FNUZ,
        ElementType.F8E5M2FNUZ,
        ElementType.F8E4M3FNUZ,
        ElementType.F8E8M0FNU,
    }
)


def read_literal(lexer: Lexer, shape: Shape) -> Literal:
    """Return the literal that is next, of a constant of ``shape``."""
    if not isinstance(shape, ArrayShape) or not shape.element.has_values:
        raise lexer.unsupported(f"a constant of shape {shape} has no meaning here")
    if shape.size > LARGEST_LITERAL:
        raise lexer.too_large(f"a constant has {shape.size} elements; {LARGEST_LITERAL} are read")
    elements = _at_once(lexer, shape) if shape.size > MOST_BY_TOKENS else None
    if elements is None:
        reader = _Reader(lexer, shape)
        reader.level(0)
        elements = tuple(reader.elements)
    return Literal(shape, elements)


def _at_once(lexer: Lexer, shape: ArrayShape) -> tuple[Number, ...] | None:
    """Return the elements of the literal that is next, and pass it.

    None stands for a literal that may be damaged. The lexer does not move then. The shape has at
    least one element.
    """
    source = lexer.enclosed()
    if source is None:
        return None
    text = without_comments(source)
    if "nan(" in text:
        text = _PAYLOAD.sub("nan", text)
    if not _has_marks_of(shape, text.translate(_NO_MARKS)):
        return None
    # A space behind a comma separates no numbers. Python has each string of one character once.
    parts = text.replace(", ", ",").split(",")
    try:
        elements = _elements_of(parts, lexer, shape)
    except PlanError:
        return None
    lexer.skip(source)
    return elements


def _has_marks_of(shape: ArrayShape, marks: str) -> bool:
    """Return True if the braces, parentheses and commas of a literal are those of its shape."""
    wanted = "(,)" if shape.element.is_complex else ""
    length = len(wanted)
    for size in reversed(shape.dimensions):
        length = size * (length + 1) + 1
    # Braces around many dimensions of one element may be much longer than the text.
    if length != len(marks):
        return False
    for size in reversed(shape.dimensions):
        wanted = "{" + ",".join([wanted] * size) + "}"
    return wanted == marks


def _elements_of(parts: list[str], lexer: Lexer, shape: ArrayShape) -> tuple[Number, ...]:
    """Return the elements of a literal with the marks of its shape, split at its commas.

    Raises PlanError if a part is not one number behind all marks that open, and before all that
    close.
    """
    texts: dict[str, str] = {}
    for part in set(parts):
        found = _PART.fullmatch(part)
        if found is None:
            raise lexer.damaged(f"a number is expected between the commas of a constant {shape}")
        texts[part] = found[1]
    distinct = dict.fromkeys(texts.values())
    reader = _Reader(Lexer("\n".join(distinct), lexer.name), shape)
    if not shape.element.is_complex:
        numbers = reader.listed(distinct, reader.number)
        values = {part: numbers[text] for part, text in texts.items()}
        return tuple(map(values.__getitem__, parts))
    halves = reader.listed(distinct, reader.half)
    reals = [halves[texts[part]] for part in parts]
    return tuple(map(Complex, reals[::2], reals[1::2]))


class _Reader:
    """A reader of one literal. Numbers that it has many times are worked out once."""

    def __init__(self, lexer: Lexer, shape: ArrayShape) -> None:
        self.lexer = lexer
        self.shape = shape
        self.elements: list[Number] = []
        self._reals: dict[str, Real] = {}

    def level(self, axis: int) -> None:
        """Read the elements along ``axis`` and those behind it, within their braces."""
        lexer = self.lexer
        if axis == len(self.shape.dimensions):
            self.elements.append(self.number())
            return
        self._open()
        for place in range(self.shape.dimensions[axis]):
            if place:
                lexer.expect(",", f"between the elements of a constant {self.shape}")
            self.level(axis + 1)
        lexer.expect("}", f"behind the elements of a constant {self.shape}")

    def _open(self) -> None:
        self.lexer.expect("{", f"before the elements of a constant {self.shape}")
        if self.lexer.at("..."):
            raise self.lexer.unsupported(
                "the elements of a constant are left out ({...}); dump the program again with "
                "--xla_dump_large_constants in XLA_FLAGS"
            )

    def listed(self, texts: Iterable[str], read: Callable[[], _T]) -> dict[str, _T]:
        """Return what ``read`` makes of each of these texts, which are the tokens of the lexer."""
        values: dict[str, _T] = {}
        for text in texts:
            if self.lexer.text != text:
                raise self.lexer.damaged(f"{text[:60]!r} is more than one token")
            values[text] = read()
        return values

    def number(self) -> Number:
        """Read an element."""
        element = self.shape.element
        if element is ElementType.PRED:
            return self._truth()
        if element.is_integer:
            bits = int(element.value[1:])
            signed = element.value[0] == "s"
            least = -(1 << (bits - 1)) if signed else 0
            return self.lexer.integer(
                f"an element of {self.shape}", least, (1 << (bits - signed)) - 1
            )
        if not element.is_complex:
            return self._real(element)
        self.lexer.expect("(", "before a complex number")
        real = self.half()
        self.lexer.expect(",", "between the parts of a complex number")
        imaginary = self.half()
        self.lexer.expect(")", "behind a complex number")
        return Complex(real, imaginary)

    def half(self) -> Real:
        """Read a part of a complex number."""
        return self._real(_PARTS[self.shape.element])

    def _truth(self) -> bool:
        """Return a truth value. In an array XLA prints 0 and 1."""
        if self.lexer.kind is Kind.NUMBER and self.shape.dimensions:
            return self.lexer.integer("an element of pred", 0, 1) == 1
        return self.lexer.flag(f"an element of {self.shape}")

    def _real(self, element: ElementType) -> Real:
        text = self.lexer.text
        if text not in self._reals:
            self._reals[text] = self._worked_out(element)
        self.lexer.advance()
        return self._reals[text]

    def _worked_out(self, element: ElementType) -> Real:
        """Return the number that the next token says."""
        lexer = self.lexer
        if lexer.kind is Kind.SPECIAL:
            if "nan" in lexer.text:
                return Special.NAN
            if element in _FINITE_ONLY:
                raise lexer.damaged(f"{element} has no infinity")
            return Special(lexer.text)
        found = _FLOAT.fullmatch(lexer.text)
        if lexer.kind is not Kind.NUMBER or found is None or len(lexer.text) > _LONGEST_NUMBER:
            raise lexer.damaged(f"a number of {element} is expected, not {lexer.shown()}")
        value = Fraction(lexer.text)
        if abs(value) >= _BEYOND[element]:
            raise lexer.damaged(f"{lexer.shown()} is beyond the numbers of {element}")
        if not value and lexer.text.startswith("-"):
            return Special.MINUS_ZERO
        return value
