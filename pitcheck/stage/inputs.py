"""The inputs of a stage at definite sizes, as data.

They say what is drawn for the reference, and which parts of it the parallel plan holds.

>>> box = (((0, 2),),)
>>> Derived("y", 0, (box,), ((0, 0, 1), (0, 0, 1)), Fraction(1)).cells
4
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from pitcheck.algebra.interface import Kind
from pitcheck.graph.cuts import FREE, Box, length


@dataclass(frozen=True)
class Fresh:
    """A reference tensor to draw: its key, reduced shape, kind and domain.

    Integers lie between ``bounds`` (half-open), with ``marks`` among them.
    """

    key: str
    shape: tuple[int, ...]
    kind: Kind
    domain: str = "any"
    bounds: tuple[int, int] | None = None
    marks: tuple[int, ...] = ()
    numbers: tuple[Fraction, ...] = ()
    """The numbers that fill it in every trial, if it is not drawn."""
    loads: tuple[tuple[int, int], ...] = ()
    """The pairs (integer, number of elements that hold it) that must be tried, if counts decide
    something. The integer is 1 for booleans.
    """
    cases: tuple[np.ndarray[Any, np.dtype[np.int64]], ...] = field(default=(), compare=False)
    """Definite numbers of the whole tensor, each tried in a trial of its own."""
    rare: tuple[int, ...] = ()
    """Integers of which something computed decides, for draws that mix them with the marks."""
    unread: bool = False
    """True if its shape alone matters: integers and booleans are not drawn then."""


@dataclass(frozen=True)
class Padding:
    """The range of free integers (half-open), and those filled in, one every second trial."""

    bounds: tuple[int, int]
    marks: tuple[int, ...]


@dataclass(frozen=True)
class Derived:
    """The rows of a parallel value: the part of reference tensor ``source`` that each row holds.

    ``boxes`` are at reduced sizes.
    """

    key: str
    source: int
    boxes: tuple[Box, ...]
    terms: tuple[tuple[int, int, int], ...]
    """(box number, term, number of terms) of every row."""
    scale: Fraction
    padding: Padding | None = None
    """The range of free integers; None for those that nothing is compared with."""

    @property
    def is_padded(self) -> bool:
        """Return True if some box has free elements."""
        return any(
            start == FREE for box in self.boxes for intervals in box for start, _ in intervals
        )

    @cached_property
    def cells(self) -> int:
        """Return the number of elements over all rows."""
        sizes = [prod(sum(length(i) for i in intervals) for intervals in box) for box in self.boxes]
        return sum(sizes[box] for box, _, _ in self.terms)

    @cached_property
    def places(self) -> tuple[np.ndarray[Any, np.dtype[np.int64]], ...] | None:
        """Return the places that every row holds, per dimension, shape (rows, size).

        Return None if rows differ in shape, have padding, or are terms.
        """
        if any(i[0] < 0 for box in self.boxes for intervals in box for i in intervals) or any(
            terms != 1 for _, _, terms in self.terms
        ):
            return None
        if (
            not self.boxes[0]
            or len({tuple(sum(map(length, intervals)) for intervals in box) for box in self.boxes})
            != 1
        ):
            return None
        rows = [box for box, _, _ in self.terms]
        return tuple(
            np.stack([_held(intervals) for intervals in column])[rows]
            for column in zip(*self.boxes, strict=True)
        )


def _held(intervals: Sequence[tuple[int, int]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the places in some intervals."""
    return np.concatenate([np.arange(start, stop, dtype=np.int64) for start, stop in intervals])
