"""Rows of an output that hold other rows are named with those."""

from __future__ import annotations

import pytest
from support.explain_plans import Pair, first_finding, run, said
from zoo.builder import Builder


def rolled(start: int, again: int, axis: int = 0) -> Pair:
    """exp(x), of whose four rows each rank has those from ``start`` on, then one more."""
    r = Builder("reference")
    r.output(r.op("exp", r.input("x", (8, 4)), out="y"))
    b = Builder("dp", {"dp": 2})
    hidden = b.op("exp", b.input("x", (4, 4), {0: "dp"}), out="hidden")
    parts = (
        b.op("slice", hidden, axis=axis, start=first, stop=stop)
        for first, stop in ((start, start + 3), (again, again + 1))
    )
    moved = b.op("cat", *parts, axis=axis, out="moved")
    b.output(b.op("all_gather", moved, axis=0, group="dp", out="y"))
    return r.plan(), b.plan()


@pytest.mark.parametrize(
    ("start", "again", "axis", "told"),
    [
        (1, 0, 0, "; row 0 of 'y' holds what belongs in row 1, and 7 more are moved"),
        (0, 0, 0, "; row 3 of 'y' holds what belongs in row 0, and 1 more is moved"),
        (1, 0, 1, "; column 0 of 'y' holds what belongs in column 1, and 3 more are moved"),
    ],
)
def test_rows_that_hold_other_rows_are_named(start: int, again: int, axis: int, told: str) -> None:
    assert (first_finding(rolled(start, again, axis)).cause or "").endswith(told)


def test_rows_in_their_places_are_right() -> None:
    report = run(rolled(0, 3))
    assert report.verdict == "equivalent", said(report)
