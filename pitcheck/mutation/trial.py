"""The trial of mutants: executed rank by rank next to the reference, and checked.

This needs PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from pitcheck.errors import UsageError
from pitcheck.execution.judge import TOLERANCE, Judge, Judgement
from pitcheck.forks import Forks, can_fork
from pitcheck.mutation.mutants import Mutant
from pitcheck.mutation.outcomes import Effect, Outcome, status_of
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Plan
from pitcheck.report.report import Report

SEEDS = tuple(range(12))
"""The draws in which an output may show the change."""
FINEST = 1e-12
ABOVE_NOISE = 1000
"""A difference counts if it is this many times that of the right plan, which is rounding.

It also counts only if it is at least ``FINEST`` of the largest element.
"""
MOST_INSTANCES = 200_000
MOST_ELEMENTS = 50_000_000
"""Limits for the executor, which loops over ranks: operator instances, and elements of all ranks.
"""

Check = Callable[[Plan], Report]
"""The check of a plan against the reference.

What stops it is a finding; an internal error is a finding with code PIT900.
"""


@dataclass(frozen=True)
class Trial:
    """The judge and the check of mutants."""

    judge: Judge
    check: Check

    def outcome(self, mutant: Mutant) -> Outcome:
        """Return the outcome of a mutant."""
        judged = self.judge.often(mutant.plan, SEEDS)
        report = self.check(mutant.plan)
        first = report.findings[0] if report.findings else None
        return Outcome(
            kind=mutant.kind,
            operator=mutant.operator,
            label=mutant.label,
            place=dict(mutant.place),
            codes=mutant.codes,
            effect=_effect(judged),
            outputs=(*judged.different, *judged.missing),
            error=judged.error,
            verdict=report.verdict,
            code=first.code if first else "",
            at=(first.operator or "") if first else "",
            cause=(first.cause or "") if first else "",
            reason=first.title if first else "",
            status=status_of(_effect(judged), report),
        )


def _effect(judged: Judgement) -> Effect:
    if judged.error:
        return "does not run"
    return "same" if judged.same else "changes"


def trial(reference: Plan, parallel: Plan, check: Check) -> Trial:
    """Return the judge and the check of mutants of ``parallel``.

    Raises UsageError as :func:`judge_of` does, and for a ``parallel`` that is not proven.
    """
    judge = judge_of(reference, parallel)
    report = check(parallel)
    if report.verdict != "equivalent":
        raise UsageError(
            f"mutants are made of a plan that is proven, but of this one the check says "
            f"{report.verdict}; see pitcheck check"
        )
    return Trial(judge, check)


def judge_of(reference: Plan, parallel: Plan, seeds: Sequence[int] = SEEDS) -> Judge:
    """Return the judge of mutants of ``parallel``, whose tolerance is above the plan's rounding.

    ``seeds`` are the draws in which mutants will be judged, and in which rounding is measured.

    Raises UsageError for plans that are too large to be executed rank by rank, and for a
    ``parallel`` that is not right itself.
    """
    for plan, side in ((reference, "reference"), (parallel, "parallel plan")):
        _refuse_large(plan, side)
    judge = Judge(reference)
    noise = 0.0
    for seed in seeds:
        found = judge.once(parallel, seed)
        if not found.same:
            raise UsageError(
                f"mutants are made of a right plan, but this one {_wrong(found)}; mend it first "
                f"(pitcheck check says more)"
            )
        noise = max(noise, found.largest)
    return judge.of_tolerance(min(TOLERANCE, max(FINEST, ABOVE_NOISE * noise)))


def _wrong(found: Judgement) -> str:
    if found.error:
        return f"does not run: {found.error}"
    return f"computes another {(*found.different, *found.missing)[0]} than the reference"


def _refuse_large(plan: Plan, side: str) -> None:
    coordinates = Coordinates.of(plan)
    instances = sum(int(coordinates.mask(operator.where).sum()) for operator in plan.operators)
    elements = coordinates.ranks * sum(
        prod(tensor.shape) * (plan.microbatches if tensor.microbatched else 1)
        for tensor in plan.tensors
    )
    if instances > MOST_INSTANCES or elements > MOST_ELEMENTS:
        raise UsageError(
            f"the {side} is too large to be executed rank by rank at full shapes: {instances} "
            f"operators (at most {MOST_INSTANCES}) on {elements} elements "
            f"(at most {MOST_ELEMENTS}); take a small model and few ranks, such as a -tiny one: "
            f"--set model=llama3-8b-tiny --set sequences=8 --set length=8 "
            "--set dp=2 --set tp=2 --set pp=2"
        )


def outcomes(
    of: Trial, some: Sequence[Mutant], jobs: int, progress: Callable[[int, int], None] | None = None
) -> Iterator[Outcome]:
    """Yield the outcomes of mutants in their order, from ``jobs`` processes."""
    if jobs < 2 or len(some) < 2 or not can_fork():
        for number, mutant in enumerate(some):
            yield of.outcome(mutant)
            if progress is not None:
                progress(number + 1, len(some))
        return
    yield from _forked(of, some, jobs, progress)


def _forked(
    of: Trial, some: Sequence[Mutant], jobs: int, progress: Callable[[int, int], None] | None
) -> Iterator[Outcome]:
    forks: Forks[int] = Forks()
    done: dict[int, Outcome] = {}
    started = ended = given = 0
    try:
        while given < len(some):
            while started < len(some) and len(forks.running) < jobs:
                forks.start(started, of.outcome, some[started])
                started += 1
            for process in forks.ended():
                done[process.key] = process.answer or _lost(some[process.key], process.code)
                ended += 1
                if progress is not None:
                    progress(ended, len(some))
            while given in done:
                yield done.pop(given)
                given += 1
    finally:
        forks.stop()


def _lost(mutant: Mutant, code: int | None) -> Outcome:
    """Return the outcome of a mutant whose process ended without an answer.

    Most often that is for want of memory.
    """
    return Outcome(
        kind=mutant.kind,
        operator=mutant.operator,
        label=mutant.label,
        place=dict(mutant.place),
        codes=mutant.codes,
        effect="same",
        verdict="invalid",
        code="PIT900",
        reason=f"the process of the check ended with code {code}",
        status="failed",
    )
