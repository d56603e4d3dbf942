"""Values are found again although their first elements are zeros, or what rounding leaves
of zeros.
"""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest

from pitcheck.claims.real_numbers import Floats
from pitcheck.claims.reference_index import CANDIDATES, Index, fitting_starts, lookup

OTHERS = 200


def index_of(*arrays: Floats) -> Index:
    """An index of the first elements of values, shape (trials, *shape)."""
    keys = np.array([array[0].reshape(-1)[0] for array in arrays])
    order = np.argsort(keys, kind="stable")
    return Index(keys[order], order.astype(np.int64), dict(enumerate(arrays)))


@pytest.mark.parametrize(("there", "here"), [(0.0, 0.0), (3e-17, -2e-17), (0.0, 5e-17), (0.5, 0.5)])
def test_a_value_that_begins_with_nothing_is_found(there: float, here: float) -> None:
    random = np.random.default_rng(1)
    arrays = [random.normal(size=(2, 4, 3)) for _ in range(OTHERS)]
    for array in arrays:
        array[0, 0, 0] = there
    sought = arrays[OTHERS // 4].copy()
    sought[0, 0, 0] = here
    index = index_of(*arrays)
    assert lookup(sought[:, None], index) == OTHERS // 4
    sought[1, 2, 1] += 1e-3
    assert lookup(sought[:, None], index) is None


def test_equal_tensors_are_not_all_looked_at() -> None:
    """Thousands of tensors begin with the same number, and only the first few are compared."""
    array = np.random.default_rng(5).normal(size=(2, 4, 6))
    index = index_of(*([array] * 3000))
    with patch(
        "pitcheck.claims.reference_index.fitting_starts", side_effect=fitting_starts
    ) as looked:
        assert lookup(array[:, None], index) == 0
    assert looked.call_count <= 2 * CANDIDATES


def test_parts_and_scalars_are_found() -> None:
    whole = np.random.default_rng(6).normal(size=(2, 4, 6))
    index = index_of(whole, whole[:, 0, 0])
    assert lookup(whole[:, None, :2, :3], index) == 0
    assert lookup(whole[:, None, 0, 0], index) == 1
    assert lookup(np.concatenate([whole, whole], axis=2)[:, None], index) is None
