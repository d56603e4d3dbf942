"""A check of two plans, in which errors are findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from threading import Thread
from time import perf_counter
from traceback import print_exception
from typing import TYPE_CHECKING

from pitcheck.base.options import Options
from pitcheck.base.streams import messages, say
from pitcheck.base.work import Work
from pitcheck.commands.progress import Progress, limited
from pitcheck.commands.wrong_pairs import refuse_swapped
from pitcheck.errors import BudgetError, Interrupted, PitcheckError, PlanError, UsageError
from pitcheck.plan.model import PairAt, Plan
from pitcheck.report.findings.cut_short import cut_short
from pitcheck.report.report import Finding, FindingVerdict, Report, Seconds

if TYPE_CHECKING:
    from pitcheck.engine.state import Check


def checked(
    files: Sequence[Callable[[], Sequence[Plan]]],
    options: Options,
    progress: Progress | None = None,
    again: PairAt | None = None,
    named: Sequence[str] = (),
    stopped: Callable[[Exception], None] = lambda _: None,
    decided: Callable[[Check], None] | None = None,
    causes: Sequence[Finding] = (),
) -> Report:
    """Return the report on the plans that ``files`` read.

    ``again`` makes them at another mesh, to try repairs there; None: they cannot be made again.
    ``causes`` are those of :func:`pitcheck.engine.check.check`. ``named`` are their files, if there
    are two of them. ``stopped`` is told what stops the check.
    What stops the check (an unreadable file, a budget, an internal error) is a finding of the
    report, not an exception. Raises UsageError, which is about the command and not about the plans.
    """
    with limited(options.seconds, progress) as work:
        return _checked(files, options, work, again, named, stopped, decided, causes)


def _checked(
    files: Sequence[Callable[[], Sequence[Plan]]],
    options: Options,
    work: Work,
    again: PairAt | None,
    named: Sequence[str],
    stopped: Callable[[Exception], None],
    decided: Callable[[Check], None] | None,
    causes: Sequence[Finding],
) -> Report:
    """Return the report of :func:`checked`; ``work`` ends the check when its time is up."""
    start = perf_counter()
    try:
        work.end_if_over()
        plans, errors = _read(files, stopped)
    except Interrupted as error:
        return unread_report(work, str(error), options, start)
    if not errors:
        refuse_swapped(plans, named)
        from pitcheck.engine.check import check  # noqa: PLC0415  heavy: an unreadable plan need not wait for it

        try:
            seconds = perf_counter() - start
            return check(plans[0], plans[1], options, work, seconds, again, decided, causes)
        except UsageError:
            raise
        except Exception as error:
            stopped(error)
            errors.append(error)
    return stopped_report(errors, options, start)


def _read(
    files: Sequence[Callable[[], Sequence[Plan]]], stopped: Callable[[Exception], None]
) -> tuple[list[Plan], list[Exception]]:
    """Return the plans that files give, and what could not be read of them."""
    plans: list[Plan] = []
    errors: list[Exception] = []
    for file in files:
        try:
            plans.extend(file())
        except UsageError:
            raise
        except Exception as error:
            stopped(error)
            errors.append(error)
    return plans, errors


def unread_report(work: Work, why: str, options: Options, start: float) -> Report:
    """Return the report on a check that ended while its plans were read, since ``why``."""
    work.noticed = True
    return Report(
        verdict="inconclusive",
        seed=options.seed or 0,
        seconds=Seconds(total=perf_counter() - start),
        findings=(cut_short(work, why),),
    )


def import_ahead() -> None:
    """Begin to import what a check needs, in a thread, while the caller waits for a program."""
    Thread(target=import_module, args=("pitcheck.engine.check",), daemon=True).start()


def stopped_report(errors: Sequence[Exception], options: Options, start: float) -> Report:
    """Return the report on a check that errors stopped, which began at ``start``."""
    findings = [_stopped(error) for error in errors]
    return Report(
        verdict="invalid"
        if any(finding.verdict == "invalid" for finding in findings)
        else "inconclusive",
        seed=options.seed or 0,
        seconds=Seconds(total=perf_counter() - start),
        findings=tuple(findings),
    )


def _stopped(error: Exception) -> Finding:
    code, verdict = _classify(error)
    if code == "PIT900":
        with messages() as stream:
            print_exception(error, file=stream)
        return Finding(
            code=code,
            verdict=verdict,
            title=f"internal error: {type(error).__name__}: {error}",
            repair="report the traceback on stderr; nothing is said about the plans",
        )
    for note in getattr(error, "__notes__", ()):
        say(note)
    return Finding(code=code, verdict=verdict, title=str(error) or "out of memory")


def _classify(error: Exception) -> tuple[str, FindingVerdict]:
    """Return the code and the verdict of what stopped a check."""
    if isinstance(error, MemoryError):
        return BudgetError.code, "inconclusive"
    if isinstance(error, PitcheckError) and error.code:
        return error.code, "invalid" if isinstance(error, PlanError) else "inconclusive"
    return "PIT900", "invalid"
