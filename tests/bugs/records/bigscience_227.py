"""Each head has a slope for the distance of two tokens; the heads are cut over ranks."""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch
from zoo.builder import table

from pitcheck.plan.model import Plan

HEADS, LENGTH, SIZE = 4, 3, 2


def reference() -> Plan:
    plan = Sketch("slopes")
    plan.output(_mixed(plan, _given(plan, HEADS, {}), "slopes", "y"))
    return plan.plan()


def _given(plan: Sketch, heads: int, cut: dict[int, str]) -> list[str]:
    plan.input("slopes", (HEADS,), {})
    return [plan.input(name, (heads, LENGTH, SIZE), cut) for name in ("q", "k", "v")]


def _mixed(plan: Sketch, parts: list[str], slopes: str, out: str) -> str:
    """Values, mixed by scores and slopes times distances."""
    q, k, v = parts
    places = plan.op("positions", q, axis=1)
    row, column = (plan.op("unsqueeze", places, axis=axis) for axis in (1, 0))
    distance = plan.op("cast", plan.op("sub", column, row), dtype="float32")
    bias = plan.op("einsum", slopes, distance, equation="h,ij->hij")
    return str(plan.op("scaled_dot_product_attention", q, k, v, bias, out=out))


def parallel(ranks: int, wrong: bool) -> Plan:
    plan = Sketch("slopes-tp", {"tp": ranks})
    parts = _given(plan, HEADS // ranks, {0: "tp"})
    place = 0 if wrong else table("tp", *range(ranks))
    slopes = plan.op("chunk", "slopes", out="slopes:own", axis=0, count=ranks, position=place)
    own = _mixed(plan, parts, slopes, "y:own")
    plan.output(plan.op("all_gather", own, out="y", group="tp", axis=0))
    return plan.plan()


BUG = Bug(
    where="Megatron-DeepSpeed #227 (BigScience)",
    thread="https://github.com/bigscience-workshop/Megatron-DeepSpeed/issues/227",
    should="a rank takes the slopes of its heads",
    was="every rank those of the first heads",
    codes=("PIT107",),
    says=("slopes",),
    shows=written(reference, parallel, two_ranks=(2,), four_ranks=(4,)),
    silent=written(reference, parallel, one_rank=(1,)),
)
