"""A check of pairs of plans in turn, until one is proven or the last one decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from secrets import randbits
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from pitcheck.algebra.bound.degree_bounds import log2_sum
from pitcheck.base.options import Options
from pitcheck.base.work import Work
from pitcheck.commands.checking.pair import checked, unread_report
from pitcheck.commands.progress import Progress, limited
from pitcheck.errors import Interrupted
from pitcheck.frontends.protocol import Attempt
from pitcheck.plan.model import Plan
from pitcheck.report.report import Finding, Report

if TYPE_CHECKING:
    from pitcheck.engine.state import Check

MOST_NAMED = 3
"""The findings on a pair that does not decide, beside those on the one that does."""


def checked_in_turn(
    attempts: Callable[[], Iterator[Attempt]],
    options: Options,
    progress: Progress | None = None,
    named: Sequence[str] = (),
    stopped: Callable[[Exception], None] = lambda _: None,
) -> Report:
    """Return the report on the first pair of plans that is proven, or on the one that decides.

    A proof of any pair is a proof of the one that decides. Together they keep to the accepted error
    of ``options``: the i-th of n takes 2**-i of it, the last what is left. The bound of the report
    counts the pairs that were tried before, which might have been called equivalent wrongly. What
    stops the last check is a finding of the report, and ``stopped`` is told it.

    Raises UsageError, which is about the command and not about the plans.
    """
    with limited(options.seconds, progress) as work:
        return _in_turn(attempts, options, work, named, stopped)


def _in_turn(
    attempts: Callable[[], Iterator[Attempt]],
    options: Options,
    work: Work,
    named: Sequence[str],
    stopped: Callable[[Exception], None],
) -> Report:
    """Return the report of :func:`checked_in_turn`; ``work`` ends the check when time is up."""
    start, iterator = perf_counter(), attempts()
    failed: tuple[Finding, ...] = ()
    causes: tuple[Finding, ...] = ()
    seed = randbits(128) if options.seed is None else options.seed
    accepted: list[float] = []
    while True:
        try:
            attempt, read = _next(iterator)
        except Interrupted as error:
            return unread_report(work, str(error), options, start)
        decides = attempt.decides
        loaded = perf_counter() - start
        bound = options.error_bound_log2 - len(accepted) - (not decides)
        terms = replace(options, seed=seed, error_bound_log2=bound)
        if not decides:
            terms = replace(terms, prove_rest=False, witness_directory=None)
        told = stopped if decides else lambda _: None
        refusals: list[str] = []
        report = checked(
            [read],
            terms,
            work,
            named=named,
            stopped=told,
            decided=partial(_note_refusal, attempt.states, refusals),
            causes=causes,
        )
        # States that nothing was said of are refused, too.
        returned = not attempt.states or refusals == [""]
        if work.over or decides or (report.verdict == "equivalent" and returned):
            report = _counted(report, accepted, loaded, perf_counter() - start)
            if report.verdict == "inconclusive":
                report = msgspec.structs.replace(report, findings=(*report.findings, *failed))
            return msgspec.structs.replace(
                report, reductions=(*attempt.reductions, *report.reductions)
            )
        accepted.append(bound)
        failed = (
            *failed,
            *(
                _unproven(attempt, why)
                for why in refusals
                if why and report.verdict == "equivalent"
            ),
            *(
                _unproven(attempt, each.title, each.output, each.operator)
                for each in report.findings[:MOST_NAMED]
            ),
        )
        causes = tuple(map(_tried_on_any_state, _causes(report)))


def _next(iterator: Iterator[Attempt]) -> tuple[Attempt, Callable[[], Sequence[Plan]]]:
    """Return the next attempt, and what gives its plans, or raises what reading them raised."""
    try:
        attempt = next(iterator)
    except Exception as error:
        return Attempt(()), partial(_fail, error)
    return attempt, lambda: attempt.plans


def _note_refusal(states: Mapping[str, Sequence[str]], refusals: list[str], check: Check) -> None:
    """Note why outputs may not be taken for inputs, if a check has proven all of them."""
    if states and check.ledger.obligations and not check.ledger.open_outputs:
        refusals.append(check.prover.refusal_of(check.ledger, states))


def _fail(error: Exception) -> Sequence[Plan]:
    raise error


def _causes(report: Report) -> Sequence[Finding]:
    """Return the findings on a pair if their repairs make all of its outputs right, else none.

    They then make the pair that decides right, too.
    """
    found = [finding for finding in report.findings if finding.verdict == "mismatch"]
    tried = [finding.tried for finding in found if finding.tried is not None]
    right = {name for each in tried for name in each.right}
    mended = len(tried) == len(found) and not any(each.wrong for each in tried)
    return found if mended and right >= {*report.differing} else ()


def _tried_on_any_state(finding: Finding) -> Finding:
    """Return a finding that says where its repair was tried."""
    tried = finding.tried
    if tried is None:
        return finding
    said = tried.said.replace("tested", "tested on one iteration in any state", 1)
    return msgspec.structs.replace(
        finding,
        repair=finding.repair and finding.repair.replace(tried.said, said),
        tried=msgspec.structs.replace(tried, said=said),
    )


def _unproven(
    attempt: Attempt, title: str, output: str | None = None, operator: str | None = None
) -> Finding:
    """Return the finding on a pair whose verdict does not decide, as one that decides nothing."""
    way = "by induction over loops" if attempt.states else "for any random numbers and constants"
    return Finding(
        code="PIT202",
        verdict="inconclusive",
        title=f"{way} it is not proven either: {title}",
        output=output,
        operator=operator,
    )


def _counted(report: Report, accepted: Sequence[float], loaded: float, total: float) -> Report:
    """Return a report with the time of all attempts, and with the errors accepted of others."""
    seconds = msgspec.structs.replace(
        report.seconds, load=report.seconds.load and round(loaded, 4), total=round(total, 4)
    )
    bound = report.error_bound_log2
    if accepted and report.verdict == "equivalent":
        bound = log2_sum((bound, *accepted))
    return msgspec.structs.replace(report, seconds=seconds, error_bound_log2=bound)
