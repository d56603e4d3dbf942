"""The algebra of choices: how many choices decide about each element of a value together.

What is drawn as an integer or a boolean, and what real numbers decide, are choices. A value is a
polynomial in the indicators of their outcomes. An element that one choice decides has degree 1,
whatever function of it it is. A sum has the greatest degree of its terms, and a product the sum of
those of its factors. Any other function of several choices may need all of them at once.
``docs/mathematics.md`` has the reasons.

>>> algebra = ChoiceAlgebra()
>>> i = algebra.chosen(Value("int", np.ones((1, 1, 1, 2), dtype=np.int64)), np.full((1, 2), 3.0))
>>> total = algebra.sum(i, (0,))
>>> degree(total), degree(algebra.multiply(total, total))
(1, 2)
>>> degree(algebra.floor_divide(total, total)) == ENDLESS
True
>>> algebra.bits(algebra.multiply(total, total)).item()
6.0
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.reals.real import FUNCTIONS
from pitcheck.algebra.value import LEADING, Value
from pitcheck.prove.integers.sourced import (
    MANY,
    SHIFT,
    Codes,
    How,
    SourcedAlgebra,
    element_of,
)

ENDLESS = 1 << 12
"""The degree of a function that may need any number of choices at once."""
MOST_BITS = 1 << 12
"""The bits up to which the rarity of a joint outcome is counted."""
PARTS = 16
"""The parts of a bit that are counted."""
PADDING_BITS = 4.0
"""The bits of the rarest number of a free element of padding."""

_DEGREE = 20
"""The bits of a code below its degree."""

Bits = NDArray[np.float64]
Bools = NDArray[np.bool_]
MET: Bools = np.zeros(1, dtype=np.bool_)
"""The mark of elements that lacked no outcome."""


class ChoiceAlgebra(SourcedAlgebra):
    """Numbers of one draw, with the choices that decide about every element.

    A code is the number of the one choice that decides, or has the degree of an element of several
    choices, and the bits of their rarest joint outcome: log2 of the inverse of its probability.
    ``divides`` are the sites at which something is divided by the one number that is a sum of
    choices.
    """

    def __init__(self, trials: Sequence[int] = (0,), seed: int = 0) -> None:
        super().__init__(trials, seed)
        self._divisor: NDArray[np.float64] | None = None
        self.divides: set[str] = set()
        self._rarest = np.zeros(1)
        self._lacking = np.zeros(1, dtype=np.bool_)

    def chosen(self, value: Value, bits: Bits, lacking: Bools = MET) -> Value:
        """Return a value of which each element is a choice, with the bits of its rarest outcome.

        ``lacking`` says which elements lacked some outcome in all draws. Both have the shape (1 or
        instances, *shape) of the value.
        """
        shape = value.data.shape[2:]
        codes = self._new_codes(np.broadcast_to(bits, shape), np.broadcast_to(lacking, shape))
        return replace(value, special=codes[None, None])

    def _new_codes(self, bits: Bits, lacking: Bools) -> Codes:
        """Return the codes of further choices, of the shape of their bits."""
        first = len(self._rarest)
        self._rarest = np.concatenate([self._rarest, bits.reshape(-1)])
        self._lacking = np.concatenate([self._lacking, lacking.reshape(-1)])
        codes = np.arange(first, first + bits.size, dtype=np.int64) << SHIFT
        return codes.reshape(bits.shape)

    def lacks(self, value: Value) -> Bools:
        """Return where one choice decides that lacked some outcome, of the shape of the codes."""
        if value.special is None:
            return np.zeros((1, 1, 1), dtype=np.bool_)
        element = element_of(value.special)
        found: Bools = self._lacking[np.where(element < MANY, element, 0)]
        return found

    def bits(self, value: Value) -> Bits:
        """Return the bits of every element, shape (1, 1, instances, *shape)."""
        if value.special is None:
            return np.zeros((1, 1, 1))
        rarest = self._parts(value.special)[1] / PARTS
        return np.asarray(rarest, dtype=np.float64)

    def _parts(self, codes: Codes) -> tuple[Codes, Codes]:
        """Return the degrees of elements, and their bits in parts."""
        element = element_of(codes)
        several = element >= MANY
        left = np.where(several, element - MANY, 0)
        alone = np.where(several, 0, element)
        rarest = np.floor(np.minimum(self._rarest[alone], MOST_BITS) * PARTS).astype(np.int64)
        degrees = np.where(several, left >> _DEGREE, alone != 0)
        return degrees, np.where(several, left & ((1 << _DEGREE) - 1), rarest)

    # --- codes of results
    def _codes_of_both(self, a: Codes, b: Codes, how: How) -> Codes:
        one, two = element_of(a), element_of(b)
        (first, rare), (second, rarer) = self._parts(a), self._parts(b)
        if how == "product":
            found = several(first + second, rare + rarer)
        elif how == "sum":
            found = several(np.maximum(first, second), np.maximum(rare, rarer))
        else:
            found = several(np.full_like(first + second, ENDLESS), rare + rarer)
        same = (one == two) & (one < MANY)
        return np.where(one == 0, two, np.where((two == 0) | same, one, found)) << SHIFT

    def _codes_along(self, codes: Codes, axes: tuple[int, ...], how: How) -> Codes:
        element = element_of(codes)
        if not element.size:
            return np.zeros([1 if n in axes else s for n, s in enumerate(codes.shape)], np.int64)
        most = element.max(axis=axes, keepdims=True)
        least = np.where(element == 0, most, element).min(axis=axes, keepdims=True)
        degrees, rarest = (part.max(axis=axes, keepdims=True) for part in self._parts(codes))
        if how != "sum":
            degrees = np.full_like(degrees, ENDLESS)
        alone = (most == least) & (most < MANY)
        return np.where(alone, most, several(degrees, rarest)) << SHIFT

    def _codes_of_one(self, codes: Codes, how: How) -> Codes:
        if how != "function":
            return codes
        element = element_of(codes)
        rarest = self._parts(codes)[1]
        found = several(np.full_like(element, ENDLESS), rarest)
        return np.where(element >= MANY, found, element) << SHIFT

    # --- what is no polynomial, or one of another degree
    def where(self, condition: Value, a: Value, b: Value) -> Value:
        """Return a choice; what a proven outcome of real numbers chooses from decides about it."""
        result = super().where(condition, a, b)
        if condition.special is not None or (condition.data == condition.data[:, :1]).all():
            return result
        codes = self._merged((a, b), "sum")
        return self._coded(replace(result, special=None), codes, 0)

    def take(self, a: Value, axis: int, indices: Value) -> Value:
        return super().take(self._whole_along(a, axis, indices), axis, indices)

    def take_along(self, a: Value, axis: int, indices: Value) -> Value:
        return super().take_along(self._whole_along(a, axis, indices), axis, indices)

    def _whole_along(self, a: Value, axis: int, indices: Value) -> Value:
        """Return ``a`` with what decides about all along an axis, if places there are drawn."""
        fixed = (indices.data == indices.data[:, :1]).all()
        if a.special is None or indices.special is not None or fixed:
            return a
        codes = self._codes_along(a.special, (LEADING + axis,), "sum")
        return replace(a, special=np.broadcast_to(codes, a.special.shape))

    def power(self, a: Value, exponent: int) -> Value:
        if a.special is not None and exponent < 0:
            return self.divide(self.constant(Fraction(1)), self.power(a, -exponent))
        result = super().power(a, exponent)
        if a.special is None:
            return result
        degrees, rarest = self._parts(a.special)
        found = several(degrees * exponent, rarest * exponent) << SHIFT
        own = np.where(element_of(a.special) >= MANY, found, a.special)
        return self._coded(result, own, 0)

    def shift(self, a: Value, axis: int) -> Value:
        """Return numbers that no choice decides: they cancel where they are used."""
        return super().shift(replace(a, special=None), axis)

    def order(self, a: Value, axis: int, descending: bool) -> Value:
        """Return places; each of an order of real numbers is a choice, beside those of numbers."""
        result = super().order(a, axis, descending)
        if a.kind != "field":
            return result
        rarest = math.log2(max(self.shape(a)[axis], 1))
        places = self.chosen(result, np.full(result.data.shape[2:], rarest))
        codes = self._merged([v for v in (places, result) if v.special is not None], "product")
        return self._coded(places, codes, 0)

    def divide(self, a: Value, b: Value) -> Value:
        """Return a quotient; the inverse of the one number that all divisors are has degree 1.

        It has no rare outcome: its powers stand beside what choices make, whatever number it is.
        Sums of inverses of several numbers may cancel in most draws.
        """
        if b.special is None or not self._is_the_divisor(b):
            return super().divide(a, b)
        self.divides.add(self.site)
        quotient = super().divide(replace(a, special=None), replace(b, special=None))
        degrees = degrees_of(b)
        inverse = np.where(degrees > 0, several(degrees, np.zeros_like(degrees)), 0) << SHIFT
        codes = self._merged((a, replace(b, special=inverse)), "product")
        return self._coded(quotient, codes, 0)

    @property
    def rarest_divided(self) -> float:
        """Return the bits of the rarest outcome of a choice, which may stand over the one divisor.

        Return 0 if nothing is divided.
        """
        return 0.0 if self._divisor is None else float(self._rarest.max())

    def _is_the_divisor(self, b: Value) -> bool:
        """Return True if a divisor is a sum of choices, and all so far were the same number."""
        numbers = b.data[0].reshape(b.data.shape[1], -1)
        if degree(b) > 1 or not numbers.size or (numbers != numbers[:, :1]).any():
            return False
        if self._divisor is None:
            self._divisor = numbers[:, 0]
        return np.array_equal(np.broadcast_to(self._divisor, len(self.trials)), numbers[:, 0])

    def draw(self, stream: str, index: Value) -> Value:
        """Return real numbers that are drawn; no choice decides what they are at an index."""
        codes = None if index.special is None else self._codes_of_one(index.special, "function")
        return replace(super().draw(stream, index), special=codes)

    def function(self, name: str, *arguments: Value) -> Value:
        """Return any numbers for a function that real numbers do not know."""
        if name in FUNCTIONS and len(arguments) == 1:
            return super().function(name, *arguments)
        found = arguments[0]
        for other in arguments[1:]:
            found = self.add(found, other)
        codes = None if found.special is None else self._merged(arguments, "function")
        return replace(found, special=codes)

    def _truncated(self, a: Value) -> Value:
        return super()._truncated(replace(a, data=np.clip(np.nan_to_num(a.data), -1e15, 1e15)))

    def _foreign(self, value: Value) -> Value:
        return self.chosen(value, np.full(value.data.shape[2:], PADDING_BITS))

    # --- what is known about values
    def known_as(self, value: Value, where: Bools, degree: int) -> Value:
        """Return a value whose elements have a degree as if several choices made them, where told.

        ``where`` has the shape of the codes.
        """
        if value.special is None:
            return value
        element = element_of(value.special)
        found = several(np.full_like(element, degree), self._parts(value.special)[1]) << SHIFT
        return replace(value, special=np.where(where & (element != 0), found, value.special))


def several(degrees: Codes, rarest: Codes) -> Codes:
    """Return the numbers that stand for elements of several choices, from degrees and bits.

    Bits are counted in parts.
    """
    degrees = np.minimum(degrees, ENDLESS)
    found: Codes = MANY + (degrees << _DEGREE) + np.minimum(rarest, MOST_BITS * PARTS)
    return found


def degrees_of(value: Value) -> Codes:
    """Return the degree of every element, shape (1, 1, instances, *shape); 0 where none decides."""
    if value.special is None:
        return np.zeros((1, 1, 1), dtype=np.int64)
    element = element_of(value.special)
    found: Codes = np.where(element >= MANY, (element - MANY) >> _DEGREE, element != 0)
    return found


def degree(value: Value) -> int:
    """Return the greatest degree of an element."""
    return int(degrees_of(value).max(initial=0))
