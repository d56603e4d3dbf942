"""The process that checks one configuration of a sweep: ``python -m pitcheck.sweep.child.worker``.

It reads a :class:`Task` from standard input and writes a :class:`Result` to standard output. What
programs print while they are recorded goes to standard error. Its argument is a pipe that nobody
writes to: when its other end is closed, the process that waits for this one has ended, and so does
this one.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pitcheck.base.options import Options
from pitcheck.base.process_tree import end_with, kill
from pitcheck.cache.meaning import meaning
from pitcheck.commands.checking.pair import checked
from pitcheck.commands.checking.sources import checked_sources, sources
from pitcheck.commands.number_options import parse_probability_log2
from pitcheck.commands.remembered_pairs import remembered
from pitcheck.errors import UsageError
from pitcheck.plan.model import Plan
from pitcheck.report.report import Report
from pitcheck.sweep.child.task import Task
from pitcheck.sweep.planned import Planned
from pitcheck.sweep.result import Result, of_report, without_report

MOST_MUTANTS = 200
"""The mutants of a plan among which one that changes an output is looked for."""
DRAWS = tuple(range(4))
"""The draws in which a planted fault may change an output."""
OUT_OF_MEMORY = 13
"""The exit code of a worker that ran out of memory outside the check."""


def run(task: Task) -> Result:
    """Return the result of a task."""
    planned = task.planned
    options = _options(task)
    if planned.probe:
        return _probed(task, options)
    errors: list[Exception] = []
    report = remembered(
        planned.sources,
        planned.assignments,
        options,
        lambda: checked_sources(
            *_both(planned), planned.assignments, options, stopped=errors.append
        ),
    )
    return _result(task, report, "", errors)


def _options(task: Task) -> Options:
    terms = task.terms
    given: dict[str, Any] = dict(task.planned.options)
    bound = given.pop("error_bound", "2^-64")
    return Options(
        error_bound_log2=parse_probability_log2(bound),
        seed=task.seed if task.draws_by_seed else None,
        backend=terms.backend,
        jobs=terms.jobs,
        max_memory=terms.memory,
        cache_directory=None if terms.cache_directory is None else Path(terms.cache_directory),
        # A planted fault has to be noticed; nobody asks for its repair.
        explain=not task.planned.probe,
        **given,
    )


def _result(task: Task, report: Report, said: str, errors: Sequence[Exception]) -> Result:
    """Return the result of a report. ``errors`` stopped its check."""
    missing = _caused_by(ModuleNotFoundError, errors)
    if missing is not None and task.planned.expect == "invalid":
        lacks = f"{missing}: what is not installed is not the failure that is expected"
        return without_report(task.planned, task.seed, "unexpected", lacks)
    short = _caused_by(MemoryError, errors) is not None
    return of_report(task.planned, report, said, out_of_memory=short)


def _caused_by(
    kind: type[BaseException], errors: Iterable[BaseException | None]
) -> BaseException | None:
    """Return the first error of a kind among some errors and their causes, or None."""
    for each in errors:
        error = each
        while error is not None:
            if isinstance(error, kind):
                return error
            error = error.__cause__
    return None


def _probed(task: Task, options: Options) -> Result:
    """Return the result of a plan in which a fault is planted that changes an output.

    An executor that shares nothing with the check says that it does.
    """
    reference, parallel = (
        plan for file in sources(*_both(task.planned), task.planned.assignments) for plan in file()
    )
    try:
        found = _fault(reference, parallel, task.seed)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        said = "PyTorch plants faults; install pitcheck[torch]"
        return without_report(task.planned, task.seed, "not probed", said)
    if found is None:
        said = f"none of {MOST_MUTANTS} mutants changes an output"
        return without_report(task.planned, task.seed, "not probed", said)
    wrong, said = found
    errors: list[Exception] = []
    report = checked([lambda: [reference], lambda: [wrong]], options, stopped=errors.append)
    return _result(task, report, said, errors)


def _both(planned: Planned) -> tuple[str, str | None]:
    return planned.sources[0], planned.sources[1] if len(planned.sources) > 1 else None


def _fault(reference: Plan, parallel: Plan, seed: int) -> tuple[Plan, str] | None:
    """Return a plan with one fault that changes an output, and what it is; None if none is found.

    Raises ModuleNotFoundError without PyTorch, and UsageError for a plan that is not right itself.
    """
    from pitcheck.mutation.mutants import mutants  # noqa: PLC0415  only a probe needs it
    from pitcheck.mutation.trial import judge_of  # noqa: PLC0415  PyTorch is an extra

    judge = judge_of(reference, parallel, DRAWS)
    for mutant in mutants(parallel, MOST_MUTANTS, seed):
        judged = judge.often(mutant.plan, DRAWS)
        if not judged.error and not judged.same:
            return mutant.plan, mutant.name
    return None


def _limited(memory: int) -> None:
    """Let the process have so many bytes of data of its own at most."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _answering() -> Callable[[bytes], None]:
    """Return what writes the answer; from now on prints go to standard error."""
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def write(data: bytes) -> None:
        with os.fdopen(answer, "wb") as stream:
            stream.write(data)

    return write


def main() -> int:
    """Check what standard input names, and return 0 if there is an answer."""
    # An interrupt ends the process. As an exception it would be the fault of a program at work.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    answer = _answering()
    end_with(int(sys.argv[1]), lambda: kill(os.getpid()))
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    _limited(task.terms.memory)
    try:
        result = run(task)
    except MemoryError:
        return OUT_OF_MEMORY
    except UsageError as error:
        result = without_report(task.planned, task.seed, "unexpected", str(error))
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = msgspec.structs.replace(result, memory_mb=round(usage / 1024, 1), code=meaning())
    answer(msgspec.json.encode(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
