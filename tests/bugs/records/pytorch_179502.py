"""A view merges the columns, which are cut over ranks, with the rows: a rank's elements are not
consecutive ones of the whole.
"""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch
from zoo.builder import table

from pitcheck.plan.model import Plan

ROWS, COLUMNS, WIDTH = 12, 8, 6
LONG = ROWS * COLUMNS // WIDTH


def reference() -> Plan:
    plan = Sketch("view")
    x, weight = plan.input("x", (ROWS, COLUMNS)), plan.parameter("weight", (5, WIDTH))
    seen = plan.op("view", x, out="seen", sizes=(LONG, WIDTH))
    plan.output(plan.op("linear", seen, weight, out="y"))
    return plan.plan()


def parallel(ranks: int, cut: int, wrong: bool) -> Plan:
    """``cut``: the dimension of x that is cut over ranks."""
    plan = Sketch("view-tp", {"tp": ranks})
    shape = [ROWS, COLUMNS]
    shape[cut] //= ranks
    x, weight = plan.input("x", shape, {cut: "tp"}), plan.parameter("weight", (5, WIDTH), {})
    if wrong or not cut:
        seen = plan.op("view", x, out="seen", sizes=(LONG // ranks, WIDTH))
    else:
        whole = plan.op("all_gather", x, out="x:whole", group="tp", axis=cut)
        merged = plan.op("view", whole, sizes=(LONG, WIDTH))
        place = table("tp", *range(ranks))
        seen = plan.op("chunk", merged, out="seen", axis=0, count=ranks, position=place)
    own = plan.op("linear", seen, weight, out="y:own")
    plan.output(plan.op("all_gather", own, out="y", group="tp", axis=0))
    return plan.plan()


BUG = Bug(
    where="pytorch #179502",
    thread="https://github.com/pytorch/pytorch/issues/179502",
    should="a tensor whose columns are cut over ranks is gathered before a view merges them with "
    "the rows",
    was="each rank views its part, and that is taken for a part of the view's rows",
    codes=("PIT107",),
    says=("view",),
    shows=written(reference, parallel, two_ranks=(2, 1), four_ranks=(4, 1)),
    silent=written(reference, parallel, rows_are_cut=(2, 0), one_rank=(1, 1)),
)
