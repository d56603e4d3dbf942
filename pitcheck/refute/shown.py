"""The evidence that an output differs: one element of it, in another arithmetic than float64.

Exit code 1 needs such evidence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pitcheck.claims.real_numbers import real_differences
from pitcheck.graph.cuts import Interval
from pitcheck.refute.whole_run import WholeRun
from pitcheck.report.report import Shown
from pitcheck.stage.evaluate import Comparison

DISTURBED = (
    "float64 with other last digits of every result, which change less than a "
    "ten-thousandth of the difference"
)
"""The words for the arithmetic of float64 with disturbed digits."""
ENOUGH = (9, 17, 40, 80, 160, 320, 640)
"""The numbers of digits that may distinguish two values, ascending."""


def shown_by_digits(
    run: WholeRun, comparison: Comparison, number: int, place: int, arithmetic: str
) -> Shown:
    """Return the element at flat ``place`` of one trial of a comparison with many digits."""
    actual, expected = np.broadcast_arrays(
        comparison.actual.data[0, :1], comparison.expected.data[0, :1]
    )
    index = tuple(int(i) for i in np.unravel_index(place, actual.shape))
    reference, parallel = _apart(expected[index], actual[index], comparison.actual.kind)
    return Shown(
        comparison.target.name,
        element_of(run, number, comparison, index),
        reference,
        parallel,
        arithmetic,
    )


def shown_by_noise(run: WholeRun, number: int) -> Shown:
    """Return the finite element that differs most in an output.

    Disturbing float64's last digits moves no element of that output as far.
    """
    comparison = run.comparisons[number]
    differences = real_differences(comparison.actual, comparison.expected)
    place = np.unravel_index(
        int(
            np.argmax(np.where(comparison.judged[:1] & np.isfinite(differences), differences, -1.0))
        ),
        differences.shape,
    )
    index = tuple(int(i) for i in place)
    pair = (
        np.broadcast_to(np.asarray(v.data, dtype=np.float64)[0], differences.shape)[index]
        for v in (comparison.expected, comparison.actual)
    )
    reference, parallel = (f"{float(x):.17g}" for x in pair)
    return Shown(
        comparison.target.name,
        element_of(run, number, comparison, index),
        reference,
        parallel,
        DISTURBED,
    )


def element_of(
    run: WholeRun, number: int, comparison: Comparison, index: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the place in the reference's tensor of (trial, compared row, *place in the part)."""
    box = run.shaped.boxes[number][int(comparison.parts[index[1]])]
    return tuple(global_place(i, intervals) for i, intervals in zip(index[2:], box, strict=True))


def global_place(local: int, intervals: tuple[Interval, ...]) -> int:
    """Return the place along a reference dimension of the ``local``-th element of intervals."""
    for start, stop in intervals:
        size = stop - start if start >= 0 else stop
        if local < size:
            return start + local
        local -= size
    return local


def _apart(reference: Any, parallel: Any, kind: str) -> tuple[str, str]:
    """Return two numbers with as many digits as distinguish them."""
    if kind != "field":
        return str(int(reference)), str(int(parallel))
    for digits in ENOUGH:
        shown = reference.context.nstr(reference, digits), parallel.context.nstr(parallel, digits)
        if shown[0] != shown[1]:
            break
    return shown
