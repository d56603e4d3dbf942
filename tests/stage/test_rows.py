"""A value has a row for what is different at some coordinate, and none for what no coordinate
holds.
"""

from __future__ import annotations

from zoo.builder import Builder, lineage

from pitcheck.base.options import Options
from pitcheck.claims.specification import specify
from pitcheck.engine.check import check
from pitcheck.graph.graph import Graph
from pitcheck.graph.lowering import lower
from pitcheck.plan.model import MICROBATCH_AXIS, Plan
from pitcheck.plan.schedule.matching import match
from pitcheck.stage.building import build_stage
from pitcheck.stage.stage import Target


def reference() -> Plan:
    b = Builder("reference")
    x = b.input("x", (8, 3))
    b.output(b.op("sum", b.op("square", x), out="y", axes=(0,)))
    return b.plan()


def parallel(*, gathered: bool = True) -> Plan:
    """The members of the all-reduce run different operators, once for all micro-batches; before it
    each rank reads along another axis by a list of ranks.
    """
    b = Builder("parallel", {"pp": 2, "dp": 2}, microbatches=2)
    x = b.input("x", (2, 3), lineage("x", {0: (MICROBATCH_AXIS, "dp")}), microbatched=True)
    total = b.op("accumulate", b.op("square", x), out="total")
    for stage in (0, 1):
        on = {"pp": (stage,)}
        both = b.op(
            "all_gather", total, out=f"both{stage}", where=on, group=((0, 1), (2, 3)), axis=0
        )
        b.op("sum", both if stage or gathered else total, out=f"part{stage}", where=on, axes=(0,))
        b.op("all_reduce", f"part{stage}", out="y", where=on, group="pp", reduction="avg")
    b.output("y")
    return b.plan()


def graph(plan: Plan) -> Graph:
    matching, violations = match(plan)
    assert matching is not None, violations
    return lower(plan, matching)


def test_what_runs_once_has_no_rows_of_other_microbatches() -> None:
    plans = reference(), parallel()
    first, second = (graph(plan) for plan in plans)
    specification = specify(*plans, first, second)
    targets = [Target.at(each.cut, each.where, second) for each in specification.expected]
    batch = build_stage(first, second, specification.initial.get, targets).parallel
    once = [value for value in batch.counts if not second.values[value].lattice.microbatched]
    assert len(once) > 4
    for value in once:
        assert set(range(batch.count(value))) == {
            int(row) for row in batch.rows[value] if row >= 0
        }, second.values[value].name


def test_it_is_right_and_its_neighbour_is_not() -> None:
    assert check(reference(), parallel(), Options(seed=1)).verdict == "equivalent"
    assert check(reference(), parallel(gathered=False), Options(seed=1)).verdict == "mismatch"
