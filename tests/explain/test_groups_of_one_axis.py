"""Groups of a mesh that one axis stands for: devices at equal distances."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from support.explain_plans import Pair, run
from zoo.builder import Builder, lineage

from pitcheck.explain import difference
from pitcheck.explain.evidence import Evidence
from pitcheck.plan.model import Number


def tripled(devices: int, microbatches: int = 1) -> Pair:
    """Three times a tensor where twice is right."""
    r = Builder("reference")
    r.output(r.op("mul", r.input("x", (8, 3)), Number(2), out="y"))
    b = Builder("parallel", {"device": devices}, microbatches)
    split = {"microbatched": True} if microbatches > 1 else {}
    x = b.input("x", (8 // microbatches, 3), {0: "mb"} if split else {}, **split)
    y = b.op("mul", x, Number(3), out="y", hint={0: "mb"} if split else {})
    b.output(y, "y", lineage("y", {0: "mb"} if split else {}))
    return r.plan(), b.plan()


def names(pair: Pair) -> set[str]:
    """Return the names of the groups over which a sum may have been forgotten."""
    found: list[Evidence] = []
    explained = difference.explained

    def kept(given: Evidence, *others: Any, **more: Any) -> Any:
        found.append(given)
        return explained(given, *others, **more)

    with patch.object(difference, "explained", kept):
        run(pair)
    return {grouping.name for grouping in found[0].groupings}


@pytest.mark.parametrize(
    ("devices", "groups"),
    [
        (2, set()),
        (3, set()),
        (4, {"ranks [0, 1]", "ranks [0, 2]"}),
        (6, {"ranks [0, 1]", "ranks [0, 3]", "ranks [0, 1, 2]", "ranks [0, 2, 4]"}),
        (
            8,
            {
                "ranks [0, 1]",
                "ranks [0, 2]",
                "ranks [0, 4]",
                "ranks [0, 1, 2, 3]",
                "ranks [0, 2, 4, 6]",
            },
        ),
    ],
)
def test_devices_at_equal_distances_are_groups(devices: int, groups: set[str]) -> None:
    assert names(tripled(devices)) == {"device"} | groups


def test_microbatches_of_one_rank_are_no_ranks() -> None:
    assert names(tripled(1, 4)) == {"mb"}
