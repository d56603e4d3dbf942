"""Bounds on formulas: the degree and the height of a quotient of polynomials, upper bounds alike.

Every element of a value is a polynomial with integer coefficients over a product of *divisors*. A
divisor stands for all elements by which one step divides: it is the product of their numerators.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log2

LEVELS = 3
"""The primes that a draw has."""
LEAST_PRIME, PRIME_LIMIT = 1 << 30, 1 << 31
PRIMES_AT_LEAST = 50_000_000
"""A number below that of the primes in between, which is 50,697,537."""


@dataclass(frozen=True)
class Form:
    """A bound for each element of a value: ``degree``, log2 of the ``height``, and divisors.

    ``below`` maps the number of a divisor to its power under the fraction bar.
    """

    degree: int = 0
    height: float = 0.0
    below: Mapping[int, int] = field(default_factory=dict)


VARIABLE = Form(degree=1)
"""The form of a number that is drawn."""


class Forms:
    """The arithmetic of forms, with the divisors of one evaluation."""

    def __init__(self) -> None:
        self._divisors: list[tuple[int, float]] = []
        self._numbers: dict[int, int] = {}

    def over(self, number: int) -> int:
        """Return the divisor that is a given positive integer."""
        if number not in self._numbers:
            self._numbers[number] = self._divisor(0, log2(number))
        return self._numbers[number]

    def _divisor(self, degree: int, height: float) -> int:
        self._divisors.append((degree, height))
        return len(self._divisors) - 1

    def added(self, a: Form, b: Form) -> Form:
        """Return the form of a sum or difference."""
        joined = self.joined(a, b)
        return Form(joined.degree, joined.height + 1, joined.below)

    def joined(self, a: Form, b: Form) -> Form:
        """Return a form that bounds both."""
        below = {n: max(a.below.get(n, 0), b.below.get(n, 0)) for n in {*a.below, *b.below}}
        (d1, h1), (d2, h2) = self._lifted(a, below), self._lifted(b, below)
        return Form(max(d1, d2), max(h1, h2), below)

    def _lifted(self, a: Form, below: Mapping[int, int]) -> tuple[int, float]:
        """Return degree and height of a numerator over a larger denominator."""
        degree, height = a.degree, a.height
        for n, power in below.items():
            more = power - a.below.get(n, 0)
            degree += more * self._divisors[n][0]
            height += more * self._divisors[n][1]
        return degree, height

    def product(self, a: Form, b: Form) -> Form:
        """Return the form of a product."""
        below = {n: a.below.get(n, 0) + b.below.get(n, 0) for n in {*a.below, *b.below}}
        return Form(a.degree + b.degree, a.height + b.height, below)

    def total(self, a: Form, count: int) -> Form:
        """Return the form of a sum of ``count`` such elements."""
        return Form(a.degree, a.height + log2(max(count, 1)), a.below)

    def inverse(self, a: Form, count: int) -> Form:
        """Return the form of 1 over an element, of which there are ``count``."""
        number = self._divisor(count * a.degree, count * a.height)
        numerator = Form((count - 1) * a.degree, (count - 1) * a.height)
        degree, height = self._lifted(numerator, a.below)
        return Form(degree, height, {number: 1})


def vanishing(a: Form) -> float:
    """Return a bound on the chance that an element that is not 0 is 0 modulo a random prime.

    Variables are drawn from 1 to p - 1. A numerator other than 0 of this height is 0 modulo at most
    height/30 primes above 2^30, whatever is drawn.
    """
    return min(1.0, a.degree / (LEAST_PRIME - 1) + a.height / 30 / (PRIMES_AT_LEAST - LEVELS))
