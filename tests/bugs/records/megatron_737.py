"""Label smoothing over a vocabulary that is cut over ranks: a share of the target goes to all
words alike.
"""

from __future__ import annotations

from functools import partial

from bugs.record import Bug, Written
from bugs.sketch import Sketch
from zoo.builder import table

from pitcheck.plan.model import Number, Plan

TOKENS, WIDTH, WORDS = 3, 4, 6
SMOOTHING = "1/10"


def reference(smooth: bool) -> Plan:
    plan = Sketch("smoothed")
    x, weight = plan.input("x", (TOKENS, WIDTH)), plan.parameter("weight", (WORDS, WIDTH))
    scores = plan.op("linear", x, weight, out="scores")
    normalizer = plan.op("logsumexp", scores, out="normalizer", axis=1)
    chosen = plan.op("one_hot", _target(plan), classes=WORDS)
    hit = plan.op("sum", plan.op("mul", scores, chosen), out="hit", axes=(1,))
    mean = plan.op("mean", scores, out="mean", axes=(1,))
    plan.output(_loss(plan, normalizer, hit, mean, WORDS if smooth else 0))
    return plan.plan()


def _target(plan: Sketch) -> str:
    return plan.input("target", (TOKENS,), {}, dtype="int64", bounds=(0, WORDS))


def _loss(plan: Sketch, normalizer: str, hit: str, mean: str, words: int) -> str:
    """The loss of a token; ``words``: how many the smoothing counts, 0 without smoothing."""
    loss = plan.op("sub", normalizer, hit, out="" if words else "loss")
    if not words:
        return str(loss)
    share = Number(f"{words}/{10 * (words - 1)}")
    smooth = plan.op("mul", plan.op("sub", normalizer, mean), share)
    kept = plan.op("mul", loss, Number(f"{9 * words - 10}/{10 * (words - 1)}"))
    return str(plan.op("add", kept, smooth, out="loss"))


def parallel(ranks: int, smooth: bool, wrong: bool) -> Plan:
    plan = Sketch("smoothed-tp", {"tp": ranks})
    own = WORDS // ranks
    x, weight = (
        plan.input("x", (TOKENS, WIDTH), {}),
        plan.parameter("weight", (own, WIDTH), {0: "tp"}),
    )
    scores = plan.op("linear", x, weight, out="scores")
    exponentials = _summed(plan, plan.op("exp", scores), "exponentials")
    normalizer = plan.op("log", exponentials, out="normalizer")
    first = plan.op("boundary", scores, axis=1, offset=table("tp", *range(0, WORDS, own)))
    chosen = plan.op("one_hot", plan.op("sub", _target(plan), first), classes=own)
    hit = _summed(plan, plan.op("mul", scores, chosen), "hit")
    if wrong:
        mean, words = plan.op("mean", scores, out="mean", axes=(1,)), own
    else:
        total, words = _summed(plan, scores, "scores:sum"), WORDS
        mean = plan.op("mul", total, Number(f"1/{WORDS}"), out="mean")
    plan.output(_loss(plan, normalizer, hit, mean, words if smooth else 0))
    return plan.plan()


def _summed(plan: Sketch, x: str, out: str) -> str:
    """The sum over the whole vocabulary."""
    return str(plan.op("all_reduce", plan.op("sum", x, axes=(1,)), out=out, group="tp"))


def setting(ranks: int, smooth: bool = True) -> Written:
    return Written(partial(reference, smooth), partial(parallel, ranks, smooth))


BUG = Bug(
    where="Megatron-LM #737, #7464",
    thread="https://github.com/NVIDIA/Megatron-LM/issues/737",
    should="label smoothing counts all words, and takes the mean over all",
    was="those of a rank's part of the vocabulary",
    codes=("PIT104", "PIT102"),
    says=("mean",),
    shows={"two ranks": setting(2), "three ranks": setting(3)},
    silent={"one rank": setting(1), "no smoothing": setting(2, smooth=False)},
)
