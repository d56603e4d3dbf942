"""A weight that both ends of a pipeline have counts once in the norm of gradients."""

from __future__ import annotations

from functools import partial

from bugs.norms import squares
from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Plan

SIZE = 4


def reference(tied: bool = True) -> Plan:
    plan = Sketch("norm-tied")
    total = plan.op("add", squares(plan, plan.input("g:first", (SIZE,))), _last(plan))
    if tied:
        total = plan.op("add", total, squares(plan, plan.input("g:tied", (SIZE,))))
    plan.output(plan.op("sqrt", total, out="norm"))
    return plan.plan()


def _last(plan: Sketch) -> str:
    return squares(plan, plan.input("g:last", (SIZE,)))


def parallel(tied: bool, wrong: bool) -> Plan:
    plan = Sketch("norm-tied-pp", {"pp": 2})
    for place, name in enumerate(("first", "last")):
        _stage(plan, place, name, tied and (wrong or not place))
    total = plan.op("all_reduce", "squares", out="squares:all", group="pp")
    plan.output(plan.op("sqrt", total, out="norm"))
    return plan.plan()


def _stage(plan: Sketch, place: int, name: str, tied: bool) -> None:
    """The squares of a stage's gradients."""
    where = {"pp": (place,)}
    gradients = [plan.input(f"g:{name}", (SIZE,), {})]
    if tied:
        if "g:tied" not in plan.tensors:
            plan.input("g:tied", (SIZE,), {})
        gradients.append("g:tied")
    flat = plan.op("cat", *gradients, axis=0, where=where)
    squared = plan.op("square", flat, where=where)
    plan.op("sum", squared, out="squares", where=where)


BUG = Bug(
    where="DeepSpeed PR 1252, Megatron-LM PR 7228",
    thread="https://github.com/NVIDIA/Megatron-LM/pull/7228",
    should="the copy at the last stage of a weight of the first one is left out of the norm",
    was="both copies are counted",
    codes=("PIT108", "PIT105"),
    says=("0:cat", "'g:tied'", "counts twice"),
    shows=written(reference, parallel, tied=(True,)),
    silent=written(partial(reference, tied=False), parallel, not_tied=(False,)),
)
