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


_DECIMAL = re.compile(r"(-?(?:[0-9]++|(?=\.[0-9])))(?:\.([0-9]*+))?(?:[eE]([+-]?[0-9]{1,3}))?")
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
    reader = _Reader(lexer, shape)
    # A dict keeps the order in which the parts lie in memory, which is much faster than a set's.
    distinct = dict.fromkeys(parts)
    if shape.element is ElementType.PRED or shape.element.is_integer:
        values = reader.listed(distinct, _Reader.number)
        return tuple(map(values.__getitem__, parts))
    reals = reader.decimals(distinct)
    reals |= reader.listed(distinct.keys() - reals.keys(), _Reader.real)
    if not shape.element.is_complex:
        return tuple(map(reals.__getitem__, parts))
    halves = [reals[part] for part in parts]
    return tuple(map(Complex, halves[::2], halves[1::2]))


class _Reader:
    """A reader of one literal. Numbers that it has many times are worked out once."""

    def __init__(self, lexer: Lexer, shape: ArrayShape) -> None:
        self.lexer = lexer
        self.shape = shape
        self.elements: list[Number] = []
        self._reals: dict[str, Real] = {}
        self._element = _PARTS.get(shape.element, shape.element)
        self._beyond = _BEYOND.get(self._element, Fraction(0))
        self._meaning = f"an element of {shape}"
        self._least, self._most = _range(shape.element)

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

    def listed(self, parts: Iterable[str], read: Callable[[_Reader], _T]) -> dict[str, _T]:
        """Return what ``read`` makes of the number in each part. Raises PlanError if it is none."""
        texts: dict[str, str] = {}
        for part in parts:
            found = _PART.fullmatch(part)
            if found is None:
                raise self.lexer.damaged(f"{part[:60]!r} is not one number between marks")
            texts[part] = found[1]
        distinct = dict.fromkeys(texts.values())
        reader = _Reader(Lexer("\n".join(distinct), self.lexer.name), self.shape)
        values: dict[str, _T] = {}
        for text in distinct:
            if reader.lexer.text != text:
                raise reader.lexer.damaged(f"{text[:60]!r} is more than one token")
            values[text] = read(reader)
        return {part: values[text] for part, text in texts.items()}

    def decimals(self, parts: Iterable[str]) -> dict[str, Real]:
        """Return the numbers of those parts that are decimals of the element type, and no more.

        Each of these is one token, so that none is made.
        """
        values: dict[str, Real] = {}
        for part in parts:
            found = _decimal(part)
            value = None if found is None else _value(found, self._beyond)
            if value is not None:
                values[part] = value
        return values

    def number(self) -> Number:
        """Read an element."""
        element = self.shape.element
        if element is ElementType.PRED:
            return self._truth()
        if element.is_integer:
            return self.lexer.integer(self._meaning, self._least, self._most)
        return self._complex() if element.is_complex else self.real()

    def _complex(self) -> Complex:
        self.lexer.expect("(", "before a complex number")
        real = self.real()
        self.lexer.expect(",", "between the parts of a complex number")
        imaginary = self.real()
        self.lexer.expect(")", "behind a complex number")
        return Complex(real, imaginary)

    def _truth(self) -> bool:
        """Return a truth value. In an array XLA prints 0 and 1."""
        if self.lexer.kind is Kind.NUMBER and self.shape.dimensions:
            return self.lexer.integer("an element of pred", 0, 1) == 1
        return self.lexer.flag(self._meaning)

    def real(self) -> Real:
        """Read a floating-point number or a part of a complex one."""
        text = self.lexer.text
        value = self._reals.get(text)
        if value is None:
            value = self._reals[text] = self._worked_out()
        self.lexer.advance()
        return value

    def _worked_out(self) -> Real:
        """Return the number that the next token says."""
        lexer, element = self.lexer, self._element
        if lexer.kind is Kind.SPECIAL:
            if "nan" in lexer.text:
                return Special.NAN
            if element in _FINITE_ONLY:
                raise lexer.damaged(f"{element} has no infinity")
            return Special(lexer.text)
        found = _decimal(lexer.text)
        if found is None:
            raise lexer.damaged(f"a number of {element} is expected, not {lexer.shown()}")
        value = _value(found, self._beyond)
        if value is None:
            raise lexer.damaged(f"{lexer.shown()} is beyond the numbers of {element}")
        return value


def _decimal(text: str) -> re.Match[str] | None:
    """Return the parts of a decimal that is read, None for any other token."""
    return _DECIMAL.fullmatch(text) if len(text) <= _LONGEST_NUMBER else None


def _value(decimal: re.Match[str], beyond: Fraction) -> Real | None:
    """Return the number that a decimal says, None if it is ``beyond`` or above.

    Whole numbers are compared, and made a fraction of, faster than a fraction is made of text.
    """
    whole, behind, exponent = decimal.groups("")
    numerator, denominator = int(whole + behind), 1
    scale = int(exponent or 0) - len(behind)
    if scale < 0:
        denominator = 10**-scale
    else:
        numerator *= 10**scale
    if abs(numerator) * beyond.denominator >= beyond.numerator * denominator:
        return None
    if not numerator and whole.startswith("-"):
        return Special.MINUS_ZERO
    return Fraction(numerator, denominator)


def _range(element: ElementType) -> tuple[int, int]:
    """Return the least and the largest number of a type of whole numbers, (0, 0) for others."""
    if not element.is_integer:
        return 0, 0
    bits = int(element.value[1:])
    if element.value[0] == "u":
        return 0, (1 << bits) - 1
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
