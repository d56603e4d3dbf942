"""The ordered strategies of a check: each case is decided by the one that is made for it."""

from __future__ import annotations

import numpy as np
import pytest
from zoo.builder import Builder, lineage
from zoo.pairs import pair

from pitcheck.base.options import Options
from pitcheck.claims.problem import Problem
from pitcheck.engine.state import Check
from pitcheck.engine.strategies import STRATEGIES, prove_at_larger_sizes
from pitcheck.errors import PlanError
from pitcheck.plan.model import Number, Plan
from pitcheck.report.report import Report


def decided(reference: Plan, parallel: Plan) -> tuple[str, str]:
    """Return the strategy that decides a pair, and its verdict."""
    state = Check(reference, parallel, Options(seed=1), 1, np)
    for strategy in STRATEGIES:
        report: Report | None = strategy(state)
        if report is not None:
            return strategy.__name__, report.verdict
    raise AssertionError("nothing decides")


def one(kind: str = "exp", output: str = "y") -> Plan:
    b = Builder("one")
    y = b.op(kind, b.input("x", (2, 3)), out=output or "y")
    if output:
        b.output(y)
    return b.plan()


def unmatched() -> Plan:
    """Rank 0 sends what nobody receives."""
    b = Builder("unmatched", {"dp": 2})
    x = b.input("x", (2, 3))
    b.send(x, 1, {"dp": (0,)})
    b.output(b.op("exp", x, out="y"), spec=lineage("y"))
    return b.plan()


def scaled(by: int) -> Plan:
    b = Builder("scaled")
    b.output(b.op("mul", b.input("x", (2, 3)), Number(by), out="y"))
    return b.plan()


CASES = {
    "a plan without a partner": (one(), unmatched(), "validate", "invalid"),
    "no outputs": (one(output=""), one(output=""), "state_problem", "nothing-checked"),
    "equal formulas": (one(), one(), "prove_over_hints", "equivalent"),
    "another number": (scaled(2), scaled(3), "run_on_reals", "mismatch"),
    "cuts that nobody states": (*pair("row_parallel"), "prove_over_hints", "equivalent"),
}


@pytest.mark.parametrize("name", CASES)
def test_each_case_has_its_strategy(name: str) -> None:
    reference, parallel, strategy, verdict = CASES[name]
    assert decided(reference, parallel) == (strategy, verdict)


def test_the_last_strategy_always_decides_and_calls_nothing_equivalent_that_is_not_proven() -> None:
    state = Check(one(), one(), Options(seed=1), 1, np)
    assert [strategy(state) for strategy in STRATEGIES[:3]] == [None] * 3
    assert STRATEGIES[-1] is prove_at_larger_sizes
    report = prove_at_larger_sizes(state)
    assert report is not None
    assert (report.verdict, report.findings[0].output) == ("inconclusive", "y")


def test_a_problem_of_plans_that_do_not_match_is_none() -> None:
    with pytest.raises(PlanError, match="send"):
        Problem.of(one(), unmatched())
