"""Differences of outputs, and how much of one is rounding.

Where large numbers cancel, as in the gradients of a softmax that is nearly one-hot, two right ways
to compute an output differ by far more than the last digit. How much is measured on the reference:
it runs once more, with every result rounded at random.
"""

from __future__ import annotations

import math

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
"""A right plan differs by at most so many times what one such run differs by. It has other sums, in
another order; if it has more operators, it is so many times more.
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
    reference: Plan, inputs: dict[Instance, Array], expected: dict[Instance, Array], seed: int
) -> dict[str, float]:
    """Return, for every output of the reference, how far rounding moves it.

    ``expected`` is what the reference computes from ``inputs``, with memory of seed ``2 * seed``.
    """
    found = {output.tensor: 0.0 for output in reference.outputs}
    for run in range(RUNS):
        other = execute(reference, inputs, 2 * seed, np.random.default_rng([seed, 29, run]))
        for name, apart in found.items():
            whole = expected[name, 0, 0]
            found[name] = max(apart, distance(other[name, 0, 0], whole, whole))
    return found


def allowed(moved: float, reference: Plan, parallel: Plan) -> float:
    """Return the difference up to which an output of a right plan may be off by rounding.

    ``moved``: how far rounding moves it in the reference.
    """
    longer = max(1.0, len(parallel.operators) / max(1, len(reference.operators)))
    return min(MOST, ABOVE * longer * moved)
