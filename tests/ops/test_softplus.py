"""The range of softplus on floats: it is its argument where that is large, and 0 far below 0."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pitcheck.algebra.reals.real import RealAlgebra
from pitcheck.ops.registry import evaluate

INFINITY = float("inf")


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (1.0, math.log1p(math.e)),
        (1000.0, 1000.0),
        (-1000.0, 0.0),
        (INFINITY, INFINITY),
        (-INFINITY, 0.0),
    ],
)
def test_softplus(x: float, expected: float) -> None:
    """The exponential of 1000 is no float; a sum of exponentials that are shifted is one."""
    reals = RealAlgebra(np, seed=0, trials=(0,))
    with np.errstate(all="ignore"):
        found = evaluate(reals, "softplus", [reals.constant(x)], {})[0].data.item()
    assert found == pytest.approx(expected)
