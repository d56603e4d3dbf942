"""An adapter at a layer that every tensor-parallel rank has, under sequence parallelism: ranks have
different tokens, so nothing may be gathered along features.
"""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Plan

TOKENS, INTO, RANK, OUT = 4, 3, 4, 4


def reference() -> Plan:
    plan = Sketch("duplicated")
    x = plan.input("x", (TOKENS, INTO))
    first, second = plan.parameter("lora_a", (RANK, INTO)), plan.parameter("lora_b", (OUT, RANK))
    inner = plan.op("linear", x, first, out="inner")
    plan.output(plan.op("linear", inner, second, out="y"))
    return plan.plan()


def parallel(ranks: int, wrong: bool) -> Plan:
    plan = Sketch("duplicated-sp", {"tp": ranks})
    x = plan.input("x", (TOKENS // ranks, INTO), {0: "tp"})
    cut: dict[int, str] = {0: "tp"} if wrong else {}
    parts = ranks if wrong else 1
    first = plan.parameter("lora_a", (RANK // parts, INTO), cut)
    second = plan.parameter("lora_b", (OUT // parts, RANK), cut)
    inner = _joined(plan, plan.op("linear", x, first, out="inner:own"), "inner", wrong)
    own = _joined(plan, plan.op("linear", inner, second, out="y:part"), "y:own", wrong)
    plan.output(plan.op("all_gather", own, out="y", group="tp", axis=0))
    return plan.plan()


def _joined(plan: Sketch, x: str, out: str, along: bool) -> str:
    """The features of all ranks one after the other, or x."""
    return str(plan.op("all_gather", x, out=out, group="tp", axis=1)) if along else x


BUG = Bug(
    where="Megatron-Bridge PR 5900",
    thread="https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/5900",
    should="the factors of an adapter at a layer that every rank has are whole on every rank",
    was="they are cut over tp, and features of different tokens are gathered to one row",
    codes=("PIT107",),
    says=("inner",),
    shows=written(reference, parallel, two_ranks=(2,), four_ranks=(4,)),
    silent=written(reference, parallel, one_rank=(1,)),
)
