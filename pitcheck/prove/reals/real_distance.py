"""The distance of two results on real numbers, beyond rounding.

>>> distances(np.array([1.0, np.nan, np.nan]), np.array([1.5, np.nan, 0.0])).tolist()
[0.5, 0.0, inf]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pitcheck.algebra.value import Value
from pitcheck.prove.reals.trial_algebras import Bools
from pitcheck.stage.evaluate import Comparison

SAME = 1e-9
"""The relative difference, to the largest element of a trial and row, that counts as rounding
without a closer look.
"""


def of_trial(value: Value, index: int) -> Any:
    """Return the data of one trial, shape (rows, *shape)."""
    data = value.data[0]
    return data[index if len(data) > 1 else 0]


def distances(a: Any, b: Any) -> Any:
    """Return the distance of two arrays, element by element.

    NaN is infinitely far from a number. The distance of discrete values is 0 or 1.
    """
    if a.dtype.kind != "f":
        return (a != b).astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isnan(a) | np.isnan(b), np.inf, np.abs(a - b)))


def scales(a: Any, b: Any, axes: tuple[int, ...], limits: Sequence[float]) -> Any:
    """Return the largest number over ``axes`` beside every element of either array.

    NaN and infinity are left out. Below each of ``limits``, in descending order, it is the largest
    of those below it: what a mask fills in says nothing of the rounding of what it leaves. Return 0
    for discrete values.
    """
    if a.dtype.kind != "f":
        return 0.0
    finite = np.isfinite(a) & np.isfinite(b)
    size = np.maximum(np.abs(a), np.abs(b))
    scale = np.max(size, axis=axes, where=finite, initial=0.0, keepdims=True)
    for limit in limits:
        below = finite & (size < limit)
        scale = np.where(
            below, np.max(size, axis=axes, where=below, initial=0.0, keepdims=True), scale
        )
    return scale


def nan_on_one_side(a: Any, b: Any) -> Bools:
    """Return where one array is NaN and the other a number, as booleans of their shape."""
    found: Bools = (
        np.isnan(a) != np.isnan(b) if a.dtype.kind == "f" else np.zeros(a.shape, dtype=np.bool_)
    )
    return found


def unlike(a: Any, b: Any) -> Bools:
    """Return where two arrays are not both finite, nor the same, as booleans of their shape."""
    if a.dtype.kind != "f":
        return np.zeros(a.shape, dtype=np.bool_)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    found: Bools = ~(same | (np.isfinite(a) & np.isfinite(b)))
    return found


def clearly_apart(
    comparison: Comparison,
    defined: Bools,
    limits: Sequence[float],
    *,
    nan_demanded: bool,
    domains: bool = False,
) -> Bools:
    """Return the judged elements that differ by more than rounding usually does.

    The shape is (trials, rows, *shape). Infinite numbers are left to the residues, where they are
    values. A NaN on one side alone counts in the trials in which both sides should be ``defined``:
    in others, what was cut at may have values that it never has in the plans. One of the reference
    counts if it is ``nan_demanded``; else nothing is demanded there. With ``domains`` a NaN
    counts in every trial that the reference is a number or infinite, and the parallel side, where
    one of them is not finite, is something else.
    """
    a, b = np.broadcast_arrays(comparison.actual.data[0], comparison.expected.data[0])
    if comparison.expected.kind != "field":
        apart = a != b
    else:
        finite = np.isfinite(a) & np.isfinite(b)
        with np.errstate(all="ignore"):
            scale = scales(a, b, tuple(range(2, a.ndim)), limits)
            apart = finite & (np.abs(a - b) > SAME * scale)
        apart |= (
            nan_on_one_side(a, b)
            & ((nan_demanded & np.isfinite(a)) | np.isfinite(b))
            & defined[: len(a)].reshape(-1, *(1,) * (a.ndim - 1))
        )
        if domains:
            apart |= unlike(a, b) & ~np.isnan(b)
    result: Bools = apart & comparison.judged[:1]
    return result
