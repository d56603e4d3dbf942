"""Outputs that are finite on one side alone: what is infinite or undefined in truth is a mismatch,
what only overflows is none.
"""

from __future__ import annotations

import pytest
from zoo.builder import Builder

import pitcheck.refute.confirm
from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Plan
from pitcheck.refute.counted_differences import PATIENCE

LARGE = Number("1e200")


def _weights(kind: str) -> Plan:
    """Weights of what is not masked: of the others exp gives 0, and square infinity, which times 0
    is undefined.
    """
    b = Builder("weights")
    x, v = b.input("x", (4, 4)), b.input("v", (4, 3))
    masked = b.op("masked_fill", x, b.op("causal_mask", x), Number("-inf"))
    scaled = b.op("mul", b.op(kind, masked), b.op("exp", masked))
    b.output(b.op("matmul", scaled, v, out="y"))
    return b.plan()


def _overflowing(first: bool, factor: Number) -> Plan:
    """x times and over two large numbers: nothing but ``factor`` in truth, and infinite in float64
    where both are multiplied with first.
    """
    b = Builder("overflows")
    x = b.input("x", (4, 3))
    steps = (("mul", LARGE), ("mul", LARGE), ("div", LARGE), ("div", LARGE)) if first else ()
    for kind, number in (*steps, ("mul", factor)):
        x = b.op(kind, x, number)
    b.output(b.op("identity", x, out="y"))
    return b.plan()


@pytest.fixture(params=[1, PATIENCE])
def dear(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs that cost so many times the usual limit to be confirmed, or a little less."""
    monkeypatch.setattr(pitcheck.refute.confirm, "MOST_WORK", 1000 // request.param)


@pytest.mark.usefixtures("dear")
@pytest.mark.parametrize("seed", range(3))
def test_undefined_on_one_side_is_a_mismatch(seed: int) -> None:
    assert check(_weights("exp"), _weights("exp"), Options(seed=seed)).verdict == "equivalent"
    assert check(_weights("exp"), _weights("square"), Options(seed=seed)).verdict == "mismatch"


@pytest.mark.usefixtures("dear")
@pytest.mark.parametrize("seed", range(3))
def test_overflow_on_one_side_is_none(seed: int) -> None:
    assert (
        check(
            _overflowing(False, Number(3)), _overflowing(True, Number(3)), Options(seed=seed)
        ).verdict
        == "equivalent"
    )
    assert (
        check(
            _overflowing(False, Number(3)), _overflowing(True, Number(4)), Options(seed=seed)
        ).verdict
        == "mismatch"
    )


def _sum_of_logarithms(square: bool, factor: str) -> Plan:
    b = Builder("logarithms")
    x = b.input("x", (2, 2))
    logarithms = b.op("log", b.op("mul", x, x) if square else x)
    total = b.op("sum", b.op("mul", logarithms, Number(factor)), axes=(0, 1))
    b.output(b.op("identity", total, out="y"))
    return b.plan()


def test_where_the_reference_has_no_value_nothing_is_demanded() -> None:
    """It has one where all numbers are positive, in few draws: a difference counts there."""
    reference = _sum_of_logarithms(False, "2")
    for factor, verdict in (("1", "equivalent"), ("2", "mismatch")):
        found = check(reference, _sum_of_logarithms(True, factor), Options(seed=1, explain=False))
        assert found.verdict == verdict, found.findings
