"""A check of pairs of plans in turn, until one is proven or the last one decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from secrets import randbits
from time import perf_counter

import msgspec

from pitcheck.base.options import Options
from pitcheck.commands.checking.pair import checked
from pitcheck.commands.progress import Progress
from pitcheck.frontends.protocol import Attempt
from pitcheck.plan.model import Plan
from pitcheck.report.report import Report


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
    start, iterator = perf_counter(), attempts()
    seed = randbits(128) if options.seed is None else options.seed
    accepted: list[float] = []
    while True:
        read, decides = _next(iterator)
        loaded = perf_counter() - start
        bound = options.error_bound_log2 - len(accepted) - (not decides)
        terms = replace(options, seed=seed, error_bound_log2=bound)
        if not decides:
            terms = replace(terms, explain=False, prove_rest=False, witness_directory=None)
        told = stopped if decides else lambda _: None
        report = checked([read], terms, progress, named=named, stopped=told)
        if decides or report.verdict == "equivalent":
            return _counted(report, accepted, loaded, perf_counter() - start)
        accepted.append(bound)


def _next(iterator: Iterator[Attempt]) -> tuple[Callable[[], Sequence[Plan]], bool]:
    """Return what gives the plans of the next attempt, or raises what reading them raised.

    True stands beside it if their verdict decides.
    """
    try:
        attempt = next(iterator)
    except Exception as error:
        return partial(_fail, error), True
    return lambda: attempt.plans, attempt.decides


def _fail(error: Exception) -> Sequence[Plan]:
    raise error


def _counted(report: Report, accepted: Sequence[float], loaded: float, total: float) -> Report:
    """Return a report with the time of all attempts, and with the errors accepted of others."""
    seconds = msgspec.structs.replace(
        report.seconds, load=report.seconds.load and round(loaded, 4), total=round(total, 4)
    )
    bound = report.error_bound_log2
    if accepted and report.verdict == "equivalent":
        bound = math.log2(sum(2.0**each for each in (bound, *accepted)))
    return msgspec.structs.replace(report, seconds=seconds, error_bound_log2=bound)
