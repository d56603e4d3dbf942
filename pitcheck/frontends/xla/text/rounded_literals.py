"""Literals as the numbers that programs mean.

A program divides by 144, or multiplies by 1/144 rounded to its type, which XLA prints as
0.0069444445. A literal therefore stands for the simplest number that rounds to the same number of
its type. Different numbers of a type stay different, so no wrong number becomes a right one.

>>> meant(Fraction("0.0069444445"), ElementType.F32)
Fraction(1, 144)
>>> str(meant(Fraction("0.176776692"), ElementType.F32))
'sqrt(1/32)'
>>> meant(Fraction("0.0069444445"), ElementType.F64)
Fraction(13888889, 2000000000)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from types import MappingProxyType

from pitcheck.base.numbers import Root, simplest
from pitcheck.base.rounded import FLOAT32, FLOAT64, Format
from pitcheck.frontends.xla.text.module import Module
from pitcheck.frontends.xla.text.shapes import ElementType

_FORMATS: Mapping[ElementType, Format] = MappingProxyType(
    {
        ElementType.BF16: Format(8, -133),
        ElementType.F16: Format(11, -24),
        ElementType.F32: FLOAT32,
        ElementType.F64: FLOAT64,
    }
)


def meant(number: Fraction, element: ElementType) -> Fraction | Root:
    """Return the simplest number that rounds to the number of a type that a decimal rounds to."""
    form = _FORMATS.get(element)
    return number if form is None else simplest(number, form)


def literals_meant(*modules: Module) -> Iterator[tuple[Fraction, Fraction | Root]]:
    """Yield the decimals of programs that stand for other numbers, with these."""
    for module in modules:
        for computation in module.computations.values():
            for instruction in computation.instructions.values():
                literal = instruction.literal
                for number in () if literal is None else dict.fromkeys(literal.elements):
                    if literal is not None and isinstance(number, Fraction):
                        found = meant(number, literal.shape.element)
                        if found != number:
                            yield number, found
