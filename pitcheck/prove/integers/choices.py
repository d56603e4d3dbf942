"""The algebra of choices: how many choices decide about each element of a value together.

What is drawn as an integer or a boolean, and what real numbers decide, are choices. A value is a
polynomial in the indicators of their outcomes. An element that one choice decides has degree 1,
whatever function of it it is. A sum has the greatest degree of its terms, and a product the sum of
those of its factors. Any other function of several choices may need all of them at once. That of
a real number is a number of its own, as long as different arguments of the function never meet:
where they do, terms may cancel that differ elsewhere.
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
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.interface import Comparison
from pitcheck.algebra.reals.real import FUNCTIONS
from pitcheck.algebra.structure import aligned
from pitcheck.algebra.value import LEADING, Value
from pitcheck.prove.integers.sourced import (
    MANY,
    SHIFT,
    STEPPED,
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
PARTIAL = frozenset({"inverse", "log"})
"""The functions that have no value at 0."""
CLOSE = 1e-9
"""The relative distance below which two real numbers are taken for one."""
PADDING_BITS = 4.0
"""The bits of the rarest number of a free element of padding."""

_DEGREE = 20
"""The bits of a code below its degree."""

Bits = NDArray[np.float64]
Bools = NDArray[np.bool_]
MET: Bools = np.zeros(1, dtype=np.bool_)
"""That no choice lacks any of its outcomes."""


@dataclass(frozen=True)
class Arguments:
    """Real numbers of which a function is taken at a site.

    ``operands`` have shape (draws, elements), one array for each, and ``several``, shape
    (elements,), says which elements several choices make.
    """

    site: str
    operands: tuple[NDArray[np.float64], ...]
    several: Bools


class ChoiceAlgebra(SourcedAlgebra):
    """Numbers of one draw, with the choices that decide about every element.

    A code is the number of the one choice that decides, or has the degree of an element of several
    choices, and the bits of their rarest joint outcome: log2 of the inverse of its probability.
    ``arguments`` has, by the name of a function, the real numbers of which it is taken.
    """

    def __init__(self, trials: Sequence[int] = (0,), seed: int = 0) -> None:
        super().__init__(trials, seed)
        self.arguments: dict[str, list[Arguments]] = {}
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
        rarest = np.rint(np.minimum(self._rarest[alone], MOST_BITS) * PARTS).astype(np.int64)
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

    # --- functions of real numbers
    def exp(self, a: Value) -> Value:
        return self._entry("exp", super().exp(a), a)

    def log(self, a: Value) -> Value:
        return self._entry("log", super().log(a), a)

    def sqrt(self, a: Value) -> Value:
        return self._entry("sqrt", super().sqrt(a), a)

    def divide(self, a: Value, b: Value) -> Value:
        result = super().divide(a, b)
        if b.special is None:
            return result
        codes = self._codes_of_one(b.special, "function")
        inverse = self._entry("inverse", replace(b, special=codes), b)
        return self._coded(replace(result, special=None), self._merged((a, inverse), "product"), 0)

    def compare(self, comparison: Comparison, a: Value, b: Value) -> Value:
        name = "equal" if comparison in ("eq", "ne") else "less"
        return self._entry(name, super().compare(comparison, a, b), a, b)

    def maximum(self, a: Value, b: Value) -> Value:
        return self._entry("maximum", super().maximum(a, b), a, b)

    def minimum(self, a: Value, b: Value) -> Value:
        return self._entry("minimum", super().minimum(a, b), a, b)

    def reduce_max(self, a: Value, axis: int) -> Value:
        return self._extreme(super().reduce_max(a, axis), a, axis)

    def reduce_min(self, a: Value, axis: int) -> Value:
        return self._extreme(super().reduce_min(a, axis), a, axis)

    def _extreme(self, result: Value, a: Value, axis: int) -> Value:
        """Return an extremum of real numbers; it is a number of its own."""
        if result.special is None or a.special is None or a.kind != "field":
            return result
        self._entry("maximum", a, a)
        return self._own(result, degrees_of(a).max(axis=LEADING + axis))

    def _entry(self, name: str, result: Value, *operands: Value) -> Value:
        """Return the value of a function of real numbers, and note its arguments."""
        if any(v.kind != "field" for v in operands):
            return result
        shape = np.broadcast_shapes(*(v.data.shape[2:] for v in operands))
        degrees = np.zeros((1, 1, *shape), dtype=np.int64)
        for operand in operands:
            degrees = np.maximum(degrees, aligned(degrees_of(operand), result.rank))
        of_several = np.zeros((1, 1, *shape), dtype=np.bool_)
        if result.special is not None:
            of_several |= (element_of(result.special) >= MANY) & (degrees < ENDLESS)
        whole = (len(self.trials), *shape)
        numbers = tuple(
            np.broadcast_to(aligned(v.data, result.rank)[0], whole).reshape(len(self.trials), -1)
            for v in operands
        )
        noted = Arguments(self.site, numbers, of_several.reshape(-1))
        self.arguments.setdefault(name, []).append(noted)
        return self._own(result, degrees)

    def _own(self, result: Value, degrees: Codes) -> Value:
        """Return a value of which elements of several choices are numbers of their own.

        ``degrees`` are those of their arguments. No choice counts for such a number if arguments
        are sums of what one choice decides each: draws show if two of them are the same.
        """
        if result.special is None:
            return result
        where = (element_of(result.special) >= MANY) & (degrees < ENDLESS)
        known = several(degrees, self._parts(result.special)[1]) << SHIFT
        own = np.where(degrees <= 1, 0, known)
        return replace(result, special=np.where(where, own, result.special))

    # --- what is no polynomial, or one of another degree
    def where(self, condition: Value, a: Value, b: Value) -> Value:
        """Return a choice; what a proven outcome of real numbers chooses from decides about it."""
        result = super().where(condition, a, b)
        if condition.special is not None or (condition.data == condition.data[:, :1]).all():
            return result
        codes = self._merged((a, b), "sum")
        return self._coded(replace(result, special=None), codes, 0)

    def power(self, a: Value, exponent: int) -> Value:
        if a.special is not None and exponent < 0:
            return self.divide(self.constant(Fraction(1)), self.power(a, -exponent))
        result = super().power(a, exponent)
        if a.special is None:
            return result
        degrees, rarest = self._parts(a.special)
        found = several(degrees * exponent, rarest * exponent) << SHIFT
        own = np.where(element_of(a.special) >= MANY, found, a.special)
        return replace(result, special=np.broadcast_to(own, (1, 1, *result.data.shape[2:])))

    def shift(self, a: Value, axis: int) -> Value:
        """Return numbers that no choice decides: they cancel where they are used."""
        return super().shift(replace(a, special=None), axis)

    def order(self, a: Value, axis: int, descending: bool) -> Value:
        """Return places; each of an order of real numbers is a choice."""
        result = super().order(a, axis, descending)
        if a.kind != "field" or a.special is not None:
            return result
        rarest = math.log2(max(self.shape(a)[axis], 1))
        return self.chosen(result, np.full(result.data.shape[2:], rarest))

    def draw(self, stream: str, index: Value) -> Value:
        """Return real numbers that are drawn; no choice decides what they are at an index."""
        codes = None if index.special is None else self._codes_of_one(index.special, "function")
        return replace(super().draw(stream, index), special=codes)

    def function(self, name: str, *arguments: Value) -> Value:
        """Return any numbers for a function that real numbers do not know."""
        if name in STEPPED:
            return super().function(name, *arguments)
        if name in FUNCTIONS and len(arguments) == 1:
            return self._entry(name, super().function(name, *arguments), *arguments)
        found = arguments[0]
        for other in arguments[1:]:
            found = self.add(found, other)
        codes = None if found.special is None else self._merged(arguments, "function")
        return self._entry(name, replace(found, special=codes), *arguments)

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

    def chosen_anew(self, value: Value, where: Bools, bits: Bits) -> Value:
        """Return a value whose elements are choices of their own, where it is told."""
        if value.special is None or not where.any():
            return value
        shape = value.special.shape
        fresh = self._new_codes(np.broadcast_to(bits, shape), np.broadcast_to(MET, shape))
        return replace(value, special=np.where(where, fresh, value.special))


def met(name: str, arguments: Sequence[Arguments]) -> str | None:
    """Return a site at which different arguments of a function meet in some draw, or None.

    Two arguments differ if they do in some draw. One of the two is of several choices. Nothing is
    asked where they are not finite, or where the function has no value.
    """
    if not any(each.several.any() for each in arguments):
        return None
    operands = [
        np.concatenate([each.operands[n] for each in arguments], axis=1)
        for n in range(len(arguments[0].operands))
    ]
    of_several = np.concatenate([each.several for each in arguments])
    labels = np.zeros(operands[0].shape, dtype=np.int64)
    usual = np.zeros(labels.shape, dtype=np.bool_)
    for numbers in operands:
        found = [_together(own, _labels(row)) for own, row in zip(labels, numbers, strict=True)]
        labels = np.stack(found)
        usual |= np.isfinite(numbers) & ((numbers != 0) | (name not in PARTIAL))
    classes = np.unique(labels, axis=1, return_inverse=True)[1].reshape(-1)
    for row, kept in zip(labels, usual, strict=True):
        pairs = np.unique(np.stack([row[kept], classes[kept]]), axis=1)
        numbers, counts = np.unique(pairs[0], return_counts=True)
        meeting = kept & of_several & np.isin(row, numbers[counts > 1])
        if meeting.any():
            place, sizes = int(np.argmax(meeting)), [len(each.several) for each in arguments]
            return arguments[int(np.searchsorted(np.cumsum(sizes), place, side="right"))].site
    return None


def _labels(row: NDArray[np.float64]) -> Codes:
    """Return equal labels for numbers that are equal but for rounding, shape (elements,)."""
    known = np.nan_to_num(row, nan=0.0, posinf=0.0, neginf=0.0)
    order = np.argsort(known)
    ordered = known[order]
    steps = np.diff(ordered) > CLOSE * np.abs(ordered[1:])
    labels = np.zeros(len(row), dtype=np.int64)
    labels[order[1:]] = np.cumsum(steps)
    return labels


def _together(a: Codes, b: Codes) -> Codes:
    """Return labels that are equal where both are."""
    found: Codes = np.unique(np.stack([a, b]), axis=1, return_inverse=True)[1].reshape(-1)
    return found


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
