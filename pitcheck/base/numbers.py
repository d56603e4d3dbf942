"""Literals as exact numbers.

They are rationals, square and fourth roots of rationals, roots of rationals over pi, and the three
special floats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from pitcheck.base.rounded import (
    FLOAT64,
    Format,
    nearest,
    rounding_to,
    shortest_decimal,
    simplest_fraction,
)
from pitcheck.errors import PlanError

_ROOT = re.compile(
    r"^(-?)(?:sqrt\((\d+(?:/\d+)?)(/pi)?\)|sqrt\(sqrt\((\d+(?:/\d+)?)\)\))$", re.ASCII
)
_DECIMAL = re.compile(r"^[-+]?(\d+/\d+|(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?)$", re.ASCII)
_SMALL = 10**6
_SMALL_FOURTH = 1024
_PI = Fraction("3.14159265358979323846264338327950288419716939937511")
_LONGEST = 400
_BEYOND = Fraction(1 << 1024)
_NUMBERS = (
    "write an integer, a decimal, 'n/d', 'sqrt(n/d)', 'sqrt(n/d/pi)', 'sqrt(sqrt(n/d))', "
    "'inf', '-inf' or 'nan'"
)


@dataclass(frozen=True)
class Root:
    """The number ``sign * sqrt(square)``, with a positive rational ``square`` that is not a square.

    With ``over_pi`` it is ``sign * sqrt(square / pi)``. Roots over pi are the constants of the
    normal distribution and of the error function: 1 / sqrt(2 pi), sqrt(2 / pi), 2 / sqrt(pi). With
    ``fourth`` it is ``sign * sqrt(sqrt(square))``. Attention that scales queries and keys equally
    scales each by the root of the scale, which is a root itself.
    """

    square: Fraction
    sign: int = 1
    over_pi: bool = False
    fourth: bool = False

    def __str__(self) -> str:
        """Return the text that ``parse_number`` reads."""
        root = f"sqrt({self.square}{'/pi' if self.over_pi else ''})"
        return f"{'-' if self.sign < 0 else ''}{f'sqrt({root})' if self.fourth else root}"

    def __float__(self) -> float:
        """Return the number, rounded."""
        square = float(self.square) / math.pi if self.over_pi else float(self.square)
        return self.sign * (math.sqrt(math.sqrt(square)) if self.fourth else math.sqrt(square))


Literal = Fraction | float | Root
"""An exact rational, a root of one, or nan, inf, -inf as a float."""


def parse_number(value: int | float | str, place: str = "number") -> Literal:
    """Return the exact number that a literal stands for.

    A float is the :func:`simplest` number that rounds to it in float64. If that is the decimal that
    is printed for it, it is recognised as the fourth root of a rational of up to 1024 over up to
    1024 (rounded at once, or at every root and reciprocal). Two different floats stay different,
    except for such fourth roots that differ in the last place.

    Raises:
        PlanError: if text is not a number, or a number is 2^1024 or more.
    """
    if isinstance(value, int):
        return _within_range(Fraction(int(value)), place)
    if isinstance(value, float):
        return _recognise(value)
    if value in ("nan", "inf", "-inf"):
        return float(value)
    # An exponent is written out when it is read, so that it must be small: 1e999999999 would fill
    # the memory.
    root = _ROOT.match(value) if len(value) <= _LONGEST else None
    if root is None and (len(value) > _LONGEST or not _DECIMAL.match(value)):
        raise PlanError(f"{value[:40]!r} is not a number; {_NUMBERS}", place)
    try:
        if root:
            minus, square, over_pi, power = root.groups()
            under = _within_range(Fraction(square or power), place)
            return (
                Fraction(0)
                if under == 0
                else Root(under, -1 if minus else 1, over_pi=bool(over_pi), fourth=bool(power))
            )
        return _within_range(Fraction(value), place)
    except (ValueError, ZeroDivisionError):
        raise PlanError(f"{value!r} is not a number; {_NUMBERS}", place) from None


def _within_range(number: Fraction, place: str) -> Fraction:
    """Return the number itself.

    Raises:
        PlanError: if it is beyond every floating-point type. No program has it, and no trial on
            real numbers could.
    """
    if abs(number) >= _BEYOND:
        digits = number.numerator.bit_length() - number.denominator.bit_length()
        raise PlanError(
            f"a number of about 2^{digits} is beyond the range of float64 (2^1024); write 'inf' "
            f"where infinity is meant",
            place,
        )
    return number


def simplest(number: Fraction, form: Format = FLOAT64) -> Fraction | Root:
    """Return the simplest number that rounds to the same number of a format.

    It is the one of the shortest description, if that is so short that few numbers of the format
    have one by chance. Described are n/d, and its root, and its root over pi, by the product n d;
    decimals by their digits; m 2^e by m. Else it is the number of the format, if that is whole;
    else n/d with the least d, if d is at most 10^6; else the shortest decimal.

    Different numbers of a format stay different, because each stands for one that rounds to it.
    """
    exact = nearest(abs(number), form)
    if exact.denominator == 1 and exact < 1 << form.digits:
        return exact if number > 0 else -exact
    low, high = rounding_to(exact, form)
    fraction = simplest_fraction(low, high)
    digits, place = shortest_decimal(exact, low, high)
    decimal = digits * Fraction(10) ** place
    chance = 1 << form.digits // 2
    described: list[tuple[int, Fraction | Root]] = [
        (_length(fraction), fraction),
        (exact.numerator >> _zeros(exact.numerator), exact),
    ]
    # Programs are written in decimals, of which longer ones are none by chance.
    short: list[tuple[int, Fraction | Root]] = (
        [(digits, decimal)] if digits < 1 << form.digits * 3 // 4 else []
    )
    short += [each for each in described if each[0] < chance]
    short = short or [each for each in _roots(low, high) if each[0] < chance]
    otherwise = fraction if fraction.denominator <= _SMALL else decimal
    if exact.denominator == 1:
        otherwise = exact
    least = min(short, key=lambda each: each[0])[1] if short else otherwise
    if number > 0:
        return least
    return replace(least, sign=-1) if isinstance(least, Root) else -least


def _roots(low: Fraction, high: Fraction) -> Iterator[tuple[int, Root]]:
    """Yield the simplest roots between two positive numbers, each with its length."""
    square = simplest_fraction(low**2, high**2)
    yield _length(square), Root(square)
    over_pi = simplest_fraction(low**2 * _PI, high**2 * _PI)
    yield _length(over_pi), Root(over_pi, over_pi=True)


def _length(fraction: Fraction) -> int:
    return fraction.numerator * fraction.denominator


def _zeros(number: int) -> int:
    """Return the number of zeros at the end of a number's bits."""
    return (number & -number).bit_length() - 1


def _recognise(value: float) -> Literal:
    if not math.isfinite(value):
        return value
    found = simplest(Fraction(value)) if value else Fraction(0)
    if isinstance(found, Root) or found != Fraction(repr(value)):
        return found
    power = (
        Fraction(value) ** 4
        if _SMALL_FOURTH**-0.25 * 0.99 < abs(value) < _SMALL_FOURTH**0.25 * 1.01
        else Fraction(0)
    )
    power = power.limit_denominator(_SMALL_FOURTH)
    if (
        found.denominator > _SMALL
        and 0 < power.numerator <= _SMALL_FOURTH
        and abs(value) in _fourth_roots(power)
    ):
        return Root(power, 1 if value > 0 else -1, fourth=True)
    return found


def _fourth_roots(number: Fraction) -> set[float]:
    """Return the floats that programs have for the fourth root of a rational.

    They are rounded once, or at every step of the root of a root, or of the reciprocal of one.
    """
    scale = 10**40
    exact = float(
        Fraction(math.isqrt(math.isqrt(number.numerator * scale**4 // number.denominator)), scale)
    )
    return {exact, math.sqrt(math.sqrt(number)), math.sqrt(1 / math.sqrt(1 / number))}
