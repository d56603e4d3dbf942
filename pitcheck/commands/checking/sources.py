"""A check of what sources on the command line stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log2
from secrets import randbits
from time import perf_counter

from pitcheck.base.options import Options
from pitcheck.base.work import Work
from pitcheck.commands.checking.attempts import checked_in_turn
from pitcheck.commands.checking.pair import (
    checked,
    import_ahead,
    stopped_report,
    unread_report,
)
from pitcheck.commands.progress import Progress, limited
from pitcheck.commands.reading import (
    PROGRAM_HINT,
    attempts_of,
    file_of,
    frontend_of,
    pair_at,
    pairs,
    pairs_of,
    read_pair,
    readers_of,
)
from pitcheck.engine.variants import over_variants
from pitcheck.errors import Interrupted, UsageError
from pitcheck.frontends.protocol import Pair
from pitcheck.plan.model import Plan
from pitcheck.report.report import Report


def sources(
    reference: str, parallel: str | None, assignments: Sequence[str], jobs: int | None = None
) -> list[Callable[[], list[Plan]]]:
    """Return what reads the two plans: a reader for each, or one that reads both.

    Raises UsageError for arguments that name anything else.
    """
    both = frontend_of(reference) if parallel is None else None
    if assignments and (both is None or not both.takes_settings):
        raise UsageError("--set changes a configuration; give one .toml file and no second plan")
    if both is not None and both.gives_pair:
        return [lambda: read_pair(reference, assignments, jobs)]
    if parallel is None:
        program = reference.partition(".py")[0] + ".py"
        hint = (
            PROGRAM_HINT.format(program)
            if reference.endswith((".py", ".py:"))
            else f"write pitcheck check {reference} PARALLEL"
        )
        raise UsageError(
            f"PARALLEL is missing beside {reference}; only {pairs()} stands for both plans; {hint}"
        )
    return readers_of(reference, parallel)


def named_files(reference: str, parallel: str | None) -> tuple[str, ...]:
    """Return the files of the command line, the reference first; for a program its file alone."""
    if parallel is not None:
        return reference, parallel
    return (file_of(reference),)


def checked_sources(
    reference: str,
    parallel: str | None,
    assignments: Sequence[str],
    options: Options,
    progress: Progress | None = None,
    stopped: Callable[[Exception], None] = lambda _: None,
) -> Report:
    """Return the report on two plans, or on all pairs that one source stands for.

    What stops a check is a finding of the report, and ``stopped`` is told it. Raises UsageError for
    arguments that name anything else.
    """
    several = None if parallel is not None else pairs_of(reference, options.jobs)
    if several is not None and not assignments:
        return checked_pairs(several, options, progress, stopped)
    files = sources(reference, parallel, assignments, options.jobs)
    named = named_files(reference, parallel)
    attempts = attempts_of(reference, parallel, assignments)
    if attempts is not None:
        if parallel is None:
            import_ahead()
        return checked_in_turn(attempts, options, progress, named, stopped)
    again = None if parallel is not None else pair_at(reference, assignments, options.jobs)
    return checked(files, options, progress, again, named, stopped)


def checked_pairs(
    pairs: Callable[[], Sequence[Pair]],
    options: Options,
    progress: Progress | None = None,
    stopped: Callable[[Exception], None] = lambda _: None,
) -> Report:
    """Return one report on all pairs of plans that ``pairs`` returns, each checked by itself.

    Together they keep to the accepted error of ``options``. What stops a check, or ``pairs``, is a
    finding of the report, and ``stopped`` is told it. Raises UsageError, which is about the
    command and not about the plans.
    """
    with limited(options.seconds, progress) as work:
        return _checked_pairs(pairs, options, work, stopped)


def _checked_pairs(
    pairs: Callable[[], Sequence[Pair]],
    options: Options,
    work: Work,
    stopped: Callable[[Exception], None],
) -> Report:
    """Return the report of :func:`checked_pairs`; ``work`` ends the checks when time is up."""
    start = perf_counter()
    try:
        found = pairs()
    except UsageError:
        raise
    except Interrupted as error:
        return unread_report(work, str(error), options, start)
    except Exception as error:
        stopped(error)
        return stopped_report([error], options, start)
    if len(found) == 1 and not found[0].variant:
        return checked([found[0].read], options, work, found[0].again, stopped=stopped)
    options = replace(
        options,
        seed=randbits(128) if options.seed is None else options.seed,
        error_bound_log2=options.error_bound_log2 - log2(len(found)),
    )
    parts = [
        (each.variant, checked([each.read], options, work, each.again, stopped=stopped))
        for each in found
    ]
    return over_variants(parts, found[0].not_covered)
