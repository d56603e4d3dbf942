"""The expression that each element of an array is, computed when it is asked for.

Where an integer wraps around, or bits are mixed, a plan has no operator. But the elements of two
arrays are the same if they are the same operators of the same elements of the parameters, and that
is what codes tell (:mod:`codebook`). An operator of numbers that are known is the number.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pitcheck.frontends.xla.lowering.random.codebook import Codebook, Ints, check_size
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType

Elements: TypeAlias = NDArray[Any]
Move = Callable[[Elements], Elements]
"""A function that moves elements of an array with a first dimension for devices."""


@dataclass
class Held:
    """The elements of an array on each device: numbers, or the codes of expressions.

    Attributes:
        element: their type.
        numbers: shape (devices or 1, *sizes); None if they are not known.
        expressions: their codes, of the same shape; None if they are numbers.
    """

    element: ElementType
    numbers: Elements | None = None
    expressions: Ints | None = None

    def codes(self, book: Codebook) -> Ints:
        """Return the codes of all elements, those of numbers as well."""
        if self.expressions is None:
            numbers = np.asarray(self.numbers)
            raw = numbers.view(np.int64) if numbers.dtype == np.uint64 else numbers.astype(np.int64)
            self.expressions = book.code(("number", self.element), raw)
        return self.expressions

    @property
    def rows(self) -> int:
        """The number of devices, 1 if all hold the same."""
        held = self.numbers if self.numbers is not None else self.expressions
        return 0 if held is None else len(held)

    def moved(self, move: Move) -> Held:
        """Return the elements at other places."""
        if self.numbers is not None:
            return Held(self.element, numbers=move(self.numbers))
        return Held(self.element, expressions=move(np.asarray(self.expressions)))


MIXED = 16
"""The disjunctions behind which bits are taken for random: threefry has 20 rounds of one."""
Make = Callable[[Codebook, Sequence[Held]], Held]


class Codes:
    """The elements of an array, made of those of others when they are asked for.

    Attributes:
        mixing: the exclusive disjunctions of bits that each element has been through at least;
            MIXED for the bits of a generator.
    """

    def __init__(
        self,
        inputs: Sequence[Codes],
        make: Make | None,
        held: Held | None = None,
        *,
        mixing: int = 0,
    ) -> None:
        self._inputs = tuple(inputs)
        self._make = make
        self._held = held
        self.mixing = mixing

    def held(self, book: Codebook) -> Held:
        """Return the elements. Raises BudgetError if that takes too many steps."""
        waiting = [self]
        while waiting:
            codes = waiting[-1]
            missing = [each for each in codes._inputs if each._held is None]
            if codes._held is None and missing:
                waiting += missing
                continue
            if codes._held is None and codes._make is not None:
                codes._held = codes._make(book, [i._held for i in codes._inputs if i._held])
            # Its operands are not needed any longer.
            codes._inputs, codes._make = (), None
            waiting.pop()
        if self._held is None:
            raise RuntimeError("codes that nothing makes")
        return self._held


def of_numbers(element: ElementType, numbers: Elements) -> Codes:
    """Return known numbers."""
    return Codes((), None, Held(element, numbers=numbers))


def counted_codes(element: ElementType, size: int, dtype: DTypeLike) -> Codes:
    """Return 0, 1, ... below ``size``."""

    def make(_: Codebook, __: Sequence[Held]) -> Held:
        check_size(size)
        return Held(element, numbers=np.arange(size, dtype=dtype)[None])

    return Codes((), make)


def of_real(shape: ArrayShape, number: Hashable) -> Codes:
    """Return an array of one floating-point number."""

    def make(book: Codebook, _: Sequence[Held]) -> Held:
        code = book.code(("real", shape.element, number), np.zeros(1, dtype=np.int64))
        wide = np.broadcast_to(
            code.reshape(1, *(1 for _ in shape.dimensions)), (1, *shape.dimensions)
        )
        return Held(shape.element, expressions=wide)

    return Codes((), make)


def moved(x: Codes, shape: ArrayShape, move: Move) -> Codes:
    """Return elements at other places of an array of some shape."""

    def make(_: Codebook, given: Sequence[Held]) -> Held:
        check_size(given[0].rows * prod(shape.dimensions))
        return given[0].moved(move)

    return Codes((x,), make, mixing=x.mixing)


def joined(shape: ArrayShape, parts: Sequence[Codes], axis: int) -> Codes:
    """Return arrays joined along ``axis``, of some shape."""

    def make(book: Codebook, given: Sequence[Held]) -> Held:
        book.spend(max(each.rows for each in given) * prod(shape.dimensions))
        numbers = [each.numbers for each in given if each.numbers is not None]
        if len(numbers) == len(given):
            return Held(given[0].element, numbers=_concatenated(numbers, axis))
        codes = [each.codes(book) for each in given]
        return Held(given[0].element, expressions=_concatenated(codes, axis))

    return Codes(parts, make, mixing=min(part.mixing for part in parts))


def _concatenated(parts: Sequence[Elements], axis: int) -> Elements:
    rows = max(map(len, parts))
    whole = [np.broadcast_to(each, (rows, *each.shape[1:])) for each in parts]
    return np.concatenate(whole, axis=axis + 1)


Exchange = Callable[[Sequence[Elements], Elements], Sequence[Elements]]
"""A function of what each device holds, and of as many zeros, that gives what each device gets."""


def exchanged(x: Codes, shape: ArrayShape, devices: int, exchange: Exchange) -> Codes:
    """Return what each device gets, an array of some shape."""

    def make(book: Codebook, given: Sequence[Held]) -> Held:
        book.spend(devices * prod(shape.dimensions))
        held = given[0]
        if held.numbers is not None:
            return Held(held.element, numbers=swapped(held.numbers, devices, exchange))
        zero = of_numbers(held.element, np.zeros((1,), dtype=np.int64)).held(book).codes(book)
        return Held(
            held.element, expressions=swapped(held.codes(book), devices, exchange, int(zero[0]))
        )

    return Codes((x,), make, mixing=x.mixing)


def swapped(elements: Elements, devices: int, exchange: Exchange, zero: int = 0) -> Elements:
    """Return what each device gets of elements, of which ``zero`` stands for 0."""
    rows = np.broadcast_to(elements, (devices, *elements.shape[1:]))
    return np.stack([*exchange([*rows], np.full_like(rows[0], zero))])


def coded(
    element: ElementType, given: Sequence[Codes], code: Callable[..., Ints], *, mixing: int = 0
) -> Codes:
    """Return what a function of a codebook and the codes of other arrays gives.

    ``mixing``: that of the result, if it is more than that of the arrays.
    """

    def make(book: Codebook, held: Sequence[Held]) -> Held:
        found = code(book, *(each.codes(book) for each in held))
        return Held(element, expressions=found)

    return Codes(given, make, mixing=max(mixing, *(each.mixing for each in given)))


def leaf(shape: ArrayShape, rows: int, name: Hashable, places: Callable[[], Ints]) -> Codes:
    """Return the elements of something that is given, by their places in it.

    ``places`` gives them for each of ``rows`` devices, or of one that stands for all.
    """

    def make(book: Codebook, _: Sequence[Held]) -> Held:
        book.spend(rows * prod(shape.dimensions))
        return Held(shape.element, expressions=book.code(name, places()))

    return Codes((), make)
