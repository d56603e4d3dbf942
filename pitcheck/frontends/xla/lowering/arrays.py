"""Values in the making: arrays with what is known of their numbers, and tuples of them.

Integers and truths that do not depend on inputs are computed while a program is read, for each
device: where a slice begins is known, and is no tensor of a plan. An array becomes a tensor when an
operator reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pitcheck.base.numbers import Root
from pitcheck.errors import UnsupportedError
from pitcheck.frontends.xla.lowering.random.codes import Codes, of_numbers, of_real
from pitcheck.frontends.xla.text.literals import Special
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType, Shape, TupleShape

MOST_KNOWN = 1 << 20
"""The numbers of an array, over all devices, up to which they are computed."""

NUMPY = {
    ElementType.PRED: np.bool_,
    ElementType.S8: np.int8,
    ElementType.S16: np.int16,
    ElementType.S32: np.int32,
    ElementType.S64: np.int64,
    ElementType.U8: np.uint8,
    ElementType.U16: np.uint16,
    ElementType.U32: np.uint32,
    ElementType.U64: np.uint64,
}
"""The types whose numbers are computed. NumPy's arithmetic wraps as XLA's does."""

DTYPES = {
    ElementType.PRED: "bool",
    ElementType.S8: "int8",
    ElementType.S16: "int16",
    ElementType.S32: "int32",
    ElementType.S64: "int64",
    ElementType.U8: "uint8",
    ElementType.U16: "int32",
    ElementType.U32: "int64",
    ElementType.F16: "float16",
    ElementType.BF16: "bfloat16",
    ElementType.F32: "float32",
    ElementType.F64: "float64",
    ElementType.F8E4M3FN: "float8_e4m3",
    ElementType.F8E5M2: "float8_e5m2",
}
"""The dtype of a plan for each element type; unsigned integers have the next larger signed one."""

Numbers: TypeAlias = NDArray[Any]
Span: TypeAlias = tuple[int, int]
Real: TypeAlias = Fraction | Root | Special
"""A floating-point number of a program, as it is meant."""


def dtype_of(element: ElementType) -> Any:
    """Return the dtype that a plan has for an element type.

    Raises UnsupportedError if plans have none.
    """
    if element not in DTYPES:
        raise UnsupportedError(f"elements of type {element} have no meaning in a plan")
    return DTYPES[element]


def width_of(element: ElementType) -> int:
    """Return the number of bits of integers of a type; 1 for truths."""
    return 1 if element is ElementType.PRED else int(element.value[1:])


def limits(element: ElementType) -> Span:
    """Return the span of all integers of a type."""
    bits = width_of(element)
    return (0, 1 << bits) if element.value[0] == "u" else (-(1 << (bits - 1)), 1 << (bits - 1))


class Told(Enum):
    """A fact that an array tells of another one, of natural numbers, element by element."""

    SIGN = "it is 1 where the other is not 0, else 0"
    REMAINDER = "it is not 0 only where the other is not 0"
    ZERO = "it is true only where the other is 0"
    MORE = "it is true only where the other is not 0"


@dataclass(frozen=True, eq=False)
class Counted:
    """The numbers of a scalar that the counter of a loop decides, which is not followed.

    Attributes:
        counter: the tensor that both plans are given as the counter.
        numbers: the number in each iteration, shape (iterations,).
    """

    counter: str
    numbers: Numbers


class Array:
    """An array in the making.

    Attributes:
        shape: its element type and its sizes.
        known: its numbers on each device, shape (devices or 1, *sizes); None if they are not
            known, or of a floating-point type.
        number: the floating-point number that each element is; None if it is not known.
        span: the least integer, and one above the largest, that an element may be. Of integers
            of which nothing is known it is that of their type; None for truths and others.
        shown: the array whose elements it shows, row by row, in other sizes; None if there is none.
        parts: the arrays that it joins along ``axis``; () if it joins none.
        moved: the array of integers from which one number was subtracted on each device, and these
            numbers; None if it is no such difference.
        gathered: the array whose elements it holds, those of other devices among them; None if it
            is not looked into.
        fact: what it tells of another array; None if nothing is known of that.
        places: the array, and its axis, of which some of the integers are places on each device,
            and others lie before or behind; None if none is known (yet).
        counted: its number in each iteration of a loop; None if it is no such scalar.
        codes: the expression that each element is; None if that is not followed.
        drawn: True if it is one of random numbers, or others that only their codes tell: its
            tensor is an input of the plan, or made of one.
    """

    def __init__(
        self,
        shape: ArrayShape,
        make: Callable[[], str],
        *,
        known: Numbers | None = None,
        number: Real | None = None,
        span: Span | None = None,
        shown: Array | None = None,
        parts: Sequence[Array] = (),
        axis: int = 0,
        codes: Codes | None = None,
        drawn: bool = False,
    ) -> None:
        self.shape = shape
        self.known = known
        self.number = number
        if known is not None and known.size:
            span = _span(known)
        elif span is None and shape.element.is_integer:
            span = limits(shape.element)
        self.span = span
        self.shown = shown
        self.parts = parts
        self.axis = axis
        self.moved: tuple[Array, tuple[int, ...]] | None = None
        self.gathered: Array | None = None
        self.fact: tuple[Told, Array] | None = None
        self.places: tuple[Array, int] | None = None
        self.counted: Counted | None = None
        self.codes = codes
        if known is not None:
            self.codes = of_numbers(shape.element, known)
        elif number is not None:
            self.codes = of_real(shape, number)
        self.drawn = drawn
        self._make = make
        self._name: str | None = None

    @property
    def name(self) -> str:
        """The tensor that holds the array, which is made when it is first asked for."""
        return self.made()

    def made(self) -> str:
        """Return the tensor that holds the array; make it unless it is there."""
        if self._name is None:
            self._name = self._make()
        return self._name

    @property
    def is_made(self) -> bool:
        """True if the array is a tensor already."""
        return self._name is not None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return self.shape.dimensions

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape.dimensions)

    @property
    def is_integer(self) -> bool:
        """True for whole numbers, and not for truths."""
        return self.shape.element.is_integer

    @property
    def uniform(self) -> int | bool | Real | None:
        """The number that each element is on every device, None if there is none."""
        if self.known is not None and self.known.size:
            first = self.known.reshape(-1)[0]
            return first.item() if bool((self.known == first).all()) else None
        return self.number

    @property
    def per_device(self) -> tuple[int, ...] | None:
        """The number of a scalar, or of each element, on each device; None if it is not known."""
        if self.known is None or not self.known.size:
            return None
        flat = self.known.reshape(len(self.known), -1)
        if not bool((flat == flat[:, :1]).all()):
            return None
        return tuple(int(number) for number in flat[:, 0])

    def within(self, low: int, high: int) -> bool:
        """Return True if each element is known to lie in [low, high)."""
        return self.span is not None and low <= self.span[0] and self.span[1] <= high


@dataclass(frozen=True)
class Tuple:
    """A tuple in the making."""

    elements: tuple[Value, ...]


@dataclass(frozen=True)
class Copies:
    """An array of a manual region, which differs between devices.

    Attributes:
        arrays: that of each device.
        groups: the number of the group that each device is in. Devices of one group hold one array.
    """

    arrays: tuple[Array, ...]
    groups: tuple[int, ...]


Value: TypeAlias = Array | Copies | Tuple


def shape_of(value: Value) -> Shape:
    """Return the shape of an array or a tuple."""
    if isinstance(value, Array):
        return value.shape
    if isinstance(value, Copies):
        return value.arrays[0].shape
    return TupleShape(tuple(shape_of(element) for element in value.elements))


def arrays_of(value: Value) -> Iterator[Array | Copies]:
    """Yield the arrays of a value from left to right."""
    if isinstance(value, Tuple):
        for element in value.elements:
            yield from arrays_of(element)
    else:
        yield value


def uniform_of(value: Value) -> object:
    """Return the number that each element is on every device, None if there is none."""
    if isinstance(value, Array):
        return value.uniform
    if isinstance(value, Copies):
        numbers = {array.uniform for array in value.arrays}
        return numbers.pop() if len(numbers) == 1 else None
    return None


def _span(known: Numbers) -> Span:
    return int(known.min()), int(known.max()) + 1
