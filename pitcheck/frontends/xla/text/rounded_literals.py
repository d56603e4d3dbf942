"""Literals as the fractions that programs mean.

A program divides by 144, or multiplies by 1/144 rounded to its type, which XLA prints as
0.0069444445. A literal therefore stands for the simplest fraction that rounds to the same number of
its type. Different numbers of a type stay different fractions, so no wrong number becomes a right
one.

>>> meant(Fraction("0.0069444445"), ElementType.F32)
Fraction(1, 144)
>>> meant(Fraction("0.0069444445"), ElementType.F64)
Fraction(13888889, 2000000000)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from types import MappingProxyType

from pitcheck.frontends.xla.text.module import Module
from pitcheck.frontends.xla.text.shapes import ElementType

MOST = 10**6
"""The largest denominator of a fraction for which a literal stands; others are the decimal."""
_DIGITS: Mapping[ElementType, tuple[int, int]] = MappingProxyType(
    {
        ElementType.BF16: (8, -133),
        ElementType.F16: (11, -24),
        ElementType.F32: (24, -149),
        ElementType.F64: (53, -1074),
    }
)
"""The binary digits of a number of a type, and the exponent of its smallest step."""


def meant(number: Fraction, element: ElementType) -> Fraction:
    """Return the simplest fraction that rounds to the number of a type that a decimal rounds to.

    Return the decimal itself if it is whole, or if only fractions of large denominators do.
    """
    if element not in _DIGITS or number.denominator == 1:
        return number
    low, high = _rounding_to(abs(number), *_DIGITS[element])
    found = _simplest(low, high)
    if not low < found < high or found.denominator > MOST:
        return number
    return found if number > 0 else -found


def literals_meant(*modules: Module) -> Iterator[tuple[Fraction, Fraction]]:
    """Yield the decimals of programs that stand for other fractions, with these."""
    for module in modules:
        for computation in module.computations.values():
            for instruction in computation.instructions.values():
                literal = instruction.literal
                for number in () if literal is None else dict.fromkeys(literal.elements):
                    if literal is not None and isinstance(number, Fraction):
                        found = meant(number, literal.shape.element)
                        if found != number:
                            yield number, found


def _rounding_to(number: Fraction, digits: int, least: int) -> tuple[Fraction, Fraction]:
    """Return the open interval of positive numbers that round to what a number rounds to."""
    step = Fraction(2) ** max(_exponent(number) - digits + 1, least)
    nearest = round(number / step) * step
    # Half a step below a power of two is half as long. Where steps are smallest, it is not.
    below = step
    if nearest and nearest == Fraction(2) ** _exponent(nearest) and step > Fraction(2) ** least:
        below = Fraction(2) ** max(_exponent(nearest) - digits, least)
        step = Fraction(2) ** max(_exponent(nearest) - digits + 1, least)
    return max(nearest - below / 2, Fraction(0)), nearest + step / 2


def _exponent(number: Fraction) -> int:
    """Return the exponent of the largest power of two that is at most a positive number."""
    guess = number.numerator.bit_length() - number.denominator.bit_length()
    return guess if Fraction(2) ** guess <= number else guess - 1


def _simplest(low: Fraction, high: Fraction) -> Fraction:
    """Return the fraction of the least denominator between two numbers, by continued fractions."""
    parts: list[int] = []
    while True:
        whole = low.numerator // low.denominator
        if whole + 1 < high:
            parts.append(whole + 1)
            break
        parts.append(whole)
        rest = high - whole
        if low == whole:
            # Everything above a whole number: 1/n with the least n that is below ``rest``.
            parts.append(rest.denominator // rest.numerator + 1)
            break
        low, high = 1 / rest, 1 / (low - whole)
    found = Fraction(parts.pop())
    while parts:
        found = parts.pop() + 1 / found
    return found
