"""The norm of a gradient of which every rank has a term is that of the sum of the terms."""

from __future__ import annotations

from bugs.norms import squares, step
from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Plan

TOKENS, WIDTH = 4, 3


def reference() -> Plan:
    plan = Sketch("norm-of-terms")
    gradient = _gradient(plan, TOKENS, {})
    norm = plan.op("sqrt", squares(plan, gradient), out="norm")
    plan.output(norm)
    step(plan, "weight", gradient, norm)
    return plan.plan()


def _gradient(plan: Sketch, tokens: int, cut: dict[int, str]) -> str:
    plan.parameter("weight", (WIDTH,), {})
    x, above = plan.input("x", (tokens, WIDTH), cut), plan.input("grad:y", (tokens,), cut)
    return str(plan.op("einsum", above, x, equation="t,td->d", out="g"))


def parallel(ranks: int, wrong: bool) -> Plan:
    plan = Sketch("norm-of-terms-tp", {"tp": ranks})
    own = _gradient(plan, TOKENS // ranks, {0: "tp"})
    total = plan.op("all_reduce", own, out="g:sum", group="tp")
    squared = squares(plan, own if wrong else total)
    if wrong:
        squared = plan.op("all_reduce", squared, out="squares", group="tp")
    norm = plan.op("sqrt", squared, out="norm")
    plan.output(norm)
    step(plan, "weight", total, norm)
    return plan.plan()


BUG = Bug(
    where="NeMo Automodel PR 3477",
    thread="https://github.com/NVIDIA-NeMo/Automodel/pull/3477",
    should="a gradient that is a term of a sum on every rank is summed before its norm is taken",
    was="the norm is taken of the ranks' terms",
    codes=("PIT104", "PIT111"),
    says=("tp",),
    shows=written(reference, parallel, two_ranks=(2,), four_ranks=(4,)),
    silent=written(reference, parallel, one_rank=(1,)),
)
