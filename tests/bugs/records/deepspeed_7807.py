"""ZeRO's reduce-scatter leaves the sum over ranks in a rank's own part of a gradient, and the
rank's terms in the rest; Muon's step needs the sum everywhere.
"""

from __future__ import annotations

from functools import partial

from bugs.orthogonal import moved, orthogonal
from bugs.record import Bug, Written
from bugs.sketch import Sketch
from zoo.builder import table

from pitcheck.plan.model import Number, Plan

BATCH, ROWS, WIDTH = 4, 4, 3


def reference(muon: bool) -> Plan:
    plan = Sketch("muon-zero")
    weight, _ = _given(plan, ROWS, BATCH, {}, {})
    total = plan.op("einsum", "grad:y", "x", equation="bo,bi->oi", out="g")
    moved(plan, weight, orthogonal(plan, total, "step") if muon else _plain(plan, total))
    return plan.plan()


def _given(
    plan: Sketch, rows: int, batch: int, cut: dict[int, str], data: dict[int, str]
) -> tuple[str, str]:
    weight = plan.parameter("weight", (rows, WIDTH), cut)
    x = plan.input("x", (batch, WIDTH), data)
    plan.input("grad:y", (batch, ROWS), data)
    return weight, x


def _plain(plan: Sketch, gradient: str) -> str:
    """The step of an optimizer that treats every element for itself."""
    return str(plan.op("mul", gradient, Number("1/2"), out="step"))


def parallel(muon: bool, wrong: bool) -> Plan:
    plan, ranks = Sketch("muon-zero-dp", {"dp": 2}), 2
    weight, _ = _given(plan, ROWS // ranks, BATCH // ranks, {0: "dp"}, {0: "dp"})
    own = plan.op("einsum", "grad:y", "x", equation="bo,bi->oi", out="g:term")
    total = _partly_summed(plan, own) if wrong else plan.op("all_reduce", own, group="dp")
    step = orthogonal(plan, total, "step") if muon else _plain(plan, total)
    place = table("dp", *range(ranks))
    moved(plan, weight, plan.op("chunk", step, axis=0, count=ranks, position=place))
    return plan.plan()


def _partly_summed(plan: Sketch, own: str) -> str:
    half = ROWS // 2
    summed = plan.op("reduce_scatter", own, out="g:summed", group="dp", axis=0)
    first = plan.op("slice", own, axis=0, start=0, stop=half)
    second = plan.op("slice", own, axis=0, start=half, stop=ROWS)
    plan.op("cat", summed, second, out="g:buffer", axis=0, where={"dp": (0,)})
    return str(plan.op("cat", first, summed, out="g:buffer", axis=0, where={"dp": (1,)}))


def setting(muon: bool) -> Written:
    return Written(partial(reference, muon), partial(parallel, muon))


BUG = Bug(
    where="DeepSpeed #7807, PR 8090",
    thread="https://github.com/deepspeedai/DeepSpeed/issues/7807",
    should="a gradient is summed over the ranks before Muon's step of the whole matrix is taken",
    was="beyond the rank's own part the buffer has the rank's terms alone",
    codes=("PIT104",),
    says=("2:slice", "'g:term'"),
    shows={"two ranks": setting(True)},
    silent={"an optimizer of single elements": setting(False)},
)
