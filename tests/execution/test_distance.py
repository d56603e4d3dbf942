"""The distance of two outputs.

Rounding of a number that is 0 in truth is no distance; a change of a small output is one.
"""

from __future__ import annotations

import numpy as np
import pytest
from programs.faults import at_place, first_operand
from programs.program_cases import case, llama
from zoo.builder import Builder

from pitcheck.execution.judge import TOLERANCE, Judge
from pitcheck.execution.rounding import ABOVE, MOST, allowed, distance
from pitcheck.plan.model import Number, Plan


@pytest.mark.parametrize(
    ("whole", "other", "apart"),
    [
        ([1.0, 2.0], [1.0, 2.0 + 1e-12], False),
        ([1.0, 2.0], [1.0, 2.0 + 1e-8], True),
        # The gradient of a bias that every score has is 0; what float64 makes of it is rounding.
        ([8e-15, -3e-15], [-2e-13, 1e-13], False),
        # A second moment, and what it is without a factor of 2.
        ([3e-7, 1e-8], [6e-7, 2e-8], True),
        ([np.nan, 1.0], [np.nan, 1.0], False),
        ([np.inf, 1.0], [-np.inf, 1.0], True),
        ([np.inf, 1.0], [1.0, 1.0], True),
    ],
)
def test_distance(whole: list[float], other: list[float], apart: bool) -> None:
    assert (distance(np.array(other), np.array(whole), np.array(whole)) > TOLERANCE) is apart


def cancelling(times: str, factor: str = "1", after: str = "0") -> Plan:
    """Return a plan of y = x * (1 + ``after``), computed by way of a sum with much larger terms.

    ``times`` is how much larger they are; with "0" nothing is lost.
    """
    b = Builder(f"cancelling {times} {factor} {after}")
    x, large = b.input("x", (64,)), b.input("large", (64,))
    big = b.op("mul", large, Number(times))
    found = b.op("sub", b.op("add", x, big), b.op("mul", big, Number(factor)))
    more = b.op("add", found, b.op("mul", x, Number(after)), out="y")
    b.output(more)
    return b.plan()


SEEDS = range(3)


def test_what_cancellation_loses_is_no_difference() -> None:
    """A sum of terms that are 10^8 times larger leaves 8 digits of 16."""
    judge, other = Judge(cancelling("100000000")), cancelling("0")
    apart = [judge.of_tolerance(1.0).once(other, seed).largest for seed in SEEDS]
    assert max(apart) > TOLERANCE
    assert all(judge.once(other, seed).same for seed in SEEDS)


@pytest.mark.parametrize(
    ("times", "wrong"),
    [
        ("100000000", cancelling("0", after="1/100000")),  # what is above MOST is no rounding
        ("1000000000000", cancelling("0", after="1/100000")),
        ("1", cancelling("1", after="1/100000000")),
        ("1", cancelling("1", factor="100000001/100000000")),
        ("0", cancelling("0", after="1/100000000")),
    ],
)
def test_a_real_difference_is_one(times: str, wrong: Plan) -> None:
    judge = Judge(cancelling(times))
    assert all(judge.once(wrong, seed).different == ["y"] for seed in SEEDS)


def test_what_the_parallel_plan_loses_by_its_own_way_is_no_difference() -> None:
    """As a ring does that merges many parts, beside a reference that loses nothing."""
    judge, other = Judge(cancelling("0")), cancelling("100000000")
    assert judge.of_tolerance(1.0).once(other, 0).largest > TOLERANCE
    assert all(judge.once(other, seed).same for seed in SEEDS)
    wrong = cancelling("100000000", after="1/100000")
    assert all(judge.once(wrong, seed).different == ["y"] for seed in SEEDS)


def test_the_rounding_that_is_allowed_has_a_bound() -> None:
    assert allowed(1e-13, 1e-12) == allowed(1e-12, 0.0) == ABOVE * 1e-12
    assert allowed(1e-3, 0.0) == MOST
    assert allowed(0.0, 0.0) == 0


@pytest.mark.slow
def test_a_ring_of_32_ranks_is_right_and_a_mistake_in_it_is_not() -> None:
    """The scores of this draw are so large that the softmax is nearly one-hot."""
    reference, parallel = case(
        llama(1), 1, 64, cp=32, tp=1, context="ring", zigzag=True, schedule="1f1b"
    ).plans()
    judge = Judge(reference)
    assert judge.once(parallel, 35).same
    factor = next(
        o.id
        for o in parallel.operators
        if o.kind == "mul" and any("rescale.1" in str(name) for name in o.inputs)
    )
    wrong = at_place(parallel, factor, {"cp": 5}, first_operand)
    assert not judge.often(wrong, (35, 0, 1)).same
