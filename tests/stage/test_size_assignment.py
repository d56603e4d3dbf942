"""Sizes that are no one assignment over both sides are refused."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitcheck.errors import ReductionError
from pitcheck.stage.size_assignment import check_parts, check_shapes

Interval = tuple[int, int]


def checked(
    full: int, small: int, local: tuple[int, int], parts: list[tuple[Interval, Interval]]
) -> None:
    """Parts of one interval of a tensor of one dimension."""
    check_parts(
        "t",
        ((full,), (small,)),
        ((local[0],), (local[1],)),
        [(((old,),), ((new,),)) for old, new in parts],
    )


RIGHT = [((0, 4), (0, 3)), ((4, 8), (3, 6)), ((8, 12), (6, 9))]


def test_right() -> None:
    checked(12, 9, (4, 3), RIGHT)
    checked(12, 9, (4, 3), RIGHT[:1])
    checked(12, 6, (4, 3), [((0, 4), (0, 3)), ((8, 12), (3, 6))])


@pytest.mark.parametrize(
    ("small", "local", "parts"),
    [
        (9, 4, RIGHT),
        (10, 3, RIGHT),
        (8, 3, RIGHT),
        (9, 3, [RIGHT[0], ((4, 8), (0, 3)), RIGHT[2]]),
        (9, 3, [((0, 4), (6, 9)), RIGHT[1], ((8, 12), (0, 3))]),
        (9, 3, [((0, 4), (1, 4)), *RIGHT[1:]]),
        (9, 3, [RIGHT[0], ((0, 4), (3, 6))]),
        (9, 0, [((0, 4), (0, 0))]),
    ],
)
def test_wrong(small: int, local: int, parts: list[tuple[Interval, Interval]]) -> None:
    with pytest.raises(ReductionError):
        checked(12, small, (4, local), parts)


def test_pieces_that_are_free_or_zero_have_a_size_alone() -> None:
    def padded(free: int) -> None:
        check_parts(
            "t", ((4,), (3,)), ((6,), (5,)), [((((0, 4), (-1, 2)),), (((0, 3), (-1, free)),))]
        )

    padded(2)
    with pytest.raises(ReductionError):
        padded(1)


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.integers(1, 4),
    st.integers(1, 4),
    st.data(),
)
def test_one_linear_map_is_right_and_one_other_end_is_not(
    counts: list[int], unit: int, scale: int, data: st.DataObject
) -> None:
    ends = [0, *accumulate(counts)]
    parts = [((a * unit, b * unit), (a * scale, b * scale)) for a, b in pairwise(ends)]
    total = ends[-1]
    for part in parts:
        size = part[0][1] - part[0][0], part[1][1] - part[1][0]
        checked(total * unit, total * scale, size, [part])
    if len(set(counts)) > 1:
        return
    size = counts[0] * unit, counts[0] * scale
    checked(total * unit, total * scale, size, parts)
    place, end = data.draw(st.integers(0, len(parts) - 1)), data.draw(st.integers(0, 1))
    old, new = parts[place]
    moved = list(new)
    moved[end] += data.draw(st.sampled_from((-1, 1)))
    with pytest.raises(ReductionError):
        checked(
            total * unit,
            total * scale,
            size,
            [*parts[:place], (old, (moved[0], moved[1])), *parts[place + 1 :]],
        )


def test_a_value_of_another_shape() -> None:
    class Shapes:
        @staticmethod
        def shape(value: tuple[int, ...]) -> tuple[int, ...]:
            return value

    algebra: Any = Shapes()
    check_shapes(algebra, {1: (3, 4), 2: (9,)}, {1: (3, 4)}, "parallel")
    with pytest.raises(ReductionError, match="parallel value has shape"):
        check_shapes(algebra, {1: (3, 5)}, {1: (3, 4)}, "parallel")
