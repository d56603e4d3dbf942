"""The inputs of a stage at definite sizes, as data: what is drawn for the reference, and which
parts of it the parallel plan holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from pitcheck.algebra.interface import Kind
from pitcheck.graph.cuts import FREE, Box, length


@dataclass(frozen=True)
class Fresh:
    """A reference tensor to draw: its key, reduced shape, kind, domain; integers between
    ``bounds``, among them ``marks``.
    """

    key: str
    shape: tuple[int, ...]
    kind: Kind
    domain: str = "any"
    bounds: tuple[int, int] | None = None
    marks: tuple[int, ...] = ()
    numbers: tuple[Fraction, ...] = ()
    """What it is filled with in every trial, where it is not drawn."""
    loads: tuple[tuple[int, int], ...] = ()
    """Pairs (integer, how many elements hold it) that must be tried, where what is counted decides
    something; of booleans the integer is 1.
    """
    unread: bool = False
    """Whether its shape alone matters: integers and booleans are not drawn then."""


@dataclass(frozen=True)
class Padding:
    """Between which ``bounds`` free integers lie (half-open), and which of them are filled in one
    after the other: one in every second trial.
    """

    bounds: tuple[int, int]
    marks: tuple[int, ...]

    @property
    def trials(self) -> int:
        """How many trials in a row have each of the marks once."""
        return 2 * len(self.marks)


@dataclass(frozen=True)
class Derived:
    """Rows of a parallel value: for every row the part of reference tensor ``source`` that it
    holds, in boxes at reduced sizes.
    """

    key: str
    source: int
    boxes: tuple[Box, ...]
    terms: tuple[tuple[int, int, int], ...]
    """(box number, term, number of terms) of every row."""
    scale: Fraction
    padding: Padding | None = None
    """Of integers, what free elements may be; None for those that nothing is compared with."""

    @property
    def is_padded(self) -> bool:
        """Whether some box has free elements."""
        return any(
            start == FREE for box in self.boxes for intervals in box for start, _ in intervals
        )

    @cached_property
    def cells(self) -> int:
        """Number of elements over all rows."""
        sizes = [prod(sum(length(i) for i in intervals) for intervals in box) for box in self.boxes]
        return sum(sizes[box] for box, _, _ in self.terms)

    @cached_property
    def places(self) -> tuple[np.ndarray[Any, np.dtype[np.int64]], ...] | None:
        """Per dimension which places every row holds, (rows, size), if all rows are of one shape,
        without padding, and none is a term; else None.
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
    return np.concatenate([np.arange(start, stop, dtype=np.int64) for start, stop in intervals])
