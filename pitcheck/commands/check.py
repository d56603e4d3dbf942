"""``pitcheck check``: read both plans, check them, write the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import log2
from pathlib import Path
from secrets import randbits
from time import perf_counter
from traceback import print_exc
from typing import TYPE_CHECKING

from pitcheck.base.options import Options
from pitcheck.base.streams import messages, say
from pitcheck.cache.folder import FOLDER
from pitcheck.commands.number_options import parse_memory, parse_probability_log2
from pitcheck.commands.progress import Progress, watched
from pitcheck.commands.reading import (
    PROGRAM_HINT,
    file_of,
    frontend_of,
    pair_at,
    pairs,
    pairs_of,
    read_pair,
    readers_of,
)
from pitcheck.commands.remembered_pairs import remembered
from pitcheck.commands.wrong_pairs import refuse_files, refuse_swapped
from pitcheck.engine.variants import over_variants
from pitcheck.errors import BudgetError, PitcheckError, PlanError, UsageError
from pitcheck.frontends.protocol import Pair
from pitcheck.plan.model import PairAt, Plan
from pitcheck.report.baseline import Accepted, encode, held_against, read_baseline
from pitcheck.report.destinations import (
    Destination,
    check_destinations,
    exit_code_after,
    parse_destination,
    write_whole,
)
from pitcheck.report.ignoring import ignoring, without_ignored
from pitcheck.report.report import Finding, FindingVerdict, Report, Seconds
from pitcheck.report.write import FORMATS, Form, write_report

if TYPE_CHECKING:
    from pitcheck.engine.certifying import Certifier
    from pitcheck.engine.state import Check

WITNESSES = Path(FOLDER, "witnesses")
"""The folder of witnesses if none is named."""


def run(
    *,
    reference: str,
    parallel: str | None,
    assignments: Sequence[str],
    error_bound: str,
    trials: int | None,
    seed: int | None,
    backend: str,
    shapes: str,
    coordinates: str,
    layers: str,
    jobs: int | None,
    max_memory: str,
    output: Sequence[str],
    precision: str,
    estimates: str,
    cache: bool,
    cache_directory: str,
    witness_directory: str,
    explain: bool,
    select: Sequence[str],
    ignore: Sequence[str],
    per_file_ignores: Mapping[str, Sequence[str]],
    baseline: str | None,
    write_baseline: str | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Check both plans, write the reports and return the verdict's exit code.

    The plans are ``reference`` and ``parallel``, or both plans of one source. Raises UsageError for
    a wrong option.
    """
    refuse_files(reference, parallel)
    assignments = with_layers(reference, parallel, assignments, layers)
    files = sources(reference, parallel, assignments, jobs)
    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other; give one of them")
    destinations = [parse_destination(text, FORMATS) for text in output]
    named = named_files(reference, parallel)
    written = [] if write_baseline is None else [Destination("baseline", write_baseline)]
    check_destinations(destinations + written, named)
    left_out = ignoring(select, ignore, per_file_ignores)
    accepted = _accepted(baseline, write_baseline, explain=explain)
    options = Options(
        error_bound_log2=parse_probability_log2(error_bound),
        trials=trials,
        seed=seed,
        backend=backend,
        shapes=shapes,
        coordinates=coordinates,
        jobs=jobs,
        max_memory=parse_memory(max_memory, backend, shapes, jobs),
        witness_directory=_directory(witness_directory),
        precision=precision,
        estimates=estimates,
        cache_directory=Path(cache_directory) if cache else None,
        explain=explain,
        prove_rest=baseline is not None or write_baseline is not None,
    )
    from pitcheck.plan.collector import collector_off  # noqa: PLC0415  a wrong option need not wait for it

    certifier = None
    if any(each.format == "certificate" for each in destinations):
        certifier, files = _certified(reference, parallel, files, seed or 0)
        options = replace(options, seed=certifier.seed)
    given = (reference,) if parallel is None else (reference, parallel)

    def checked_now() -> Report:
        with collector_off(), watched(shown=not quiet) as progress:
            if certifier is not None:
                again = None if parallel is not None else pair_at(reference, assignments, jobs)
                return checked(files, options, progress, again, named, decided=certifier.keep)
            return checked_sources(reference, parallel, assignments, options, progress)

    found = (
        remembered(given, assignments, options, checked_now) if certifier is None else checked_now()
    )
    known = found if accepted is None else held_against(found, accepted, str(baseline))
    report = without_ignored(known, left_out)
    form = Form(quiet, verbose, named, None if certifier is None else certifier.encode)
    code = exit_code_after(report.exit_code, lambda: write_report(report, destinations, form))
    if write_baseline is not None:
        file = write_baseline
        code = exit_code_after(code, lambda: _write_baseline(found, file))
    return code


def with_layers(
    reference: str, parallel: str | None, assignments: Sequence[str], layers: str
) -> Sequence[str]:
    """Return the assignments with that of ``layers``, "all" or "one-of-each".

    Raises UsageError if layers are left out of what is no configuration.
    """
    if layers == "all":
        return assignments
    both = frontend_of(reference) if parallel is None else None
    if both is None or not both.takes_settings:
        raise UsageError(
            f"--layers {layers} leaves layers out of a configuration; give one .toml file and no "
            f"second plan, or --layers all"
        )
    return [*assignments, f"keep_layers={layers}"]


def _certified(
    reference: str,
    parallel: str | None,
    files: list[Callable[[], list[Plan]]],
    salt: int,
) -> tuple[Certifier, list[Callable[[], list[Plan]]]]:
    """Return what makes the certificate, and readers of the plans whose digests it has.

    The digests come before the check, since its seed is made of them.
    """
    from pitcheck.certificate.digests import Digests  # noqa: PLC0415  few ask for it
    from pitcheck.engine.certifying import Certifier  # noqa: PLC0415

    if parallel is not None:
        return Certifier(Digests.of_files(reference, parallel), salt), files
    plans = [plan for file in files for plan in file()]
    name = Path(reference.partition(":")[0]).stem
    return Certifier(Digests.of_plans(name, *plans), salt), [lambda: plans]


def _accepted(baseline: str | None, written: str | None, *, explain: bool) -> Accepted | None:
    """Return what the file ``baseline`` accepts; None without one.

    The file ``written`` need not be there yet. Raises UsageError if findings are not explained.
    """
    if baseline is None and written is None:
        return None
    if not explain:
        raise UsageError(
            "--no-explain and a baseline exclude each other: without its cause one mistake cannot "
            "be told from another; leave --no-explain out"
        )
    if baseline is None or (baseline == written and not Path(baseline).exists()):
        return None
    return read_baseline(baseline)


def _write_baseline(report: Report, file: str) -> None:
    try:
        write_whole(Path(file), encode(report))
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}") from None


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
    again = None if parallel is not None else pair_at(reference, assignments, options.jobs)
    return checked(files, options, progress, again, named_files(reference, parallel), stopped)


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
    start = perf_counter()
    try:
        found = pairs()
    except UsageError:
        raise
    except Exception as error:
        stopped(error)
        return _stopped_report([_stopped(error)], options, start)
    if len(found) == 1 and not found[0].variant:
        return checked([found[0].read], options, progress, found[0].again, stopped=stopped)
    options = replace(
        options,
        seed=randbits(128) if options.seed is None else options.seed,
        error_bound_log2=options.error_bound_log2 - log2(len(found)),
    )
    parts = [
        (each.variant, checked([each.read], options, progress, each.again, stopped=stopped))
        for each in found
    ]
    return over_variants(parts, found[0].not_covered)


def checked(
    files: Sequence[Callable[[], Sequence[Plan]]],
    options: Options,
    progress: Progress | None = None,
    again: PairAt | None = None,
    named: Sequence[str] = (),
    stopped: Callable[[Exception], None] = lambda _: None,
    decided: Callable[[Check], None] | None = None,
) -> Report:
    """Return the report on the plans that ``files`` read.

    ``again`` makes them at another mesh, to try repairs there; None: they cannot be made again.
    ``named`` are their files, if there are two of them. ``stopped`` is told what stops the check.
    What stops the check (an unreadable file, a budget, an internal error) is a finding of the
    report, not an exception. Raises UsageError, which is about the command and not about the plans.
    """
    start = perf_counter()
    plans: list[Plan] = []
    findings: list[Finding] = []
    for file in files:
        try:
            plans.extend(file())
        except UsageError:
            raise
        except Exception as error:
            stopped(error)
            findings.append(_stopped(error))
    if not findings:
        refuse_swapped(plans, named)
        from pitcheck.engine.check import check  # noqa: PLC0415  heavy: an unreadable plan need not wait for it

        try:
            seconds = perf_counter() - start
            return check(plans[0], plans[1], options, progress, seconds, again, decided)
        except UsageError:
            raise
        except Exception as error:
            stopped(error)
            findings.append(_stopped(error))
    return _stopped_report(findings, options, start)


def _stopped_report(findings: Sequence[Finding], options: Options, start: float) -> Report:
    """Return the report on a check that findings stopped, which began at ``start``."""
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
            print_exc(file=stream)
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


def _directory(name: str) -> Path:
    """Return the folder of witnesses, which need not exist if it is one that pitcheck makes.

    Raises UsageError.
    """
    path = Path(name)
    if not path.is_dir() and path != WITNESSES:
        raise UsageError(f"--witness-directory {name} is no directory; create it first")
    return path
