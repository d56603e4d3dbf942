"""Which places must have come first, of everything that sorts."""

from __future__ import annotations

import numpy as np
import pytest
from zoo.builder import Builder, lineage

from pitcheck.check.options import Options
from pitcheck.check.real_trials import uncovered
from pitcheck.check.run import check
from pitcheck.check.trial_inputs import Raising
from pitcheck.plan.model import Number


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
def test_every_pair_where_instances_are_few_else_every_place_somewhere(instances: int, places: int, missing: list[tuple[int, int]], covered: bool) -> None:
    chosen = {"sort~0": _seen(instances, places, *missing)}
    assert (uncovered(chosen, {}) == "") is covered


def test_what_was_seen_elsewhere_counts() -> None:
    chosen = {"sort~0": _seen(2, 3, (0, 1))}
    assert uncovered(chosen, {}) == "sort~0"
    assert uncovered(chosen, {"sort~0": _seen(2, 3, (1, 2))}) == ""


RANKS, PLACES = 8, 16


def _chosen(low: bool) -> str:
    """The verdict on ranks that choose among their places the largest; with ``low`` place 11 of rank 5 is far below what it should be."""
    r, b = Builder("reference"), Builder("parallel", {"dp": RANKS})
    scores, shift = r.input("scores", (RANKS * 2, PLACES)), r.input("shift", (PLACES,))
    r.output(r.op("argmax", r.op("add", scores, shift), out="best", axis=1))
    own, moved = b.input("scores", (2, PLACES), {0: "dp"}), b.input("shift", (PLACES,), {})
    first, one, rest = b.op("split", moved, sizes=(11, 1, 4), axis=0, out=["first", "one", "rest"])
    held = tuple(rank for rank in range(RANKS) if rank != 5 or not low)
    used = b.op("identity", one, where=({"dp": held},), out="used")
    if low:
        b.op("masked_fill", one, b.op("eq", one, one), Number("-inf"), where=({"dp": (5,)},), out="used")
    b.op("argmax", b.op("add", own, b.op("cat", first, used, rest, axis=0)), out="best", axis=1)
    b.output("best", spec=lineage("best", {0: "dp"}))
    return check(r.plan(), b.plan(), Options(seed=1)).verdict


def test_one_place_of_one_rank_that_never_comes_first_is_no_equal() -> None:
    assert _chosen(False) == "equivalent"
    assert _chosen(True) == "mismatch"


@pytest.mark.parametrize(("shape", "instances"), [((1, 7, 256), 1), ((2, 7, 256), 2), ((8, 3, 40), 8), ((5, 9), 5), ((4,), 1)])
def test_every_place_of_every_instance_is_raised(shape: tuple[int, ...], instances: int) -> None:
    """Place by place as it is drawn: after so many trials as are said, each instance has had each place raised."""
    axis, size = len(shape) - 1, shape[-1]
    trials, lines = Raising(size, 0, instances).step(shape, axis)
    count = int(np.prod(shape[:-1]))
    raised = {(line // lines, (trial % trials + line % lines * trials) % size) for trial in range(trials) for line in range(count)}
    assert raised >= {(instance, place) for instance in range(instances) for place in range(size)}
