"""Rows of an output that hold what belongs in other rows: each is named with the row it holds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pitcheck.claims.real_numbers import Floats
from pitcheck.explain.evidence import SAME, Evidence
from pitcheck.explain.held_values import whole_place
from pitcheck.explain.observations.observation import numbers_of

FEWEST = 2
"""Rows that must be told apart: where all are alike, nothing says which one a rank holds."""
MOST_ROWS = 4096
"""Rows of an output, over all ranks, up to which they are looked up."""


def moved_rows(evidence: Evidence, number: int) -> str:
    """Return as text the first row of an output that holds another row.

    It is "" unless all wrong rows do. Rows run along any dimension that the run has in full, so
    that their numbers are the program's.
    """
    comparison = evidence.run.comparisons[number]
    actual, expected = np.broadcast_arrays(
        numbers_of(comparison.actual), numbers_of(comparison.expected)
    )
    shape = evidence.second.values[comparison.target.cut.value].shape
    if actual.ndim != len(shape) + 2 or not comparison.judged.all():
        return ""
    for axis in range(len(shape)):
        in_full = actual.shape[axis + 2] == shape[axis]
        found = dict(_moved(evidence, number, actual, expected, axis)) if in_full else {}
        if found:
            row, held = next(iter(found.items()))
            kind = ("row", "column")[axis] if len(shape) == 2 else f"along dimension {axis}, place"
            told = (
                f"; {kind} {row} of {comparison.target.name!r} holds what belongs in {kind} {held}"
            )
            more = len(found) - 1
            return f"{told}, and {more} more {'is' if more == 1 else 'are'} moved" if more else told
    return ""


def _moved(
    evidence: Evidence, number: int, actual: Floats, expected: Floats, axis: int
) -> Iterator[tuple[int, int]]:
    """Yield (row, the row that it holds) of all wrong rows along an axis; nothing if one is no row.

    The arrays have shape (trials, compared rows, *shape).
    """
    own, due = (_lines(array, axis) for array in (actual, expected))
    scale = float(np.abs(due).max(initial=0.0))
    rows = [_row(evidence, number, place, actual.shape, axis) for place in range(own.shape[1])]
    holders: dict[bytes, set[int]] = {}
    for place, row in enumerate(rows if len(rows) <= MOST_ROWS else ()):
        holders.setdefault(_key(due[:, place], scale), set()).add(row)
    found = []
    for place, row in enumerate(rows if len(holders) >= FEWEST else ()):
        if not np.abs(own[:, place] - due[:, place]).max() <= SAME * scale:
            held = holders.get(_key(own[:, place], scale), set())
            if len(held) != 1:
                return
            found.append((row, next(iter(held))))
    yield from found


def _lines(array: Floats, axis: int) -> Floats:
    """Return the rows along an axis of all compared rows, shape (trials, rows, elements)."""
    moved = np.moveaxis(array, axis + 2, 2)
    return moved.reshape(len(array), moved.shape[1] * moved.shape[2], -1)


def _row(evidence: Evidence, number: int, place: int, shape: tuple[int, ...], axis: int) -> int:
    """Return the number of a row in the whole tensor."""
    compared, row = divmod(place, shape[axis + 2])
    at = [0] * (len(shape) - 2)
    at[axis] = row
    return whole_place(evidence.run, number, (0, compared, *at))[axis]


def _key(row: Floats, scale: float) -> bytes:
    """Return a key that is equal for rows that differ by rounding."""
    return np.round(row / (scale or 1.0), 9).tobytes()
