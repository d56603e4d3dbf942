"""Comparison of what two plans compute on real numbers, up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
TOLERANCE = 1e-8
"""The relative difference up to which two elements count as equal."""
CANCELLED = 1e-13
"""The share of a value's largest element below which an element may be what rounding leaves of
zero. Such remains differ between the plans.
"""


def varies(data: Floats) -> bool:
    """Return True if finite numbers, shape (trials, ...), differ between trials 0 and 1.

    What does not vary is a constant. It matches by accident and is never cut at.
    """
    return (
        data.shape[0] > 1
        and data[0].size > 0
        and bool(np.isfinite(data).all())
        and not np.array_equal(data[0], data[1])
    )


def tells(data: Floats) -> bool:
    """Return True if trial 0 is finite and some other finite trial differs from it.

    A trial may be NaN from the loss on, for example if no token counts in it.
    """
    if data.shape[0] < 2 or not data[0].size or not np.isfinite(data[0]).all():
        return False
    return any(
        bool(np.isfinite(other).all()) and not np.array_equal(data[0], other) for other in data[1:]
    )


def largest_place(flat: Floats) -> int:
    """Return the place of the largest element, of those that do not fill a mask if there are any.

    An element fills a mask if it is the largest, and not the only one.
    """
    sizes = np.abs(flat)
    largest = sizes == sizes.max()
    return int(sizes.argmax() if largest.sum() == 1 else np.where(largest, -1.0, sizes).argmax())


def agree(a: Floats, b: Floats) -> bool:
    """Return True if two arrays agree up to ``TOLERANCE`` times the largest element of ``b``.

    Elements that are exactly the same say nothing of the others' size: they may fill a mask. But
    what rounding leaves of zero is as large as it may be beside them.
    """
    same = a == b
    if same.all():
        return True
    finite = np.where(np.isfinite(b), np.abs(b), 0.0)
    rounded = float((finite * ~same).max())
    flat = finite.reshape(-1)
    remains = CANCELLED * float(flat[largest_place(flat)])
    limit = max(TOLERANCE * rounded, remains, TOLERANCE * 1e-300)
    with np.errstate(invalid="ignore"):
        close = (np.abs(a - b) <= limit) | same
    return bool(close.all()) or bool((close | (np.isnan(a) & np.isnan(b))).all())


ROUNDING = 1e-13
"""The part of the largest magnitude of all trials below which a number is a rest of rounding."""


def seen_differences(actual: Any, expected: Any) -> Floats:
    """Return ``real_differences``, but 0 where both numbers are rests of rounding.

    A result that is exactly 0 in some trial is 1e-19 there, and differs from itself in any other
    order of the same sums.
    """
    found = real_differences(actual, expected)
    both = [np.abs(np.asarray(each.data, dtype=np.float64)[0]) for each in (actual, expected)]
    with np.errstate(invalid="ignore"):
        largest = np.maximum(*both)
        whole = np.max(largest, where=np.isfinite(largest), initial=0.0)
        return np.where(largest < ROUNDING * whole, 0.0, found)


def real_differences(comparison_actual: Any, comparison_expected: Any) -> Floats:
    """Return the relative difference of every element, shape (trials, rows, *shape).

    It is |a - b| divided by the largest finite magnitude of the trial.
    """
    actual = np.asarray(comparison_actual.data, dtype=np.float64)[0]
    expected = np.asarray(comparison_expected.data, dtype=np.float64)[0]
    actual, expected = np.broadcast_arrays(actual, expected)
    both = np.abs(np.stack([actual, expected])).reshape(2, len(actual), -1)
    scale = np.max(both, axis=(0, 2), where=np.isfinite(both), initial=1e-300).reshape(
        -1, *(1,) * (actual.ndim - 1)
    )
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    with np.errstate(invalid="ignore"):
        return np.where(
            same, 0.0, np.nan_to_num(np.abs(actual - expected) / scale, nan=np.inf, posinf=np.inf)
        )
