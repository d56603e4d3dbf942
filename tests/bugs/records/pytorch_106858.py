"""An average of the weights is moved after the step, and evaluated: its shards must be gathered
anew.
"""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Number, Plan

BATCH, INTO, OUT = 2, 3, 4


def reference() -> Plan:
    plan = Sketch("averaged")
    _moved(plan, OUT, {})
    plan.output(plan.op("linear", plan.input("x", (BATCH, INTO)), "average:new", out="y"))
    return plan.plan()


def _moved(plan: Sketch, rows: int, cut: dict[int, str]) -> None:
    """The average of the weights, moved towards the present ones."""
    weight = plan.parameter("weight", (rows, INTO), cut)
    average = plan.state("average", (rows, INTO), cut)
    kept = plan.op("mul", average, Number("9/10"))
    share = plan.op("mul", weight, Number("1/10"))
    plan.update(plan.op("add", kept, share, out="average:new"), average, "average:new")


def parallel(ranks: int, wrong: bool) -> Plan:
    plan = Sketch("averaged-fsdp", {"fsdp": ranks})
    _moved(plan, OUT // ranks, {0: "fsdp"})
    shard = "average" if wrong and ranks > 1 else "average:new"
    whole = plan.op("all_gather", shard, out="average:whole", group="fsdp", axis=0)
    plan.output(plan.op("linear", plan.input("x", (BATCH, INTO), {}), whole, out="y"))
    return plan.plan()


BUG = Bug(
    where="pytorch PR 106858",
    thread="https://github.com/pytorch/pytorch/pull/106858",
    should="the average of the weights is gathered again after it was moved",
    was="what was gathered for the last evaluation is taken",
    codes=("PIT116", "PIT103"),
    says=("average",),
    shows=written(reference, parallel, two_ranks=(2,), four_ranks=(4,)),
    silent=written(reference, parallel, one_rank=(1,)),
)
