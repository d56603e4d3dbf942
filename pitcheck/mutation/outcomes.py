"""What becomes of a mutant: whether it changes an output, by an executor that knows nothing of the check, and what the check says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from time import process_time
from typing import Literal as OneOf

import msgspec

from pitcheck.errors import UsageError
from pitcheck.execution.judge import Judge, Judgement
from pitcheck.forks import Forks, can_fork
from pitcheck.mutation.mutants import Mutant
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Plan
from pitcheck.report.model import Report

SEEDS = (0, 1, 2)
"""Draws in which an output may show the change."""
MORE_SEEDS = tuple(range(3, 12))
"""Further draws, where the check shows a difference that those did not."""
MOST_INSTANCES = 200_000
MOST_ELEMENTS = 50_000_000
"""What the executor, which loops over ranks, is asked to do at most."""

Check = Callable[[Plan], Report]
"""The check of a plan against the reference; what stops it is a finding, and an internal error one of PIT900."""
Effect = OneOf["changes", "same", "does not run"]
Status = OneOf["caught", "invalid", "survivor", "open", "proven", "unproven", "refused", "alarm", "failed"]
EXPLAINED: dict[Status, str] = {
    "caught": "it changes an output, and the check shows that",
    "invalid": "it changes an output or does not run, and validation refuses it",
    "survivor": "it changes an output or does not run, and is called equivalent",
    "open": "it changes an output, and the check does not decide",
    "proven": "it changes no output, and is proven",
    "unproven": "it changes no output, and the check does not decide",
    "refused": "it changes no output, and validation refuses it",
    "alarm": "the check shows a difference, and the executor none",
    "failed": "the check itself failed",
}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A mutant and what was found. ``codes`` name its mistake rightly; ``code``, ``at`` and ``cause`` are the first finding's, and ``reason`` is its title.

    ``outputs`` are those that differ or are missing, ``error`` says why the mutant does not run; ``seconds`` are of processor time.
    """

    kind: str
    operator: str
    label: str
    place: dict[str, int]
    codes: tuple[str, ...]
    effect: Effect
    outputs: tuple[str, ...] = ()
    error: str = ""
    verdict: str
    code: str = ""
    at: str = ""
    cause: str = ""
    reason: str = ""
    status: Status
    judge_seconds: float = 0.0
    check_seconds: float = 0.0

    @property
    def cause_right(self) -> bool:
        """Whether the first finding names the mistake for what it is."""
        return self.status == "caught" and self.code in self.codes

    @property
    def place_right(self) -> bool:
        """Whether the first finding names the record that was changed."""
        return self.status == "caught" and self.operator in f"{self.at} {self.cause}"

    @property
    def name(self) -> str:
        """One line that says which mutant it is."""
        where = ", ".join(f"{axis}={at}" for axis, at in self.place.items())
        return f"{self.kind}: {self.operator}: {self.label}" + (f" ({where})" if where else "")


@dataclass(frozen=True)
class Trial:
    """What mutants are judged with."""

    judge: Judge
    check: Check

    def outcome(self, mutant: Mutant) -> Outcome:
        """Judge and check a mutant."""
        start = process_time()
        judged = self.judge.often(mutant.plan, SEEDS)
        between = process_time()
        report = self.check(mutant.plan)
        end = process_time()
        if judged.same and report.verdict == "mismatch":
            judged = self.judge.often(mutant.plan, MORE_SEEDS)
        first = report.findings[0] if report.findings else None
        return Outcome(
            kind=mutant.kind,
            operator=mutant.operator,
            label=mutant.label,
            place=dict(mutant.place),
            codes=mutant.codes,
            effect=_effect(judged),
            outputs=tuple((*judged.different, *judged.missing)),
            error=judged.error,
            verdict=report.verdict,
            code=first.code if first else "",
            at=(first.operator or "") if first else "",
            cause=(first.cause or "") if first else "",
            reason=first.title if first else "",
            status=status_of(_effect(judged), report),
            judge_seconds=round(between - start, 3),
            check_seconds=round(end - between, 3),
        )


def _effect(judged: Judgement) -> Effect:
    if judged.error:
        return "does not run"
    return "same" if judged.same else "changes"


def status_of(effect: Effect, report: Report) -> Status:
    """What a report says of a plan that has an effect."""
    if any(finding.code == "PIT900" for finding in report.findings):
        return "failed"
    same = effect == "same"
    if report.verdict == "equivalent":
        return "proven" if same else "survivor"
    if report.verdict == "mismatch":
        return "alarm" if same else "caught"
    if report.verdict == "invalid":
        return "refused" if same else "invalid"
    return "unproven" if same else "open"


def trial(reference: Plan, parallel: Plan, check: Check) -> Trial:
    """What mutants of ``parallel`` are judged with.

    Raises UsageError where the plans are too large to be executed rank by rank, or where ``parallel`` is not right itself.
    """
    for plan, side in ((reference, "reference"), (parallel, "parallel plan")):
        _refuse_large(plan, side)
    judge = Judge(reference)
    found = judge.often(parallel, SEEDS)
    if not found.same:
        raise UsageError(f"mutants are made of a right plan, but this one {_wrong(found)}; mend it first (pitcheck check says more)")
    report = check(parallel)
    if report.verdict != "equivalent":
        raise UsageError(f"mutants are made of a plan that is proven, but of this one the check says {report.verdict}; see pitcheck check")
    return Trial(judge, check)


def _wrong(found: Judgement) -> str:
    if found.error:
        return f"does not run: {found.error}"
    return f"computes another {(*found.different, *found.missing)[0]} than the reference"


def _refuse_large(plan: Plan, side: str) -> None:
    coordinates = Coordinates.of(plan)
    instances = sum(int(coordinates.mask(operator.where).sum()) for operator in plan.operators)
    elements = coordinates.ranks * sum(prod(tensor.shape) * (plan.microbatches if tensor.microbatched else 1) for tensor in plan.tensors)
    if instances > MOST_INSTANCES or elements > MOST_ELEMENTS:
        raise UsageError(
            f"the {side} is too large to be executed rank by rank at full shapes: {instances} operators (at most {MOST_INSTANCES}) on {elements} elements "
            f"(at most {MOST_ELEMENTS}); take a small model and few ranks, such as a -tiny one: --set model=llama3-8b-tiny --set sequences=8 --set length=8 "
            "--set dp=2 --set tp=2 --set pp=2"
        )


def outcomes(of: Trial, some: Sequence[Mutant], jobs: int, progress: Callable[[int, int], None] | None = None) -> Iterator[Outcome]:
    """What becomes of mutants, in their order, in so many processes."""
    if jobs < 2 or len(some) < 2 or not can_fork():
        for number, mutant in enumerate(some):
            yield of.outcome(mutant)
            if progress is not None:
                progress(number + 1, len(some))
        return
    yield from _forked(of, some, jobs, progress)


def _forked(of: Trial, some: Sequence[Mutant], jobs: int, progress: Callable[[int, int], None] | None) -> Iterator[Outcome]:
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
    """A mutant whose process ended without an answer, most often for want of memory."""
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
