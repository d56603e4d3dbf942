"""Comparisons with 0 that signs decide: a choice by them is the branch taken, and no other is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from zoo.builder import Builder

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Plan

Compared = Callable[[Builder, str], str]


def _masked(b: Builder, x: str) -> str:
    """Return exponentials, of which some are those of minus infinity."""
    mask = b.op("gt", x, Number(1))
    return b.op("exp", b.op("where", mask, b.op("full_like", x, value=float("-inf")), x))


POSITIVE: dict[str, tuple[str, Compared]] = {
    "an exponential and 1 is not 0": (
        "eq",
        lambda b, x: b.op("add", b.op("exp", x), Number(1)),
    ),
    "a square and 1 is not 0": ("eq", lambda b, x: b.op("add", b.op("mul", x, x), Number(1))),
    "a square is not negative": ("lt", lambda b, x: b.op("mul", x, x)),
}
OPEN: dict[str, tuple[str, Compared]] = {
    "a square may be 0": ("eq", lambda b, x: b.op("mul", x, x)),
    "a square may be at most 0": ("le", lambda b, x: b.op("mul", x, x)),
    "what is cut off at 0 may be 0": ("eq", lambda b, x: b.op("relu", x)),
    "a number may be 0": ("eq", lambda b, x: x),
    "a difference of exponentials may be 0": (
        "eq",
        lambda b, x: b.op("sub", b.op("exp", x), Number(1)),
    ),
    "the exponential of minus infinity is 0": ("eq", _masked),
}


def _plan(name: str, comparison: str, compared: Compared | None) -> Plan:
    b = Builder(name, {} if name == "reference" else {"dp": 1})
    given = () if name == "reference" else ({},)
    x, y = (b.input(each, (2, 3), *given) for each in "xy")
    result = b.op("mul", x, y)
    if compared is not None:
        outcome = b.op(comparison, compared(b, x), Number(0))
        result = b.op("where", outcome, b.op("add", y, Number(1)), result)
    b.output(b.op("identity", result, out="out"), *given)
    return b.plan()


def _verdict(comparison: str, compared: Compared) -> str:
    pair = _plan("reference", comparison, compared), _plan("parallel", comparison, None)
    return check(*pair, Options(seed=1, jobs=1, explain=False)).verdict


@pytest.mark.parametrize("case", POSITIVE)
def test_what_never_happens_is_left_out(case: str) -> None:
    assert _verdict(*POSITIVE[case]) == "equivalent"


@pytest.mark.parametrize("case", OPEN)
def test_what_may_happen_is_not(case: str) -> None:
    assert _verdict(*OPEN[case]) in ("mismatch", "inconclusive")


def _divergence(name: str, sign: str = "sub", masked: bool = False) -> Plan:
    """Return the terms of the divergence of two distributions; of the second there are logarithms.

    The reference takes 0 where the first one is 0, as PyTorch does.
    """
    b = Builder(name, {} if name == "reference" else {"dp": 1})
    given = () if name == "reference" else ({},)
    x, y = (b.input(each, (2, 3), *given) for each in "xy")
    if masked:
        hidden = b.op("full_like", x, value=float("-inf"))
        x = b.op("where", b.op("gt", x, Number(1)), hidden, x)
    p = b.op("softmax", x, axis=1)
    logarithm = b.op("log", p)
    if name == "reference":
        nothing = b.op("full_like", x, value=0)
        own = b.op("where", b.op("eq", p, Number(0)), nothing, b.op("mul", p, logarithm))
        terms = b.op("sub", own, b.op("mul", p, y))
    else:
        terms = b.op("mul", p, b.op(sign, logarithm, y))
    b.output(b.op("identity", terms, out="out"), *given)
    return b.plan()


@pytest.mark.parametrize(("sign", "verdict"), [("sub", "equivalent"), ("add", "mismatch")])
def test_a_divergence_written_out(sign: str, verdict: str) -> None:
    pair = _divergence("reference"), _divergence("parallel", sign)
    assert check(*pair, Options(seed=1, jobs=1, explain=False)).verdict == verdict


def test_a_divergence_of_what_may_be_0_written_out() -> None:
    """If a mask makes a probability 0, one side has 0 and the other no value."""
    pair = _divergence("reference", masked=True), _divergence("parallel", masked=True)
    verdict = check(*pair, Options(seed=1, jobs=1, explain=False)).verdict
    assert verdict in ("mismatch", "inconclusive")
