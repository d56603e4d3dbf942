"""Tensors that a plan is given: parameters, and constants of too many numbers to be written.

Such a constant (a table of cosines, a mask) is an input of both plans, which hold the same. What is
proven for any numbers in its place holds for its own; a difference says nothing then.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.xla.lowering.arrays import Array, Span, dtype_of
from pitcheck.frontends.xla.lowering.building import MOST_LISTED, Building, Elements
from pitcheck.frontends.xla.lowering.placement import lineage_of
from pitcheck.frontends.xla.text.shapes import ArrayShape
from pitcheck.frontends.xla.text.sharding import Sharding
from pitcheck.plan.model import Lineage, Tensor


def given(
    b: Building,
    stem: str,
    whole: ArrayShape,
    sharding: Sharding | None,
    place: str,
    bounds: Span | None = None,
    *,
    bounded: bool = True,
) -> Array:
    """Return an array that the plan is given: all of it, or on each device the part it holds.

    ``stem`` is its name if no other has it. ``bounds``: the half-open range of its integers.
    ``bounded``: False if they lie there only where the plan has a tensor of them, which is made
    when it is asked for.

    Raises:
        UnsupportedError: for a sharding that plans cannot state.
        PlanError: for one that does not fit the array.
    """
    name = b.unused(stem)
    lineage, sizes = None, whole.dimensions
    if b.devices > 1:
        lineage, sizes = lineage_of(name, sizes, sharding, b.devices, place)
    shape = ArrayShape(whole.element, sizes)

    def made() -> str:
        dtype, stated = dtype_of(shape.element), b.stated(shape)
        b.tensors[name] = Tensor(name, stated, dtype, "input", lineage=lineage, bounds=bounds)
        return name

    found = Array(shape, made, span=bounds if bounded else None)
    if bounded:
        found.made()
    return found


@dataclass(frozen=True)
class Constant:
    """A constant that the reference is given.

    Attributes:
        name: the tensor.
        shape: its element type and its sizes.
        span: the least integer, and one above the largest; None for other types.
    """

    name: str
    shape: ArrayShape
    span: Span | None


class Constants:
    """The constants that the reference is given, by shapes and elements."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Constant] = {}

    @property
    def all(self) -> Iterable[Constant]:
        """Return all of them."""
        return self._known.values()

    def tensor(self, b: Building, shape: ArrayShape, elements: Elements) -> str:
        """Return the input that holds a constant."""
        found = self.with_elements(shape, elements)
        if found is None:
            span = _span(elements) if shape.element.is_integer else None
            found = Constant(b.unused(f"{b.stem} (constant)"), shape, span)
            self._known[shape, _key(elements)] = found
            _hold(b, found.name, found, None)
        return found.name

    def with_elements(self, shape: ArrayShape, elements: Elements) -> Constant | None:
        """Return the constant with some elements; None if there is none."""
        return self._known.get((shape, _key(elements)))


class PartitionedConstants:
    """The constants of a partitioned program: each device holds all of those of the reference."""

    def __init__(self, reference: Constants) -> None:
        self._reference = reference
        self._names: dict[str, str] = {}

    def tensor(self, b: Building, shape: ArrayShape, elements: Elements) -> str:
        """Return the input that holds a constant. Raises UnsupportedError for one of its own."""
        found = self._reference.with_elements(shape, elements)
        if found is None:
            raise UnsupportedError(
                f"{b.place}: a constant {shape} that the program before it was partitioned does "
                f"not have; one of up to {MOST_LISTED} numbers would be followed"
            )
        return self._held(b, found)

    def hold_rest(self, b: Building) -> None:
        """Give the plan the constants that no device holds. The program does not need them."""
        for constant in self._reference.all:
            self._held(b, constant)

    def _held(self, b: Building, constant: Constant) -> str:
        if constant.name not in self._names:
            name = b.unused(constant.name)
            self._names[constant.name] = name
            _hold(b, name, constant, Lineage(constant.name))
        return self._names[constant.name]


def _key(elements: Elements) -> Hashable:
    return elements if isinstance(elements, tuple) else elements.tobytes()


def _span(elements: Elements) -> Span:
    """Return the least integer, and one above the largest."""
    numbers = np.asarray(elements)
    return int(numbers.min()), int(numbers.max()) + 1


def _hold(b: Building, name: str, constant: Constant, lineage: Lineage | None) -> None:
    sizes, dtype = b.stated(constant.shape), dtype_of(constant.shape.element)
    b.tensors[name] = Tensor(name, sizes, dtype, "input", lineage=lineage, bounds=constant.span)
