"""Literals are read as the exact numbers they stand for, and can be read after writing."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitcheck.base.numbers import Root, parse_number, simplest
from pitcheck.base.rounded import FLOAT32

RECOGNISED = {
    0.1: Fraction(1, 10),
    1 / 3: Fraction(1, 3),
    math.sqrt(2): Root(Fraction(2)),
    -math.sqrt(0.5): Root(Fraction(1, 2), -1),
    1 / math.sqrt(2 * math.pi): Root(Fraction(1, 2), over_pi=True),
    math.sqrt(2 / math.pi): Root(Fraction(2), over_pi=True),
    -2 / math.sqrt(math.pi): Root(Fraction(4), -1, over_pi=True),
    math.sqrt(1 / math.sqrt(8)): Root(Fraction(1, 8), fourth=True),
    math.sqrt(1 / math.sqrt(48)): Root(Fraction(1, 48), fourth=True),
    -math.sqrt(math.sqrt(3)): Root(Fraction(3), -1, fourth=True),
    math.nextafter(math.sqrt(1 / math.sqrt(8)), 1): Fraction(
        repr(math.nextafter(math.sqrt(1 / math.sqrt(8)), 1))
    ),
    0.79788456: Fraction(79788456, 10**8),
    math.pi: Fraction(repr(math.pi)),
}


@pytest.mark.parametrize("value", RECOGNISED)
def test_recognised(value: float) -> None:
    assert parse_number(value) == RECOGNISED[value]


@pytest.mark.parametrize(
    "text", ["sqrt(2)", "-sqrt(3/8)", "sqrt(2/pi)", "-sqrt(1/2/pi)", "-sqrt(sqrt(1/8))", "5/7"]
)
def test_written_as_read(text: str) -> None:
    assert str(parse_number(text)) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_stays_itself(value: float) -> None:
    found = parse_number(value)
    if isinstance(found, Root):
        # Rounded by integer arithmetic, 60 digits of pi beside it.
        pi = Fraction("3.14159265358979323846264338327950288419716939937510582097494")
        square = found.square / pi if found.over_pi else found.square
        scale = 10**80
        if found.fourth:
            root = found.sign * float(
                Fraction(math.isqrt(math.isqrt(int(square * scale**4))), scale)
            )
            assert abs(root - value) <= math.ulp(value)
            return
        assert found.sign * float(Fraction(math.isqrt(int(square * scale**2)), scale)) == value
    else:
        assert isinstance(found, Fraction)
        assert float(found) == value


@given(st.floats(width=32, min_value=2**-140, max_value=2.0**100))
def test_neighbours_in_float32_stand_for_different_numbers_that_round_to_them(value: float) -> None:
    """NumPy rounds. The number in between, of which either neighbour is as near, is not both's."""
    here = np.float32(value)
    above = np.nextafter(here, np.float32(np.inf), dtype=np.float32)
    middle = (Fraction(float(here)) + Fraction(float(above))) / 2
    for number in (here, above):
        found = simplest(Fraction(float(number)), FLOAT32)
        assert np.float32(float(found)) == number
        # However many digits are printed, it is the same number.
        assert simplest(Fraction(f"{number:.12g}"), FLOAT32) == found
    assert simplest(Fraction(float(here)), FLOAT32) != simplest(Fraction(float(above)), FLOAT32)
    even = np.float32(middle) if middle.denominator < 1 << 1000 else here
    assert simplest(middle, FLOAT32) == simplest(Fraction(float(even)), FLOAT32)


@pytest.mark.parametrize("number", [16777217, 144, 12345, 3, 10**30])
def test_whole_numbers_stay_whole(number: int) -> None:
    found = simplest(Fraction(number), FLOAT32)
    assert isinstance(found, Fraction)
    assert found.denominator == 1
    assert np.float32(found.numerator) == np.float32(number)
