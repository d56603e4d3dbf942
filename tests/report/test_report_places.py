"""Ranks as people write them, against hand-computed coordinates."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitcheck.report.coordinate_names import describe_microbatches, describe_ranks

MESH = {"pp": 2, "dp": 2, "tp": 4}


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((), ""),
        (range(16), "every rank"),
        ((0, 1, 4, 5, 8, 9, 12, 13), "tp=0..1 of every pp, dp"),
        ((5,), "pp=0, dp=1, tp=1"),
        ((8, 9, 10, 11, 12, 13, 14, 15), "pp=1 of every dp, tp"),
        ((0, 2), "pp=0, dp=0, tp=0, 2"),
        ((0, 5), "ranks 0, 5"),
        ((99,), "rank 99"),
        ((-1, 3), "ranks -1, 3"),
    ],
)
def test_ranks_by_hand(ranks: tuple[int, ...], text: str) -> None:
    assert describe_ranks(tuple(ranks), MESH) == text


def test_no_mesh_and_one_device() -> None:
    assert describe_ranks((3,), {}) == "rank 3"
    assert describe_ranks((0,), {"tp": 1}) == "rank 0"


def test_long_lists_are_counted() -> None:
    assert describe_ranks(range(0, 40, 2), {}) == "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 12 more"


def test_microbatches() -> None:
    assert describe_microbatches((0, 1), 2) == ""
    assert describe_microbatches((), 2) == ""
    assert describe_microbatches((1,), 2) == "micro-batch 1"
    assert describe_microbatches((2, 0, 1), 8) == "micro-batches 0..2"


@given(st.sets(st.integers(0, 15), min_size=1))
def test_a_description_names_exactly_the_ranks(ranks: set[int]) -> None:
    """The text is read back by an independent reader."""
    text = describe_ranks(sorted(ranks), MESH)
    assert read_back(text) == ranks


def read_back(text: str) -> set[int]:
    def numbers(runs: str) -> list[int]:
        found = []
        for run in re.split(r", ", runs):
            first, _, last = run.partition("..")
            found += range(int(first), int(last or first) + 1)
        return found

    if text == "every rank":
        return set(range(16))
    if text.startswith("rank"):
        return set(numbers(text.split(" ", 1)[1]))
    values = {axis: list(range(size)) for axis, size in MESH.items()}
    for axis, runs in re.findall(
        r"(\w+)=(\d[\d., ]*\d|\d)", text.split(" of every ", maxsplit=1)[0]
    ):
        values[axis] = numbers(runs)
    return {
        8 * pp + 4 * dp + tp
        for pp, dp, tp in itertools.product(values["pp"], values["dp"], values["tp"])
    }
