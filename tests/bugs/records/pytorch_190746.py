"""Log probabilities over a vocabulary that is cut over ranks, weighted and added up: the derivative
of a logarithm of a softmax is not the identity.
"""

from __future__ import annotations

from functools import partial

from bugs.record import Bug, Written
from bugs.sketch import Sketch

from pitcheck.plan.model import Number, Plan

TOKENS, WIDTH, WORDS = 3, 4, 6


def reference(centred: bool) -> Plan:
    """``centred``: the weights of a token add up to 0."""
    plan = Sketch("log-probabilities")
    x, weight = plan.input("x", (TOKENS, WIDTH)), plan.parameter("weight", (WORDS, WIDTH))
    factors = plan.input("factors", (TOKENS, WORDS))
    if centred:
        factors = plan.op("sub", factors, plan.op("mean", factors, axes=(1,), keepdim=True))
    scores = plan.op("linear", x, weight, out="scores")
    logarithms = plan.op("log_softmax", scores, out="log_probabilities", axis=-1)
    plan.output(plan.op("sum", plan.op("mul", factors, logarithms), out="loss"))
    plan.back("log_softmax", [scores], logarithms, factors, ["grad:scores"], axis=-1)
    plan.gradient(_weight(plan, x), "weight")
    return plan.plan()


def _weight(plan: Sketch, x: str) -> str:
    return str(plan.op("einsum", "grad:scores", x, equation="tv,td->vd", out="grad:weight"))


def parallel(ranks: int, centred: bool, wrong: bool) -> Plan:
    plan = Sketch("log-probabilities-tp", {"tp": ranks})
    x = plan.input("x", (TOKENS, WIDTH), {})
    weight = plan.parameter("weight", (WORDS // ranks, WIDTH), {0: "tp"})
    factors = plan.input("factors", (TOKENS, WORDS // ranks), {1: "tp"})
    if centred:
        total = _over_words(plan, factors, "factors:sum")
        factors = plan.op("sub", factors, plan.op("mul", total, Number(f"1/{WORDS}")))
    scores = plan.op("linear", x, weight, out="scores")
    exponentials = _over_words(plan, plan.op("exp", scores), "exponentials:sum")
    logarithms = plan.op("sub", scores, plan.op("log", exponentials), out="log_probabilities")
    own = plan.op("sum", plan.op("mul", factors, logarithms))
    plan.output(plan.op("all_reduce", own, out="loss", group="tp"))
    if wrong:
        plan.op("identity", factors, out="grad:scores")
    else:
        all_factors = _over_words(plan, factors, "grad:sum")
        shares = plan.op("mul", plan.op("exp", logarithms), all_factors)
        plan.op("sub", factors, shares, out="grad:scores")
    plan.gradient(_weight(plan, x), "weight")
    return plan.plan()


def _over_words(plan: Sketch, x: str, out: str) -> str:
    own = plan.op("sum", x, axes=(1,), keepdim=True)
    return str(plan.op("all_reduce", own, out=out, group="tp"))


def setting(ranks: int, centred: bool = False) -> Written:
    return Written(partial(reference, centred), partial(parallel, ranks, centred))


BUG = Bug(
    where="pytorch #190746",
    thread="https://github.com/pytorch/pytorch/issues/190746",
    should="the gradient of scores is g - softmax * (sum of g over the whole vocabulary)",
    was="the derivative of log_softmax is the identity, which is right only before nll_loss",
    codes=("PIT108", "PIT102", "PIT104"),
    says=("grad:scores",),
    shows={"two ranks": setting(2), "three ranks": setting(3)},
    silent={"weights that add up to 0": setting(2, centred=True)},
)
