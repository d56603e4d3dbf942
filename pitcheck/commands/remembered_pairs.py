"""Reports of pairs of files that an earlier run proved, whole: an unchanged pair is not read again.

Only what is read from files alone can be recognised, by their bytes. A report is kept if nothing is
wrong with the pair; what is wrong is looked for again every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from time import perf_counter

import msgspec

from pitcheck.base.options import Options
from pitcheck.cache.meaning import meaning
from pitcheck.cache.store import FILE, Store
from pitcheck.commands.reading import frontend_of
from pitcheck.report.json import decode, encode
from pitcheck.report.report import Report, Seconds

KIND = "report"
"""The kind of entry that has the report of a pair."""
UNDECISIVE = ("jobs", "cache_directory", "witness_directory", "explain")
"""The options that change nothing in the report of a pair that is proven."""


@dataclass(frozen=True)
class RememberedPair:
    """The files of a pair, with the options with which it is checked, in a store."""

    store: Store
    sources: tuple[str, ...]
    assignments: tuple[str, ...]
    options: Options
    key: str
    started: float

    @classmethod
    def of(
        cls, sources: Sequence[str], assignments: Sequence[str], options: Options
    ) -> RememberedPair | None:
        """Return the pair, or None if it cannot be recognised or nothing is to be remembered."""
        started = perf_counter()
        key = _key(sources, assignments, options)
        if key is None or options.cache_directory is None:
            return None
        store = Store(options.cache_directory / FILE)
        return cls(store, tuple(sources), tuple(assignments), options, key, started)

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
        if _is_worth_keeping(report) and self.key == _key(
            self.sources, self.assignments, self.options
        ):
            self.store.put(KIND, self.key, encode(report))


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
            if frontend is None or not frontend.in_one_file:
                return None
            with Path(source).open("rb") as file:
                said.append((frontend.name, source, file_digest(file, "sha256").hexdigest()))
    except OSError:
        return None
    return sha256(repr(said).encode()).hexdigest()
