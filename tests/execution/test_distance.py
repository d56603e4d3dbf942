"""The distance of two outputs.

Rounding of a number that is 0 in truth is no distance; a change of a small output is one.
"""

from __future__ import annotations

import numpy as np
import pytest

from pitcheck.execution.judge import TOLERANCE, distance


@pytest.mark.parametrize(
    ("whole", "other", "apart"),
    [
        ([1.0, 2.0], [1.0, 2.0 + 1e-12], False),
        ([1.0, 2.0], [1.0, 2.0 + 1e-8], True),
        # The gradient of a bias that every score has is 0; what float64 makes of it is rounding.
        ([8e-15, -3e-15], [-2e-13, 1e-13], False),
        # A second moment, and what it is without a factor of 2.
        ([3e-7, 1e-8], [6e-7, 2e-8], True),
        ([np.nan, 1.0], [np.nan, 1.0], False),
        ([np.inf, 1.0], [-np.inf, 1.0], True),
        ([np.inf, 1.0], [1.0, 1.0], True),
    ],
)
def test_distance(whole: list[float], other: list[float], apart: bool) -> None:
    assert (distance(np.array(other), np.array(whole), np.array(whole)) > TOLERANCE) is apart
