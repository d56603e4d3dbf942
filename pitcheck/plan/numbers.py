"""Literals as exact numbers: rationals, square roots of rationals and of rationals over pi, and the three special floats."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from pitcheck.errors import PlanError

_ROOT = re.compile(r"^(-?)sqrt\((\d+(?:/\d+)?)(/pi)?\)$")
_DECIMAL = re.compile(r"^[-+]?(\d+/\d+|(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?)$")
_SMALL = 10**6
_SMALL_OVER_PI = 1000
_PI = Fraction("3.14159265358979323846264338327950288419716939937511")
_LONGEST = 400
_NUMBERS = "write an integer, a decimal, 'n/d', 'sqrt(n/d)', 'sqrt(n/d/pi)', 'inf', '-inf' or 'nan'"


@dataclass(frozen=True)
class Root:
    """``sign * sqrt(square)``, with ``square`` a positive rational that is no square itself; or, ``over_pi``, ``sign * sqrt(square / pi)``.

    Roots over pi are the constants of the normal distribution and of the error function: 1 / sqrt(2 pi), sqrt(2 / pi), 2 / sqrt(pi).
    """

    square: Fraction
    sign: int = 1
    over_pi: bool = False

    def __str__(self) -> str:
        """The text that ``parse_number`` reads."""
        return f"{'-' if self.sign < 0 else ''}sqrt({self.square}{'/pi' if self.over_pi else ''})"


Literal = Fraction | float | Root
"""An exact rational, a root of one, or nan, inf, -inf as a float."""


def parse_number(value: int | float | str, place: str = "number") -> Literal:
    """The exact number that a literal stands for.

    A float is recognised as the simplest rational (denominator up to 10^6), else as the root of such a rational, else as the root of one (denominator up to
    10^3) over pi, that rounds to it in float64, else as the decimal number that is printed for it: two different floats always stay different. Raises PlanError
    for text that is no number.
    """
    if isinstance(value, bool):
        return Fraction(int(value))
    if isinstance(value, int):
        return Fraction(value)
    if isinstance(value, float):
        return _recognise(value)
    if value in ("nan", "inf", "-inf"):
        return float(value)
    # An exponent is written out when it is read, so that it must be small: 1e999999999 would fill the memory.
    root = _ROOT.match(value) if len(value) <= _LONGEST else None
    if root is None and (len(value) > _LONGEST or not _DECIMAL.match(value)):
        raise PlanError(f"{value[:40]!r} is not a number; {_NUMBERS}", place)
    try:
        if root:
            return Root(Fraction(root.group(2)), -1 if root.group(1) else 1, over_pi=bool(root.group(3)))
        return Fraction(value)
    except (ValueError, ZeroDivisionError):
        raise PlanError(f"{value!r} is not a number; {_NUMBERS}", place) from None


def _recognise(value: float) -> Literal:
    if not math.isfinite(value):
        return value
    simple = Fraction(value).limit_denominator(_SMALL)
    if float(simple) == value:
        return simple
    square = Fraction(value * value).limit_denominator(_SMALL)
    if square > 0 and math.sqrt(square) == abs(value):
        return Root(square, 1 if value > 0 else -1)
    square = Fraction(value * value * math.pi).limit_denominator(_SMALL_OVER_PI)
    half = Fraction(math.ulp(value)) / 2
    if (abs(Fraction(value)) - half) ** 2 * _PI < square < (abs(Fraction(value)) + half) ** 2 * _PI:
        return Root(square, 1 if value > 0 else -1, over_pi=True)
    return Fraction(repr(value))
