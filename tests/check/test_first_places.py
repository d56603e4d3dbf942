"""Which places must have come first, of everything that sorts."""

from __future__ import annotations

import numpy as np
import pytest

from pitcheck.check.real_trials import uncovered


def _seen(instances: int, places: int, *missing: tuple[int, int]) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    first = np.ones((instances, places), dtype=bool)
    for pair in missing:
        first[pair] = False
    return first


@pytest.mark.parametrize(
    ("instances", "places", "missing", "covered"),
    [
        (8, 8, [], True),
        (8, 8, [(3, 5)], False),
        (1, 64, [(0, 9)], False),
        (9, 8, [(3, 5)], True),
        (9, 8, [(i, 5) for i in range(9)], False),
        (9, 8, [(4, place) for place in range(6)], True),
        (9, 8, [(4, place) for place in range(7)], False),
        (1, 65, [(0, 9)], False),
        (100, 1, [], True),
    ],
)
def test_every_pair_where_they_are_few_else_every_place_somewhere(instances: int, places: int, missing: list[tuple[int, int]], covered: bool) -> None:
    chosen = {"sort~0": _seen(instances, places, *missing)}
    assert (uncovered(chosen, {}) == "") is covered


def test_what_was_seen_elsewhere_counts() -> None:
    chosen = {"sort~0": _seen(2, 3, (0, 1))}
    assert uncovered(chosen, {}) == "sort~0"
    assert uncovered(chosen, {"sort~0": _seen(2, 3, (1, 2))}) == ""
