"""An adapter at the second layer of an expert that is cut over ranks: the layer gives a term of a
sum, which the dispatcher adds up later, and so must the adapter.
"""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Plan

TOKENS, INTO, RANK, OUT = 3, 4, 2, 3


def reference() -> Plan:
    plan = Sketch("expert-adapter")
    x, weight = plan.input("x", (TOKENS, INTO)), plan.parameter("weight", (OUT, INTO))
    first, second = plan.parameter("lora_a", (RANK, INTO)), plan.parameter("lora_b", (OUT, RANK))
    change = plan.op("linear", plan.op("linear", x, first), second, out="change")
    plan.output(plan.op("add", plan.op("linear", x, weight), change, out="y"))
    return plan.plan()


def parallel(ranks: int, wrong: bool) -> Plan:
    plan = Sketch("expert-adapter-etp", {"etp": ranks})
    own = INTO // ranks
    x = plan.input("x", (TOKENS, own), {1: "etp"})
    weight = plan.parameter("weight", (OUT, own), {1: "etp"})
    first = plan.parameter("lora_a", (RANK, own), {1: "etp"})
    second = plan.parameter("lora_b", (OUT, RANK), {})
    inner = plan.op("linear", x, first, out="inner:term")
    if wrong:
        inner = plan.op("all_reduce", inner, out="inner", group="etp")
    change = plan.op("linear", inner, second, out="change")
    both = plan.op("add", plan.op("linear", x, weight), change, out="y:term")
    plan.output(plan.op("all_reduce", both, out="y", group="etp"))
    return plan.plan()


BUG = Bug(
    where="Megatron-Bridge #5634, PR 6089",
    thread="https://github.com/NVIDIA-NeMo/Megatron-Bridge/issues/5634",
    should="an adapter of an expert gives a term where the expert's layer gives one",
    was="the whole change, which the later sum counts once for every rank",
    codes=("PIT105", "PIT108"),
    says=("etp",),
    shows=written(reference, parallel, two_ranks=(2,), four_ranks=(4,)),
    silent=written(reference, parallel, one_rank=(1,)),
)
