"""The mean over tokens, accumulated over micro-batches of different numbers of samples."""

from __future__ import annotations

from functools import partial

from bugs.record import Bug, Written
from bugs.sketch import Sketch
from bugs.token_losses import LENGTH, ROWS, given, mean_over_tokens, sums

from pitcheck.plan.model import Number, Plan

Parts = tuple[tuple[int, int], ...]


def parallel(masked: bool, parts: Parts, wrong: bool) -> Plan:
    """``parts``: the first sample of every micro-batch, and the one after the last."""
    plan = Sketch("token-mean-accumulated")
    given(plan, ROWS, LENGTH, {}, masked)
    tokens = plan.op("sum", "mask", out="tokens")
    terms = [_terms(plan, low, high, tokens, wrong) for low, high in parts]
    plan.output(_added(plan, [loss for loss, _ in terms], "loss"))
    plan.gradient(_added(plan, [gradient for _, gradient in terms], "grad:weight"), "weight")
    return plan.plan()


def _terms(plan: Sketch, low: int, high: int, tokens: str, wrong: bool) -> list[str]:
    """Loss and gradient of a micro-batch."""
    x, mask, losses = (
        plan.op("slice", whole, axis=0, start=low, stop=high) for whole in ("x", "mask", "losses")
    )
    total, count, gradient = sums(plan, x, mask, losses)
    if not wrong:
        return [plan.op("div", part, tokens) for part in (total, gradient)]
    share = Number(f"{high - low}/{ROWS}")
    return [plan.op("mul", plan.op("div", part, count), share) for part in (total, gradient)]


def _added(plan: Sketch, terms: list[str], name: str) -> str:
    return str(plan.op("sum", plan.op("stack", *terms, axis=0), out=name, axes=(0,)))


def setting(masked: bool, *parts: tuple[int, int]) -> Written:
    return Written(partial(mean_over_tokens, masked), partial(parallel, masked, parts))


BUG = Bug(
    where="verl #5625",
    thread="https://github.com/verl-project/verl/issues/5625",
    should="a micro-batch's losses are summed, and divided by the number of tokens of the batch",
    was="by the number of its own tokens, times its share of the samples",
    codes=("PIT112", "PIT108"),
    says=("11:div", "the mean of such means"),
    shows={
        "one sample and three": setting(True, (0, 1), (1, 4)),
        "two samples twice": setting(True, (0, 2), (2, 4)),
    },
    silent={
        "all tokens count": setting(False, (0, 1), (1, 4)),
        "one micro-batch": setting(True, (0, 4)),
    },
)
