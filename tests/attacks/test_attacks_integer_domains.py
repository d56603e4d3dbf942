"""Quotients by integers that are seldom 0, and roots of integers that may be negative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from attacks.integer_pairs import COUNT, filled, flipped, number, places, total, verdict

Formula = Callable[[Any], Any]
WIDE, NARROW = (0, 50000), (0, 5000)


def real(a: Any) -> Any:
    return a.cast("float32")


def ones(i: Any) -> Any:
    return real(filled(i, 1))


def over(a: Any, b: Any) -> Any:
    return a._with("div", a, b)


def of(kind: str, a: Any) -> Any:
    return a.writer.write(kind, a, dtype=a.dtype, shape=a.shape)


def one(a: Any) -> Any:
    """1 wherever a is not 0, and without a value elsewhere."""
    return over(a, a)


def count(i: Any) -> Any:
    return total(real(number(i > 10)))


def apart(i: Any) -> Any:
    """How many integers are not certain ones, of which each has its own."""
    return total(real(number(i != places(i) * 7 + 100)))


WRONG: dict[str, tuple[Formula, tuple[int, int], Callable[[Any], Any], list[int]]] = {
    "a multiple that is one number": (
        lambda i: one(real(i * 31 - 38254)),
        WIDE,
        lambda i: 31 * i - 38254,
        [1234] * COUNT,
    ),
    "an inverse": (
        lambda i: ones(i) + of("reciprocal", real(i * 31 - 38254)) * 0,
        WIDE,
        lambda i: 31 * i - 38254,
        [1234] * COUNT,
    ),
    "two integers": (
        lambda i: one(real(i * 31 - flipped(i) * 37 - 8254)),
        NARROW,
        lambda i: 31 * i - 37 * i[::-1] - 8254,
        [277, 0, 0, 0, 0, 9],
    ),
    "a count": (
        lambda i: one(apart(i)),
        NARROW,
        lambda i: np.sum(i != np.arange(COUNT) * 7 + 100, keepdims=True),
        [100, 107, 114, 121, 128, 135],
    ),
}
ROOTS: dict[str, Formula] = {
    "of a difference": lambda i: ones(i) + of("sqrt", real(i - 1)) * 0,
    "of a multiple": lambda i: ones(i) + of("sqrt", real(i * 31 - 31)) * 0,
    "of a difference from the largest": lambda i: ones(i) + of("sqrt", real(49990 - i)) * 0,
    "of a polynomial": lambda i: ones(i) + of("sqrt", real(i * i - i * 700 + 122499)) * 0,
}
RIGHT: dict[str, tuple[Formula, Formula, tuple[int, int]]] = {
    "a count on both sides": (
        lambda i: over(real(i), count(i)),
        lambda i: real(i) * of("reciprocal", count(i)),
        NARROW,
    ),
    "multiples of a count": (
        lambda i: over(real(i) * 2, count(i) * 2),
        lambda i: over(real(i), count(i)),
        NARROW,
    ),
    "what is never 0": (ones, lambda i: one(real(i * 2 + 1)), WIDE),
    "a sum that is never 0": (ones, lambda i: one(real(i + flipped(i) + 1)), WIDE),
    "a root on both sides": (
        lambda i: of("sqrt", real(i * 7 - 9)),
        lambda i: of("sqrt", real(i) * 7 - 9),
        WIDE,
    ),
    "a root of what is not negative": (
        ones,
        lambda i: ones(i) + of("sqrt", real(i * i + i)) * 0,
        WIDE,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_divisor_that_is_seldom_0(name: str) -> None:
    formula, bounds, divisor, witness = WRONG[name]
    assert (divisor(np.array(witness)) == 0).any()
    assert verdict(ones, formula, bounds)[0] in ("mismatch", "inconclusive")


@pytest.mark.parametrize("name", ROOTS)
def test_a_root_of_an_integer_that_may_be_negative(name: str) -> None:
    other = lambda i: real(i - 7) * 0 + 1  # noqa: E731  what the reference names is another number
    for reference in (ones, other):
        assert verdict(reference, ROOTS[name], WIDE)[0] in ("mismatch", "inconclusive")


@pytest.mark.parametrize("name", RIGHT)
def test_what_both_sides_divide_by_is_proven(name: str) -> None:
    reference, parallel, bounds = RIGHT[name]
    found = verdict(reference, parallel, bounds)
    # An integer over a count of 0 is infinite, and residues do not tell the sign of its products.
    assert found == (("inconclusive", "PIT202") if "count" in name else ("equivalent", ""))
