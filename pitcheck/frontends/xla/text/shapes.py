"""The shapes of HLO: arrays of an element type, and tuples of shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import prod


class ElementType(StrEnum):
    """The type of an array's elements.

    A token and an opaque value are taken for arrays without dimensions.
    """

    PRED = "pred"
    S2 = "s2"
    S4 = "s4"
    S8 = "s8"
    S16 = "s16"
    S32 = "s32"
    S64 = "s64"
    U2 = "u2"
    U4 = "u4"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    F8E5M2 = "f8e5m2"
    F8E4M3 = "f8e4m3"
    F8E4M3FN = "f8e4m3fn"
    F8E4M3B11FNUZ = "f8e4m3b11fnuz"
    F8E5M2FNUZ = "f8e5m2fnuz"
    F8E4M3FNUZ = "f8e4m3fnuz"
    F8E3M4 = "f8e3m4"
    F8E8M0FNU = "f8e8m0fnu"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    C64 = "c64"
    C128 = "c128"
    TOKEN = "token"
    OPAQUE = "opaque"

    @property
    def is_integer(self) -> bool:
        """Return True for whole numbers, with or without a sign."""
        return self.value[0] in "su"

    @property
    def is_complex(self) -> bool:
        """Return True for complex numbers."""
        return self.value[0] == "c"

    @property
    def has_values(self) -> bool:
        """Return True unless it is a token or opaque."""
        return self not in (ElementType.TOKEN, ElementType.OPAQUE)


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """An array: the type of its elements, and its sizes. Layouts are no part of it."""

    element: ElementType
    dimensions: tuple[int, ...]

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return prod(self.dimensions)

    def __str__(self) -> str:
        return f"{self.element}[{','.join(map(str, self.dimensions))}]"


@dataclass(frozen=True, slots=True)
class TupleShape:
    """A tuple of shapes."""

    elements: tuple[Shape, ...]

    def __str__(self) -> str:
        """Return the first elements, with tuples among them left out: they may be large."""
        shown = ("(...)" if isinstance(one, TupleShape) else str(one) for one in self.elements[:4])
        more = f", ... {len(self.elements)} in all" if len(self.elements) > 4 else ""
        return f"({', '.join(shown)}{more})"


Shape = ArrayShape | TupleShape


def leaves(shape: Shape) -> Iterator[ArrayShape]:
    """Yield the arrays of a shape from left to right."""
    if isinstance(shape, ArrayShape):
        yield shape
    else:
        for element in shape.elements:
            yield from leaves(element)
