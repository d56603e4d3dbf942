"""``pitcheck sweep`` and ``pitcheck merge``: many configurations, and their results in one file."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pitcheck import __version__
from pitcheck.base.streams import say
from pitcheck.cache.folder import FOLDER, made
from pitcheck.cache.meaning import meaning
from pitcheck.commands.settings_file import nearest_settings
from pitcheck.errors import UsageError
from pitcheck.report.destinations import (
    check_destinations,
    exit_code_after,
    parse_destination,
    write_before,
    write_everywhere,
)
from pitcheck.sweep.affected import Begun, Inputs, together, unaffected
from pitcheck.sweep.check_options import check_settings
from pitcheck.sweep.child.task import Terms
from pitcheck.sweep.choice import chosen
from pitcheck.sweep.exports import FORMATS
from pitcheck.sweep.live import shown
from pitcheck.sweep.matrix import Sweep, read_sweep
from pitcheck.sweep.morning import write_page
from pitcheck.sweep.nights import SUFFIX, SWEEPS, begun, files_in, newest, readable
from pitcheck.sweep.order import ordered
from pitcheck.sweep.result import Result
from pitcheck.sweep.results import About, Results
from pitcheck.sweep.shards import merge as merged
from pitcheck.sweep.shards import parse_shard, part
from pitcheck.sweep.summary import summary


def run(
    *,
    file: str,
    results: str | None,
    resume: bool,
    before: str | None,
    since: str | None,
    shard: str,
    seed: int | None,
    jobs: int | None,
    stage_jobs: int,
    engine: str,
    address: str | None,
    backend: str,
    cache: bool,
    cache_directory: str,
    output: Sequence[str],
    quiet: bool,
) -> int:
    """Check all configurations of a sweep, write the results, and return the exit code.

    Raises UsageError for a wrong option or file.
    """
    destinations = [parse_destination(text, FORMATS) for text in output]
    sweep, inputs = read_sweep(Path(file)), Inputs()
    number, count = parse_shard(shard)
    read = [source for each in sweep.planned for source in each.sources]
    read += [each for each in (results, before, since) if each is not None]
    check_destinations(destinations, [file, *read])
    check_settings(sweep.options, nearest_settings(Path.cwd()))
    known = _before(before, results)
    then = None if since is None else Results(Path(since)).believed()
    named = [Path(each) for each in (before, since) if each is not None]
    with (
        chosen(engine, address, backend, jobs, stage_jobs) as made_engine,
        _kept(sweep, inputs, results, resume, (number, count), seed, named) as kept,
    ):
        about, planned = kept.about(), kept.planned()
        begun_with = Begun.of(planned, inputs)
        if then is not None:
            kept.put(_unaffected(kept, then, begun_with.inputs))
        done = kept.statuses()
        left = [each for each in planned if each.name not in done]
        say(
            f"{kept.path}: seed {about.seed}, {len(planned)} configurations"
            + (f", {len(done)} of them done before" if done else "")
        )
        write_before(destinations, lambda each: FORMATS[each.format](kept))
        terms = Terms(
            seed=about.seed,
            fixed=about.fixed,
            seconds=sweep.seconds,
            memory=sweep.memory,
            cache_directory=cache_directory if cache else None,
            backend=backend,
            jobs=stage_jobs,
        )
        with shown(len(left), quiet=quiet) as tell:
            for found in made_engine(terms).run(ordered(left, known)):
                told = begun_with.checked(found) if isinstance(found, Result) else found
                if isinstance(told, Result):
                    kept.put([told], about)
                tell(told)
        code = summary(planned, kept.results()).exit_code
        return exit_code_after(
            code,
            lambda: write_everywhere(destinations, lambda each: FORMATS[each.format](kept)),
        )


def _unaffected(kept: Results, then: Results, inputs: Mapping[str, str]) -> list[Result]:
    """Return the results of configurations that nothing changed for, and say how many they are."""
    planned = kept.planned()
    found = unaffected(planned, then, kept.about(), inputs)
    say(
        f"{len(found)} of {len(planned)} configurations are not run: nothing has changed for them "
        f"since {then.path}; the results name them"
    )
    return found


@contextmanager
def _kept(
    sweep: Sweep,
    inputs: Inputs,
    file: str | None,
    resume: bool,
    shard: tuple[int, int],
    seed: int | None,
    earlier: Sequence[Path],
) -> Iterator[Results]:
    """Yield the file with the results of a sweep: a new one, or one that is gone on with.

    A new sweep is later than the ``earlier`` ones, and than those beside it.
    """
    path = _path(file, resume)
    with _alone(path):
        if not resume:
            drawn = random.SystemRandom().randrange(2**63) if seed is None else seed
            begins = begun([*earlier, *_beside(path)])
            about = _about(sweep, inputs, shard, drawn, begins, fixed=seed is not None)
            yield Results.new(path, about, part(sweep.planned, *shard))
            return
        kept = Results(path).believed()
        about = kept.about()
        fixed = about.fixed if seed is None else True
        of = about.seed if seed is None else seed
        now = _about(sweep, inputs, shard, of, about.started, fixed=fixed)
        difference = about.differs(now)
        if difference:
            raise UsageError(
                f"{path} cannot be gone on with: {difference}; begin a new file (--since {path} "
                f"leaves out what nothing has changed for)"
            )
        # Files that a program imports or reads may have changed, and nothing here would know.
        kept.drop([each.name for each in kept.results() if not each.inputs])
        yield kept


def _about(
    sweep: Sweep,
    inputs: Inputs,
    shard: tuple[int, int],
    seed: int,
    started: float,
    *,
    fixed: bool,
) -> About:
    return About(
        version=__version__,
        code=meaning(),
        sweep=sweep.digest,
        files=together(sweep.planned, inputs),
        seed=seed,
        fixed=fixed,
        shard=shard[0],
        shards=shard[1],
        count=len(sweep.planned),
        started=started,
    )


def _path(file: str | None, resume: bool) -> Path:
    """Return the file of results: the named one, a new one, or the last one to go on with."""
    if file is not None:
        path = Path(file)
        if not path.parent.is_dir():
            raise UsageError(f"--results {file}: {path.parent} is no directory; create it first")
        return path
    made(Path(FOLDER))
    SWEEPS.mkdir(exist_ok=True)
    if not resume:
        return SWEEPS / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S.%f}{SUFFIX}"
    last = newest(files_in(SWEEPS))
    if last is None:
        raise UsageError(f"--resume: there are no results in {SWEEPS}; leave it out")
    return last


def _beside(results: Path | None) -> list[Path]:
    """Return the files of results in the folder for them, and beside the file ``results``."""
    own = [] if results is None else files_in(results.parent)
    found = {each.resolve(): each for each in (*files_in(SWEEPS), *own)}
    return [each for of, each in found.items() if results is None or of != results.resolve()]


def _before(file: str | None, results: str | None) -> Mapping[str, tuple[str, float]]:
    """Return status and seconds of an earlier sweep, that of ``file`` or the last one."""
    if file is not None:
        return Results(Path(file)).statuses()
    last = newest(readable(_beside(None if results is None else Path(results))))
    if last is None:
        return {}
    try:
        return Results(last).statuses()
    except UsageError:  # it gives an order, and nothing depends on that
        return {}


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other processes from the file of results. Raises UsageError if one is at work on it."""
    import fcntl  # noqa: PLC0415  not on every system

    path = path.resolve()
    with path.with_name(f".{path.name}.pitcheck-lock").open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"another process is at work on {path}") from None
        yield


def page(files: Sequence[str], out: str) -> int:
    """Write the page of the newest of some results, and return 0. Raises UsageError."""
    write_page(Path(out), [Path(file) for file in files])
    say(f"{Path(out) / 'index.html'}")
    return 0


def merge(target: str, files: Sequence[str], output: Sequence[str]) -> int:
    """Write the results of all parts of a sweep to one file, and return the exit code."""
    destinations = [parse_destination(text, FORMATS) for text in output]
    check_destinations(destinations, [target, *files])
    found = merged(Path(target), [Path(file) for file in files])
    code = summary(found.planned(), found.results()).exit_code
    return exit_code_after(
        code, lambda: write_everywhere(destinations, lambda each: FORMATS[each.format](found))
    )
