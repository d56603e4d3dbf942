"""Places that must have come first, for every operator that sorts."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import pytest
from zoo.builder import Builder, lineage

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number
from pitcheck.prove.reals.real_trials import uncovered
from pitcheck.prove.reals.trial_inputs import FIRST_RAISED, Raising, TrialInputs, points_of


def _seen(
    instances: int, places: int, *missing: tuple[int, int]
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
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
        (9, 8, [(3, 5)], False),
        (16, 100, [(3, 5)], False),
        (17, 8, [(3, 5)], True),
        (17, 8, [(i, 5) for i in range(17)], False),
        (17, 8, [(4, place) for place in range(6)], True),
        (17, 8, [(4, place) for place in range(7)], False),
        (1, 65, [(0, 9)], False),
        (100, 1, [], True),
    ],
)
def test_every_pair_where_instances_are_few_else_every_place_somewhere(
    instances: int, places: int, missing: list[tuple[int, int]], covered: bool
) -> None:
    chosen = {"sort~0": _seen(instances, places, *missing)}
    assert (uncovered(chosen, {}) == "") is covered


def test_what_was_seen_elsewhere_counts() -> None:
    chosen = {"sort~0": _seen(2, 3, (0, 1))}
    assert uncovered(chosen, {}) == "sort~0"
    assert uncovered(chosen, {"sort~0": _seen(2, 3, (1, 2))}) == ""


RANKS, PLACES = 8, 16


def _chosen(low: bool) -> str:
    """The verdict on ranks that choose among their places the largest; with ``low`` place 11 of
    rank 5 is far below what it should be.
    """
    r, b = Builder("reference"), Builder("parallel", {"dp": RANKS})
    scores, shift = r.input("scores", (RANKS * 2, PLACES)), r.input("shift", (PLACES,))
    r.output(r.op("argmax", r.op("add", scores, shift), out="best", axis=1))
    own, moved = b.input("scores", (2, PLACES), {0: "dp"}), b.input("shift", (PLACES,), {})
    first, one, rest = b.op("split", moved, sizes=(11, 1, 4), axis=0, out=["first", "one", "rest"])
    held = tuple(rank for rank in range(RANKS) if rank != 5 or not low)
    used = b.op("identity", one, where=({"dp": held},), out="used")
    if low:
        b.op(
            "masked_fill",
            one,
            b.op("eq", one, one),
            Number("-inf"),
            where=({"dp": (5,)},),
            out="used",
        )
    b.op("argmax", b.op("add", own, b.op("cat", first, used, rest, axis=0)), out="best", axis=1)
    b.output("best", spec=lineage("best", {0: "dp"}))
    return check(r.plan(), b.plan(), Options(seed=1)).verdict


def test_one_place_of_one_rank_that_never_comes_first_is_no_equal() -> None:
    assert _chosen(False) == "equivalent"
    assert _chosen(True) == "mismatch"


def _raised(shape: tuple[int, ...], instances: int, trials: int, lines: Sequence[int]) -> set[int]:
    """Return the places along the last axis that are the largest by far in some of ``lines``.

    The first ``trials`` trials in which elements are raised are looked at.
    """
    numbers = range(FIRST_RAISED, FIRST_RAISED + trials)
    drawn = (
        TrialInputs(1, numbers, points_of(()), Raising(shape[-1], 0, instances))
        .fresh("x", shape)
        .data.reshape(trials, -1, shape[-1])[:, list(lines)]
    )
    second, first = np.moveaxis(np.sort(drawn, axis=-1)[..., -2:], -1, 0)
    scale = 1.0 if len(shape) == 1 else shape[-1] ** -0.5
    return set(drawn.argmax(axis=-1)[first - second > 3.0 * scale].tolist())


@pytest.mark.parametrize(
    ("shape", "instances"),
    [((1, 7, 256), 1), ((2, 7, 256), 2), ((8, 3, 40), 8), ((5, 9), 5), ((4,), 1)],
)
def test_every_place_of_every_instance_is_raised(shape: tuple[int, ...], instances: int) -> None:
    """In the trials that are made first where an instance has consecutive lines."""
    count = prod(shape[:-1]) // instances
    for instance in range(instances):
        found = _raised(
            shape,
            instances,
            -(-shape[-1] // count),
            range(instance * count, (instance + 1) * count),
        )
        assert found == set(range(shape[-1]))


@pytest.mark.parametrize(
    "lines",
    [
        [0, 1, 2, 3, 32, 33, 34, 35],
        [4, 5, 6, 7, 36, 37, 38, 39],
        [0, 8, 16, 24, 32, 40, 48, 56],
        [0, 16, 32, 48, 1, 17, 33, 49],
    ],
)
def test_every_place_is_raised_soon_in_lines_from_several_places(lines: list[int]) -> None:
    """Tokens of two sequences, or every eighth token: within three times the trials that
    consecutive lines take.
    """
    assert _raised((2, 32, 160), 8, 60, lines) == set(range(160))


@pytest.mark.parametrize(("shape", "instances"), [((2, 5, 12), 5), ((3, 7), 1), ((6,), 1)])
def test_every_line_has_each_place_raised_in_the_end(
    shape: tuple[int, ...], instances: int
) -> None:
    trials = Raising(shape[-1], 0, instances).most(shape, len(shape) - 1)
    for line in range(prod(shape[:-1])):
        assert _raised(shape, instances, trials, [line]) == set(range(shape[-1]))
