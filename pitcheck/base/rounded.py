"""The numbers that round to one floating-point number, and the simplest fractions among them.

>>> between = rounding_to(Fraction("0.0069444445"), FLOAT32)
>>> simplest_fraction(*between), shortest_decimal(Fraction("0.0069444445"), *between)
(Fraction(1, 144), (69444445, -10))
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Format:
    """A binary format: the digits of a number, and the exponent of its smallest step."""

    digits: int
    least: int


FLOAT32 = Format(24, -149)
FLOAT64 = Format(53, -1074)


def nearest(number: Fraction, form: Format) -> Fraction:
    """Return the number of a format that a number rounds to, ties to even."""
    step = _step(number, form) if number else Fraction(1)
    return round(number / step) * step


def rounding_to(number: Fraction, form: Format) -> tuple[Fraction, Fraction]:
    """Return the open interval of positive numbers that round to what a positive number rounds to.

    Both ends are ties. They are left out, so that the intervals of two numbers share nothing.
    """
    middle = nearest(number, form)
    above = _step(middle, form) if middle else Fraction(2) ** form.least
    # Steps below a power of two are half as long, unless they are the smallest.
    below = above
    if middle and middle == Fraction(2) ** exponent(middle):
        below = max(above / 2, Fraction(2) ** form.least)
    return max(middle - below / 2, Fraction(0)), middle + above / 2


def _step(number: Fraction, form: Format) -> Fraction:
    return Fraction(2) ** max(exponent(number) - form.digits + 1, form.least)


def exponent(number: Fraction) -> int:
    """Return the exponent of the largest power of two that is at most a number's magnitude."""
    guess = abs(number.numerator).bit_length() - number.denominator.bit_length()
    return guess if Fraction(2) ** guess <= abs(number) else guess - 1


def simplest_fraction(low: Fraction, high: Fraction) -> Fraction:
    """Return the fraction of the least denominator between two numbers, by continued fractions.

    There is one: between two of the same denominator lies one of a smaller, or a whole number. Of
    several whole numbers it is the least.
    """
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


def shortest_decimal(number: Fraction, low: Fraction, high: Fraction) -> tuple[int, int]:
    """Return the digits and the power of ten of the shortest decimal between two numbers.

    Of several it is the one nearest to ``number``, which lies there, too.
    """
    place = (exponent(number) * 1233 >> 12) + 1  # 1233 / 4096 is about log10(2)
    while True:
        unit = Fraction(10) ** place
        digits = round(number / unit)
        if low < digits * unit < high:
            return digits, place
        place -= 1
