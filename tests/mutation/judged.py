"""Mutants of pairs of plans, judged and checked."""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.base.options import Options
from pitcheck.commands.checking.pair import checked
from pitcheck.mutation.mutants import mutants
from pitcheck.mutation.outcomes import Outcome
from pitcheck.mutation.trial import Trial, outcomes, trial
from pitcheck.plan.model import Plan
from pitcheck.report.report import Report


def trial_of(reference: Plan, parallel: Plan, seed: int = 1) -> Trial:
    """Return the trial by which mutants of a right plan are judged."""

    def check(plan: Plan) -> Report:
        return checked([lambda: [reference], lambda: [plan]], Options(seed=seed))

    return trial(reference, parallel, check)


def judged(
    reference: Plan, parallel: Plan, kinds: Sequence[str], count: int, seed: int = 1
) -> list[Outcome]:
    """Return the outcomes of mutants of a right plan."""
    return list(
        outcomes(
            trial_of(reference, parallel, seed), list(mutants(parallel, count, seed, kinds)), 1
        )
    )


def wrong(told: Sequence[Outcome]) -> list[str]:
    """Outcomes that are a mistake of the check (or of the executor), as text."""
    return [
        f"{outcome.status}: {outcome.name}: {outcome.code} {outcome.reason}"
        for outcome in told
        if outcome.status in ("survivor", "alarm", "failed")
    ]
