"""The numbers of constants, exactly as they are written.

A decimal is kept as a fraction. XLA prints the shortest decimal that rounds to the number that it
holds, so the constant is the number of its element type nearest to the fraction.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import TypeAlias

from pitcheck.frontends.xla.text.lexer import Kind, Lexer
from pitcheck.frontends.xla.text.limits import LARGEST_LITERAL
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType, Shape


class Special(Enum):
    """A floating-point number that is no fraction. The sign and payload of a NaN are dropped."""

    INFINITY = "inf"
    MINUS_INFINITY = "-inf"
    NAN = "nan"
    MINUS_ZERO = "-0"


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
    reader = _Reader(lexer, shape)
    reader.level(0)
    return Literal(shape, tuple(reader.elements))


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
            self.elements.append(self._number())
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

    def _number(self) -> Number:
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
        real = self._real(_PARTS[element])
        self.lexer.expect(",", "between the parts of a complex number")
        imaginary = self._real(_PARTS[element])
        self.lexer.expect(")", "behind a complex number")
        return Complex(real, imaginary)

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
