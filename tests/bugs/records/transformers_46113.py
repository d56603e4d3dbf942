"""Gradients are multiplied by 1 / norm if their norm is above 1."""

from __future__ import annotations

from functools import partial

from bugs.norms import squares
from bugs.record import Bug, Written
from bugs.sketch import Sketch

from pitcheck.plan.model import Number, Plan

SIZE = 4


def reference(clips: bool) -> Plan:
    plan = Sketch("clipped")
    weight, gradient = plan.parameter("weight", (SIZE,)), plan.input("g", (SIZE,))
    norm = plan.op("sqrt", squares(plan, gradient), out="norm")
    plan.output(norm)
    _step(plan, weight, _clipped(plan, gradient, norm) if clips else gradient)
    return plan.plan()


def _clipped(plan: Sketch, gradient: str, norm: str) -> str:
    factor = plan.op("clamp", plan.op("reciprocal", norm), max=1)
    return str(plan.op("mul", gradient, factor, out="clipped"))


def _step(plan: Sketch, weight: str, gradient: str) -> None:
    less = plan.op("mul", gradient, Number("1/10"))
    plan.update(plan.op("sub", weight, less, out="weight:new"), weight, "weight:new")


def parallel(ranks: int, clips: bool, wrong: bool) -> Plan:
    plan = Sketch("clipped-fsdp", {"fsdp": ranks})
    own, cut = SIZE // ranks, {0: "fsdp"}
    weight, gradient = plan.parameter("weight", (own,), cut), plan.input("g", (own,), cut)
    total = plan.op("all_reduce", squares(plan, gradient), out="squares", group="fsdp")
    norm = plan.op("sqrt", total, out="norm")
    plan.output(norm)
    _step(plan, weight, _clipped(plan, gradient, norm) if clips and not wrong else gradient)
    return plan.plan()


def setting(ranks: int, clips: bool) -> Written:
    return Written(partial(reference, clips), partial(parallel, ranks, clips))


BUG = Bug(
    where="transformers PR 46113",
    thread="https://github.com/huggingface/transformers/pull/46113",
    should="gradients are divided by their norm if that is above the maximum",
    was="the norm is right and shown, and nothing is divided by it",
    codes=("PIT103", "PIT108", "PIT102"),
    says=("clipped",),
    shows={"two ranks": setting(2, True), "one rank": setting(1, True)},
    silent={"no maximum": setting(2, False)},
)
