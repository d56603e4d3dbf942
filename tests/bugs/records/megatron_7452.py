"""The loss over a vocabulary that is cut over ranks is given scores that were gathered: each rank
has all of them, and their exponentials are summed over ranks all the same.
"""

from __future__ import annotations

from bugs.record import Bug, written
from bugs.sketch import Sketch
from zoo.builder import table

from pitcheck.plan.model import Plan

TOKENS, WIDTH, WORDS = 3, 4, 6


def reference() -> Plan:
    plan = Sketch("gathered")
    x, weight = plan.input("x", (TOKENS, WIDTH)), plan.parameter("weight", (WORDS, WIDTH))
    scores = plan.op("linear", x, weight, out="scores")
    normalizer = plan.op("logsumexp", scores, out="normalizer", axis=1)
    chosen = plan.op("one_hot", _target(plan), classes=WORDS)
    hit = plan.op("sum", plan.op("mul", scores, chosen), out="hit", axes=(1,))
    plan.output(plan.op("sub", normalizer, hit, out="loss"))
    return plan.plan()


def _target(plan: Sketch) -> str:
    return plan.input("target", (TOKENS,), {}, dtype="int64", bounds=(0, WORDS))


def parallel(ranks: int, wrong: bool) -> Plan:
    plan = Sketch("gathered-tp", {"tp": ranks})
    own = WORDS // ranks
    x, weight = (
        plan.input("x", (TOKENS, WIDTH), {}),
        plan.parameter("weight", (own, WIDTH), {0: "tp"}),
    )
    scores = plan.op("linear", x, weight, out="scores:own")
    if wrong:
        scores, own = plan.op("all_gather", scores, out="scores", group="tp", axis=1), WORDS
    starts = table("tp", *(own * rank for rank in range(ranks)))
    first = plan.op("boundary", scores, axis=1, offset=starts)
    chosen = plan.op("one_hot", plan.op("sub", _target(plan), first), classes=own)
    normalizer = plan.op("log", _summed(plan, plan.op("exp", scores), "exponentials"))
    hit = _summed(plan, plan.op("mul", scores, chosen), "hit")
    plan.output(plan.op("sub", normalizer, hit, out="loss"))
    return plan.plan()


def _summed(plan: Sketch, x: str, out: str) -> str:
    return str(plan.op("all_reduce", plan.op("sum", x, axes=(1,)), out=out, group="tp"))


BUG = Bug(
    where="Megatron-LM #7452, gathered scores",
    thread="https://github.com/NVIDIA/Megatron-LM/issues/7452",
    should="exponentials of scores are summed over the ranks that have different words",
    was="also when the scores were gathered before: the loss is log(tp) too large",
    codes=("PIT105",),
    says=("tp", "exponentials"),
    shows=written(reference, parallel, two_ranks=(2,), three_ranks=(3,)),
    silent=written(reference, parallel, one_rank=(1,)),
)
