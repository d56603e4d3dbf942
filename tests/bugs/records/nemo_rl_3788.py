"""Parameters of which every tensor-parallel rank has all count once in the norm of gradients."""

from __future__ import annotations

from bugs.norms import squares, step
from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Plan

SIZE = 4


def reference() -> Plan:
    plan = Sketch("norm-replicated")
    plan.output(_normed(plan, _given(plan, SIZE, {}), ""))
    return plan.plan()


def _given(plan: Sketch, own: int, cut: dict[int, str]) -> tuple[str, str]:
    """The gradients of a weight that is cut and of one that is not."""
    plan.parameter("cut", (own,), cut)
    plan.parameter("replicated", (SIZE,), {})
    return plan.input("g:cut", (own,), cut), plan.input("g:replicated", (SIZE,), {})


def _normed(plan: Sketch, gradients: tuple[str, str], way: str) -> str:
    """The norm, where squares are not summed over tp, or those of the cut one, or both."""
    cut, replicated = (squares(plan, gradient) for gradient in gradients)
    if way == "cut":
        cut = plan.op("all_reduce", cut, out="squares:cut", group="tp")
    total = plan.op("add", cut, replicated)
    if way == "both":
        total = plan.op("all_reduce", total, out="squares:all", group="tp")
    norm = str(plan.op("sqrt", total, out="norm"))
    for weight, gradient in zip(("cut", "replicated"), gradients, strict=True):
        step(plan, weight, gradient, norm)
    return norm


def parallel(ranks: int, wrong: bool) -> Plan:
    plan = Sketch("norm-replicated-tp", {"tp": ranks})
    plan.output(_normed(plan, _given(plan, SIZE // ranks, {0: "tp"}), "both" if wrong else "cut"))
    return plan.plan()


BUG = Bug(
    where="NeMo-RL PR 3788",
    thread="https://github.com/NVIDIA-NeMo/RL/pull/3788",
    should="gradients of parameters that every tensor-parallel rank has count once in the norm",
    was="the squares of all gradients are summed over tp: they count tp times",
    codes=("PIT105", "PIT108"),
    says=("tp",),
    shows=written(reference, parallel, two_ranks=(2,), four_ranks=(4,)),
    silent=written(reference, parallel, one_rank=(1,)),
)
