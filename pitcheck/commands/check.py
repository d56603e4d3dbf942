"""``pitcheck check``: read both plans, check them, write the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from pitcheck.base.options import Options
from pitcheck.base.work import Work
from pitcheck.cache.folder import FOLDER
from pitcheck.commands.checking.pair import checked, unread_report
from pitcheck.commands.checking.sources import checked_sources, named_files, sources
from pitcheck.commands.number_options import parse_memory, parse_probability_log2
from pitcheck.commands.progress import end_now, watched
from pitcheck.commands.reading import frontend_of, pair_at
from pitcheck.commands.remembered_pairs import remembered
from pitcheck.commands.wrong_pairs import refuse_files
from pitcheck.errors import UsageError
from pitcheck.plan.model import Plan
from pitcheck.report.baseline import Accepted, encode, held_against, read_baseline
from pitcheck.report.destinations import (
    Destination,
    check_destinations,
    exit_code_after,
    parse_destination,
    write_whole,
)
from pitcheck.report.ignoring import ignoring, without_ignored
from pitcheck.report.report import Report
from pitcheck.report.write import FORMATS, Form, write_report

if TYPE_CHECKING:
    from pitcheck.engine.certifying import Certifier

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
    seconds: float | None,
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
        seconds=seconds,
        prove_rest=baseline is not None or write_baseline is not None,
    )
    from pitcheck.plan.collector import collector_off  # noqa: PLC0415  a wrong option need not wait for it

    certifier = None
    if any(each.format == "certificate" for each in destinations):
        certifier, files = _certified(reference, parallel, files, seed or 0)
        options = replace(options, seed=certifier.seed)
    given = (reference,) if parallel is None else (reference, parallel)

    work = Work()

    def checked_now() -> Report:
        overdue = None if certifier is not None else lambda: end_now(answered(late_report(work)))
        with (
            collector_off(),
            watched(shown=not quiet, seconds=seconds, overdue=overdue, signals=True) as progress,
        ):
            nonlocal work
            work = progress
            if certifier is not None:
                again = None if parallel is not None else pair_at(reference, assignments, jobs)
                return checked(files, options, progress, again, named, decided=certifier.keep)
            return checked_sources(reference, parallel, assignments, options, progress)

    def answered(found: Report) -> int:
        known = found if accepted is None else held_against(found, accepted, str(baseline))
        report = without_ignored(known, left_out)
        form = Form(quiet, verbose, named, None if certifier is None else certifier.encode)
        code = exit_code_after(report.exit_code, lambda: write_report(report, destinations, form))
        if write_baseline is not None:
            file = write_baseline
            code = exit_code_after(code, lambda: _write_baseline(found, file))
        # Whoever sent the signal learns by the code that it was heard; a mismatch says more.
        return 128 + work.signalled if work.signalled and found.verdict != "mismatch" else code

    return answered(
        remembered(given, assignments, options, checked_now) if certifier is None else checked_now()
    )


def late_report(work: Work) -> Report:
    """Return the report on a check that ``work`` ends, made while a call of it still runs."""
    if work.check is None:
        return unread_report(work, work.over, Options(), perf_counter())
    from pitcheck.engine.decisions import interrupted  # noqa: PLC0415  heavy, and there by now

    return interrupted(work.check, work.over)


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


def _directory(name: str) -> Path:
    """Return the folder of witnesses, which need not exist if it is one that pitcheck makes.

    Raises UsageError.
    """
    path = Path(name)
    if not path.is_dir() and path != WITNESSES:
        raise UsageError(f"--witness-directory {name} is no directory; create it first")
    return path
