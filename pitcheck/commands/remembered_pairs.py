"""Reports of pairs of files that an earlier run proved, whole: an unchanged pair is not read again.

Only what is read from files alone can be recognised, by their bytes. A report is kept if nothing is
wrong with the pair; what is wrong is looked for again every time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from stat import S_ISREG
from time import perf_counter

import msgspec

from pitcheck.base.options import Options
from pitcheck.cache.meaning import meaning
from pitcheck.cache.store import FILE, Store
from pitcheck.commands.reading import frontend_of
from pitcheck.frontends.protocol import Frontend
from pitcheck.report.json import decode, encode
from pitcheck.report.report import Report, Seconds

KIND = "report"
"""The kind of entry that has the report of a pair."""
Place = tuple[int, int, int, int]
UNDECISIVE = ("jobs", "cache_directory", "witness_directory", "explain", "seconds")
"""The options that change nothing in the report of a pair that is proven."""


@dataclass(frozen=True)
class RememberedPair:
    """The files of a pair, with the options with which it is checked, in a store."""

    store: Store
    sources: tuple[str, ...]
    assignments: tuple[str, ...]
    options: Options
    key: str
    places: tuple[Place, ...]
    """The files on the disk before they were read."""
    started: float

    @classmethod
    def of(
        cls, sources: Sequence[str], assignments: Sequence[str], options: Options
    ) -> RememberedPair | None:
        """Return the pair, or None if it cannot be recognised or nothing is to be remembered."""
        started = perf_counter()
        places = _places(sources)
        key = _key(sources, assignments, options)
        if key is None or options.cache_directory is None:
            return None
        store = Store(options.cache_directory / FILE)
        if places is None:
            return None
        return cls(store, tuple(sources), tuple(assignments), options, key, places, started)

    def report(self) -> Report | None:
        """Return the report that an earlier run made, with the time that it took now, or None."""
        content = self.store.get(KIND, self.key)
        if content is None:
            return None
        try:
            report = decode(content)
        except (msgspec.MsgspecError, ValueError):
            return None
        if not _is_worth_keeping(report):
            return None
        return msgspec.structs.replace(
            report,
            remembered=report.stages.distinct,
            seconds=Seconds(total=round(perf_counter() - self.started, 4)),
            peak_memory_mb=0.0,
        )

    def keep(self, report: Report) -> None:
        """Keep a report, if the pair is proven and its files are still what they were."""
        unchanged = self.places == _places(self.sources) and self.key == _key(
            self.sources, self.assignments, self.options
        )
        if _is_worth_keeping(report) and unchanged:
            self.store.put(KIND, self.key, encode(report))


def remembered(
    sources: Sequence[str],
    assignments: Sequence[str],
    options: Options,
    make: Callable[[], Report],
) -> Report:
    """Return the report that an earlier run made of a pair, or that of ``make``, which is kept."""
    pair = RememberedPair.of(sources, assignments, options)
    found = None if pair is None else pair.report()
    if found is not None:
        return found
    report = make()
    if pair is not None:
        pair.keep(report)
    return report


def is_read_alone(source: str) -> bool:
    """Return True if a plan is made of one file alone, by code that is part of this package."""
    frontend = frontend_of(source)
    return frontend is not None and _is_known(frontend)


def _is_known(frontend: Frontend) -> bool:
    """Return True if a frontend reads a file alone, and its code is part of the key."""
    return frontend.in_one_file and frontend.read.__module__.startswith("pitcheck.")


def _places(sources: Sequence[str]) -> tuple[Place, ...] | None:
    """Return what tells files on the disk from others and from what they were before.

    Return None for what is no regular file: another reader may be given other bytes.
    """
    found = []
    for source in sources:
        try:
            place = Path(source).stat()
        except OSError:
            return None
        if not S_ISREG(place.st_mode):
            return None
        found.append((place.st_dev, place.st_ino, place.st_size, place.st_mtime_ns))
    return tuple(found)


def _is_worth_keeping(report: Report) -> bool:
    """Return True if a report says that all is well, and something was proven for it."""
    proven = 0 < report.outputs.proven == report.outputs.total
    return report.verdict == "equivalent" and report.exit_code == 0 and proven


def _key(sources: Sequence[str], assignments: Sequence[str], options: Options) -> str | None:
    """Return what decides about the report, in one word; None if that is not in the files alone."""
    said: list[object] = [tuple(assignments)]
    said.append(sorted((n, repr(v)) for n, v in asdict(options).items() if n not in UNDECISIVE))
    try:
        said.append(meaning())
        for source in sources:
            frontend = frontend_of(source)
            if frontend is None or not _is_known(frontend):
                return None
            with Path(source).open("rb") as file:
                said.append((frontend.name, source, file_digest(file, "sha256").hexdigest()))
    except OSError:
        return None
    return sha256(repr(said).encode()).hexdigest()
