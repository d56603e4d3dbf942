"""The ledger of errors: every attempt counts, each draws numbers of its own, and the sum is what
the report says.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from zoo.builder import Builder
from zoo.pairs import pair

from pitcheck.base.options import Options
from pitcheck.claims.problem import Problem
from pitcheck.claims.specification import specify
from pitcheck.engine.check import check
from pitcheck.graph.lowering import lower
from pitcheck.plan.schedule.matching import match
from pitcheck.prove import stage_proof as prove
from pitcheck.prove.draws import shaped_proof
from pitcheck.prove.error_budget import EARLIER, HINTS, Attempts, ErrorBudget
from pitcheck.prove.proof import Proof, Settings
from pitcheck.prove.prover import Prover
from pitcheck.prove.stage_proof import prove_stage
from pitcheck.stage.building import build_stage
from pitcheck.stage.canonical import canonical_form
from pitcheck.stage.stage import Target


def test_an_attempt_counts_in_full_until_it_is_settled() -> None:
    attempts = Attempts("y", -20.0)
    assert attempts.spent_log2 == -math.inf
    first, second = attempts.reserve("sizes"), attempts.reserve("sizes")
    assert attempts.spent_log2 == -19.0
    attempts.settle(second, -40.0)
    assert attempts.spent_log2 == pytest.approx(math.log2(2.0**-20 + 2.0**-40), abs=1e-12)
    attempts.settle(first, -math.inf)
    assert (attempts.spent_log2, attempts.count) == (-40.0, 2)
    attempts.reserve("tables", 30.0)
    assert attempts.spent_log2 == pytest.approx(math.log2(2.0**-40 + 2.0**-50), abs=1e-12)


def test_no_two_attempts_draw_by_one_seed() -> None:
    seeds = set()
    for statement in ("y", "z", "y, sizes"):
        attempts = Attempts(statement, -20.0)
        for kind in ("sizes 0", "sizes 1", "parts apart, sizes 0", "sizes 0"):
            attempt = attempts.reserve(kind)
            assert attempt.seed(1) == replace(attempt).seed(1)
            seeds |= {attempt.seed(1), attempt.seed(2), attempt.seed(2**128 - 1)}
    assert len(seeds) == 3 * 4 * 3
    assert all(0 <= seed < 2**128 for seed in seeds)


def test_the_budget_adds_up_what_was_tried_and_what_was_set_aside() -> None:
    budget = ErrorBudget(-10.0)
    budget.enter("y", -14.0, 3)
    budget.enter("z", -14.0, 1)
    budget.enter("y", -14.0, 3)
    assert (budget.spent_log2, budget.attempts, budget.holds) == (-13.0, 4, True)
    budget.set_aside(HINTS, -11.0)
    budget.enter("y", -10.5, 1)
    assert not budget.holds
    assert not budget.allows_more
    budget.withdraw("y")
    assert budget.spent_log2 == -11.0


@pytest.mark.parametrize("aside", [-math.inf, -12.0, -10.1])
def test_as_many_attempts_as_before_fit_at_the_next_allowance(aside: float) -> None:
    budget = ErrorBudget(-10.0)
    budget.set_aside(EARLIER, aside)
    for number in range(37):
        budget.enter(str(number), -3.0, 3)
    allowance = budget.again()
    for number in range(37):
        attempts = Attempts(str(number), allowance)
        for _ in range(3):
            attempts.reserve("sizes")
        budget.enter(str(number), attempts.spent_log2, attempts.count)
    assert budget.holds


def test_nothing_is_reached_where_nothing_is_left() -> None:
    budget = ErrorBudget(-10.0)
    budget.set_aside(EARLIER, -10.0)
    assert budget.again() <= -1e6


def graphs(name: str) -> tuple[Any, Any, Any]:
    plans = pair(name)
    first, second = (lower(plan, match(plan)[0]) for plan in plans)
    return first, second, specify(*plans, first, second)


def settings(**more: Any) -> Settings:
    return Settings(np, 5, -64.0, 1, False, 1 << 30, **more)


def one_stage(name: str) -> tuple[Any, dict[int, str]]:
    first, second, specification = graphs(name)
    stage = build_stage(
        first,
        second,
        specification.initial.get,
        [Target.at(e.cut, e.where, second, e.name) for e in specification.expected],
    )
    return stage, canonical_form(stage)[1]


def test_every_evaluation_of_a_stage_is_by_an_attempt_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each set of sizes, and each retry, has another seed, and all of them are counted."""
    seen: list[int] = []
    plain = shaped_proof.decide

    def judged(trials: Any) -> Proof | None:
        seen.append(trials._settings.seed)
        return plain(trials)

    monkeypatch.setattr(shaped_proof, "decide", judged)
    stage, keys = one_stage("row_parallel")
    proof = prove_stage(stage, keys, settings(), "y")
    assert proof.outcome == "proven"
    assert len({*seen}) == proof.attempts >= 2
    again: list[int] = []
    monkeypatch.setattr(
        shaped_proof,
        "decide",
        lambda trials: (again.append(trials._settings.seed), plain(trials))[1],
    )
    assert replace(prove_stage(stage, keys, settings(), "y"), reductions=proof.reductions) == proof
    assert again == seen
    again.clear()
    prove_stage(stage, keys, settings(), "z")
    assert not {*again} & {*seen}


@pytest.mark.parametrize("first", ["inconclusive", "failed"])
def test_an_attempt_that_failed_before_one_that_holds_counts(
    monkeypatch: pytest.MonkeyPatch, first: Any
) -> None:
    """Parts that are taken apart are tried before the stage as it stands: a false stage had two
    chances.
    """
    stage, keys = one_stage("row_parallel")
    made: list[Proof] = []

    def judged(_: object) -> Proof:
        made.append(Proof("proven", -70.0) if made else Proof(first, code="PIT204"))
        return made[-1]

    monkeypatch.setattr(prove, "_apart", lambda stage, _: replace(stage))
    monkeypatch.setattr(shaped_proof, "decide", judged)
    proof = prove_stage(stage, keys, settings(), "y")
    assert proof.outcome == "proven"
    assert proof.attempts == len(made) > 2
    assert proof.error_log2 == pytest.approx(
        math.log2(2.0**-64 + (len(made) - 1) * 2.0**-70), abs=1e-9
    )


def test_tables_that_fail_count_with_less_than_a_chain_may_spend() -> None:
    """exp(a + b) = exp(a) exp(b) is an identity of chains, and none of tables."""
    sums = Builder("sums"), Builder("products")
    for b in sums:
        x, y = b.input("x", (4, 6)), b.input("y", (4, 6))
        power = (
            b.op("exp", b.op("add", x, y))
            if b is sums[0]
            else b.op("mul", b.op("exp", x), b.op("exp", y))
        )
        b.output(b.op("identity", power, out="result"))
    stage = Problem.of(*(b.plan() for b in sums)).whole_stage()
    proof = prove_stage(stage, {0: "x", 1: "y"}, settings(), "result")
    without = prove_stage(stage, {0: "x", 1: "y"}, settings(free_functions=False), "result")
    assert proof.outcome == without.outcome == "proven"
    assert "a law of a function" in proof.no_tables
    assert proof.attempts == without.attempts + 1
    assert proof.error_log2 == pytest.approx(
        math.log2(2.0**without.error_log2 + 2.0**-70), abs=1e-9
    )


def test_hints_that_came_to_nothing_count_with_half_of_what_is_accepted() -> None:
    first, second, specification = graphs("row_parallel")
    problem = Problem(first, second, specification)
    prover = Prover(problem, settings(), accepted_log2=-60.0)
    prover.budget.set_aside(HINTS, -61.0)
    ledger = prover.run({})
    assert all(o.proof.outcome == "proven" for o in ledger.obligations)
    assert -61.0 < ledger.budget.spent_log2 <= -60.0


def test_the_report_says_what_the_ledger_spent() -> None:
    report = check(*pair("row_parallel"), Options(seed=1))
    assert report.verdict == "equivalent"
    assert report.error_bound_log2 <= -64
