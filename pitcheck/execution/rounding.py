"""Differences of outputs, and how much of one is rounding.

Where large numbers cancel, as in the gradients of a softmax that is nearly one-hot, two right ways
to compute an output differ by far more than the last digit. How much is measured on both plans:
each runs once more, with every result rounded at random. So a ring of many ranks, which merges many
parts by their exponentials, may round more than the reference does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from pitcheck.execution.executor import Array, Instance, execute
from pitcheck.plan.model import Plan

SMALL = 1e-3
"""Magnitude that is taken for the largest of an output where that is smaller: of a gradient that is
0 in truth there is nothing but rounding.
"""
RUNS = 2
"""The runs of which the largest difference counts."""
ABOVE = 100
"""A right plan differs by at most so many times what such a run differs by: last digits are drawn
there, and those of sums in one order may all go one way.
"""
MOST = 1e-6
"""The largest difference that is ever taken for rounding."""


def distance(a: Array, b: Array, whole: Array) -> float:
    """Return the largest difference, as a share of the largest finite magnitude, or of ``SMALL``.

    NaN equals NaN, and an infinity the same infinity.
    """
    finite = np.abs(whole[np.isfinite(whole)])
    scale = max(float(finite.max()), SMALL) if finite.size else 1.0
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    known = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~known], b[~known], equal_nan=True):
        return math.inf
    return float(np.abs(a[known] - b[known]).max(initial=0.0)) / scale


def noise(
    plan: Plan,
    inputs: dict[Instance, Array],
    found: dict[Instance, Array],
    seeds: tuple[int, int],
    scales: Mapping[str, Array],
) -> dict[str, float]:
    """Return how far rounding moves some tensors of a plan, as shares of the largest elements.

    ``found`` is what the plan computes from ``inputs`` with memory of the second of the ``seeds``.
    ``scales`` has a value for each tensor, of which the largest element counts.
    """
    moved = dict.fromkeys(scales, 0.0)
    for run in range(RUNS):
        drawn = np.random.default_rng([seeds[0], 29, run])
        other = execute(plan, inputs, seeds[1], drawn)
        for (name, rank, microbatch), value in found.items():
            if name in moved:
                apart = distance(other[name, rank, microbatch], value, scales[name])
                moved[name] = max(moved[name], apart)
    return moved


def allowed(*moved: float) -> float:
    """Return the difference up to which an output of a right plan may be off by rounding.

    ``moved``: how far rounding moves it in either plan.
    """
    return min(MOST, ABOVE * max(moved))
