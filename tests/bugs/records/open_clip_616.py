"""A loss of all pairs of features, which every rank computes alike of the features of all ranks."""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch
from zoo.builder import table

from pitcheck.plan.model import Plan

ITEMS, WIDTH, OUT = 4, 3, 2


def reference() -> Plan:
    plan = Sketch("pairs")
    above = _above(plan, ITEMS, {})
    plan.gradient(plan.op("einsum", above, "x", equation="bo,bd->od", out="grad:weight"), "weight")
    return plan.plan()


def _above(plan: Sketch, items: int, cut: dict[int, str]) -> str:
    """The gradient of the features of all items: the loss is a sum of products of pairs."""
    x, weight = plan.input("x", (items, WIDTH), cut), plan.parameter("weight", (OUT, WIDTH), {})
    features = plan.op("linear", x, weight, out="features")
    if cut:
        features = plan.op("all_gather", features, out="features:all", group="dp", axis=0)
    pairs = plan.input("pairs", (ITEMS, ITEMS), {})
    ways = plan.op("add", pairs, plan.op("transpose", pairs, dim0=0, dim1=1))
    return str(plan.op("matmul", ways, features, out="grad:features"))


def parallel(ranks: int, wrong: bool) -> Plan:
    plan = Sketch("pairs-dp", {"dp": ranks})
    above = _above(plan, ITEMS // ranks, {0: "dp"})
    if wrong:
        own = plan.op("reduce_scatter", above, out="grad:own", group="dp", axis=0)
    else:
        place = table("dp", *range(ranks))
        own = plan.op("chunk", above, out="grad:own", axis=0, count=ranks, position=place)
    term = plan.op("einsum", own, "x", equation="bo,bd->od", out="grad:weight:own")
    plan.gradient(plan.op("all_reduce", term, out="grad:weight", group="dp"), "weight")
    return plan.plan()


BUG = Bug(
    where="open_clip #616",
    thread="https://github.com/mlfoundations/open_clip/issues/616",
    should="if all ranks compute the whole loss, a rank takes its part of the features' gradient",
    was="the gather's derivative adds up over ranks: gradients are as many times too large",
    codes=("PIT105", "PIT111", "PIT101"),
    says=("dp",),
    shows=written(reference, parallel, two_ranks=(2,), four_ranks=(4,)),
    silent=written(reference, parallel, one_rank=(1,)),
)
