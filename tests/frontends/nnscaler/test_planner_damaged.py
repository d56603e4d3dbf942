"""Damaged copies of a real planner's plans: the verdict is what an independent executor, run on the
same plans rank by rank, calls for.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from frontends.nnscaler.planner_mutations import planner_mutants
from support.planner_plans import LLAMA, MLP, SHIPPED, read, run, said, text_of
from zoo.mutations import mutants

from pitcheck.execution.judge import judge_often
from pitcheck.plan.model import Plan
from pitcheck.report.report import Report

MLP_PLANS = {
    name: f"pairs/mlp-L4-gbs128.dp2-pp2-tp2-mb2.{name}.pkl"
    for name in ("megatron", "row", "column", "batch")
}
SMALL_PLANS = {
    "tensor": "pairs/mlp-L4-gbs128.dp1-pp1-tp2-mb1.megatron.pkl",
    "pipeline": "pairs/mlp-L4-gbs128.dp1-pp2-tp1-mb2.megatron.pkl",
}
LLAMA_PLAN = "pairs/llama-L2-gbs32.dp2-pp2-tp2-mb2.pkl"
SEEDS = (0, 1)
SHUFFLE = 20


@dataclass
class Outcome:
    """The outcome of a number of mutants.

    ``counts`` has their number by the executor's word and the verdict; ``wrong`` has the wrong
    ones.
    """

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def of(self, truth: str) -> int:
        """Return for how many mutants the executor has this word."""
        return sum(number for (what, _), number in self.counts.items() if what == truth)


def truth_of(reference: Plan, mutant: Plan) -> str:
    """Return the executor's word for a mutant: same, different, missing or stuck."""
    judgement = judge_often(reference, mutant, SEEDS)
    if judgement.same:
        return "same"
    return "stuck" if judgement.error else "different" if judgement.different else "missing"


def right_verdict(truth: str, report: Report) -> bool:
    if truth == "same":
        return report.verdict == "equivalent"
    if truth == "missing":
        return report.verdict in ("mismatch", "invalid", "inconclusive")
    return report.verdict in (("invalid",) if truth == "stuck" else ("mismatch", "invalid"))


def tried(
    reference: Plan,
    base: Plan,
    generate: Callable[[Plan], Iterator[tuple[str, Plan]]],
    most: int | None,
) -> Outcome:
    """The outcome of all mutants, or of ``most`` chosen by a fixed shuffle."""
    chosen = list(generate(base))
    if most is not None:
        random.Random(SHUFFLE).shuffle(chosen)
    outcome = Outcome()
    for name, mutant in chosen[:most]:
        truth = truth_of(reference, mutant)
        report = run(reference, mutant)
        outcome.counts[truth, report.verdict] += 1
        if not right_verdict(truth, report):
            outcome.wrong.append(f"{name} | {truth}, but {said(report)}")
        if report.verdict in ("mismatch", "invalid") and not any(
            f.verdict == report.verdict and text_of(f) for f in report.findings
        ):
            outcome.wrong.append(f"{name} | {report.verdict} without a finding")
    return outcome


def check_outcome(outcome: Outcome, least: int) -> None:
    """No wrong verdict; and at least ``least`` mutants that change an output or hang, or the test
    says little.
    """
    assert not outcome.wrong, "\n".join(outcome.wrong)
    assert outcome.of("different") + outcome.of("stuck") >= least


# --- the reference against a damaged copy of itself


def test_damaged_reference() -> None:
    reference = read(SHIPPED, MLP)
    outcome = tried(reference, reference, mutants, None)
    check_outcome(outcome, 40)
    assert outcome.counts["different", "mismatch"] >= 40


@pytest.mark.parametrize(
    "most", [6, pytest.param(24, marks=[pytest.mark.slow, pytest.mark.nightly])]
)
def test_damaged_reference_of_llama(most: int) -> None:
    reference = read(SHIPPED, LLAMA)
    check_outcome(tried(reference, reference, mutants, most), most // 3)


# --- damaged parallel plans


@pytest.mark.parametrize(
    "most", [10, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.nightly])]
)
@pytest.mark.parametrize("name", MLP_PLANS)
def test_damaged_parallel_plan(name: str, most: int | None) -> None:
    check_outcome(
        tried(read(SHIPPED, MLP), read(SHIPPED, MLP_PLANS[name]), mutants, most), most // 2
    )


@pytest.mark.parametrize(
    "most", [10, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.nightly])]
)
@pytest.mark.parametrize("name", [*MLP_PLANS, *SMALL_PLANS])
def test_damaged_communication_of_a_parallel_plan(name: str, most: int | None) -> None:
    check_outcome(
        tried(
            read(SHIPPED, MLP),
            read(SHIPPED, {**MLP_PLANS, **SMALL_PLANS}[name]),
            planner_mutants,
            most,
        ),
        most // 3,
    )


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("generate", [mutants, planner_mutants])
def test_damaged_parallel_plan_of_llama(
    generate: Callable[[Plan], Iterator[tuple[str, Plan]]],
) -> None:
    check_outcome(tried(read(SHIPPED, LLAMA), read(SHIPPED, LLAMA_PLAN), generate, 15), 5)
