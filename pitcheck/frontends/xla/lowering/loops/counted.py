"""Scalars that the counter of a loop decides, where the loop is not followed.

Such a scalar has one number in each iteration: 125 less the counter, say. It is an input of both
plans, as the counter is, and may be any number from its least to its largest. What is proven of all
of these holds in each iteration. So a place that counts down is a place, as one that counts up is,
and as few layers may stand for many as with any other dimension.

Two such scalars are one if they have the same numbers. A scalar of a partitioned program that the
reference does not have is made by its operator.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from pitcheck.frontends.xla.lowering.arrays import NUMPY, Array, Counted, Numbers, Span, dtype_of
from pitcheck.frontends.xla.lowering.building import Building
from pitcheck.frontends.xla.lowering.known_numbers import computed
from pitcheck.frontends.xla.lowering.random.bits import direction_of
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape
from pitcheck.plan.model import Lineage, Tensor

MOST_ITERATIONS = 1 << 22
"""The iterations up to which the numbers of scalars are computed."""


class CountedScalars:
    """The scalars of the reference that counters decide."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Array] = {}

    def scalar(self, b: Building, shape: ArrayShape, counted: Counted) -> Array:
        """Return the scalar that has some numbers."""
        key = _key(shape, counted)
        if key not in self._known:
            name = b.unused(f"{b.stem} (counted)")
            self._known[key] = _given(b, name, shape, counted)
        return self._known[key]

    def known(self, shape: ArrayShape, counted: Counted) -> Array | None:
        """Return the scalar that has some numbers; None if there is none."""
        return self._known.get(_key(shape, counted))

    def made(self) -> list[Array]:
        """Return those of which the plan has a tensor."""
        return [array for array in self._known.values() if array.is_made]


class PartitionedCountedScalars:
    """The scalars of a partitioned program that counters decide: each device holds the number."""

    def __init__(self, reference: CountedScalars) -> None:
        self._reference = reference
        self._held: dict[Array, Array] = {}

    def scalar(self, b: Building, shape: ArrayShape, counted: Counted) -> Array | None:
        """Return the scalar that has some numbers; None if the reference has none."""
        whole = self._reference.known(shape, counted)
        return None if whole is None else self._part(b, whole, counted)

    def hold_rest(self, b: Building) -> None:
        """Give the plan the scalars that no device reads. The program does not need them."""
        for whole in self._reference.made():
            if whole.counted is not None:
                self._part(b, whole, whole.counted).made()

    def _part(self, b: Building, whole: Array, counted: Counted) -> Array:
        if whole not in self._held:
            self._held[whole] = _given(b, "", whole.shape, counted, whole)
        return self._held[whole]


def counted(counter: str, first: int, limit: int, shape: ArrayShape) -> Counted | None:
    """Return the numbers of a loop's counter, from the first up to the limit; None if too many.

    ``counter`` is the tensor that the plan is given: two loops may have one name.
    """
    if limit - first > MOST_ITERATIONS:
        return None
    return Counted(counter, np.arange(first, limit, dtype=NUMPY[shape.element]))


def steps(counter: Counted, start: int, step: int, shape: ArrayShape) -> Counted:
    """Return the numbers of an integer to which each iteration adds a number; they may wrap."""
    kind = NUMPY[shape.element]
    iterations: Numbers = np.arange(len(counter.numbers)).astype(kind)
    with np.errstate(over="ignore"):
        numbers: Numbers = np.array(start).astype(kind) + np.array(step).astype(kind) * iterations
    return Counted(counter.counter, numbers)


def counted_by(
    instruction: Instruction, shape: ArrayShape, operands: Sequence[Array]
) -> Counted | None:
    """Return the numbers of an integer that the counter of one loop decides.

    Return None for any other result of an elementwise operator.
    """
    counters = {a.counted.counter for a in operands if a.counted is not None}
    if len(counters) != 1 or shape.dimensions or not shape.element.is_integer:
        return None
    given = [numbers for numbers in map(_numbers, operands) if numbers is not None]
    if len(given) < len(operands):
        return None
    numbers = computed(instruction.opcode, given, shape, direction_of(instruction))
    return None if numbers is None else Counted(counters.pop(), numbers)


def scalar_of(
    b: Building, shape: ArrayShape, numbers: Counted, operands: Sequence[Array]
) -> Array | None:
    """Return the scalar that has some numbers; None if its operator must make it."""
    found = numbers.numbers
    if bool((found == found[0]).all()):
        return b.known(shape, found[:1])
    for a in operands:
        if a.shape == shape and a.counted and np.array_equal(a.counted.numbers, found):
            return a
    return None if b.counting is None else b.counting.scalar(b, shape, numbers)


@contextmanager
def by_operators(b: Building, *, asked: bool) -> Iterator[None]:
    """Make scalars by their operators meanwhile, if asked for."""
    before = b.counting
    b.counting = None if asked else before
    try:
        yield
    finally:
        b.counting = before


def _numbers(a: Array) -> Numbers | None:
    """Return the number of a scalar in each iteration, or in all; None if it is not known."""
    if a.counted is not None:
        return a.counted.numbers
    return a.known if a.known is not None and len(a.known) == 1 else None


def _key(shape: ArrayShape, counted: Counted) -> Hashable:
    return shape, counted.counter, counted.numbers.tobytes()


def _given(
    b: Building, name: str, shape: ArrayShape, counted: Counted, whole: Array | None = None
) -> Array:
    """Return a scalar that the plan is given once it is read.

    ``whole``: the reference's, of which it is a replica and has the name; None in the reference.
    """
    span: Span = int(counted.numbers.min()), int(counted.numbers.max()) + 1

    def made() -> str:
        lineage = None if whole is None else Lineage(whole.name)
        called = name if whole is None else b.unused(whole.name)
        b.tensors[called] = Tensor(
            called, b.stated(shape), dtype_of(shape.element), "input", lineage=lineage, bounds=span
        )
        return called

    found = Array(shape, made, span=span)
    found.counted = counted
    return found
