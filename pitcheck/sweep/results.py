"""The file with the results of a sweep: written one by one, whole or not at all.

A sweep that is killed at any moment loses the configurations in work and nothing else.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import msgspec
import zstandard

from pitcheck.errors import UsageError
from pitcheck.report.json import decode, encode
from pitcheck.report.report import Report
from pitcheck.sweep.consistency import contradiction
from pitcheck.sweep.planned import Planned
from pitcheck.sweep.result import Result

APPLICATION = 0x70697473
"""The number that marks a database as one of these ("pits")."""
VERSION = 1
WAIT = 30.0
"""The seconds that a process waits for another one that writes."""
LAST_TIME = 253_402_300_799.0
"""The seconds from 1970 to the end of the year 9999, after which no date can be written."""
MOST_REPORT = 1 << 28
"""The bytes of a report at most, so that a damaged file cannot fill the memory."""

Content = TypeVar("Content")

_COLUMNS = "result.name, planned.content, result.content, result.report IS NOT NULL"
_TABLES = (
    "CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE planned (name TEXT PRIMARY KEY, place INTEGER NOT NULL, content BLOB NOT NULL)",
    """CREATE TABLE result (
        name TEXT PRIMARY KEY REFERENCES planned (name),
        content BLOB NOT NULL,
        report BLOB
    )""",
)


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The sweep, or the part of one, that a file has the results of.

    ``sweep`` is the digest of the sweep, ``files`` that of all plan files and configurations of it,
    ``code`` that of pitcheck's code. ``shard`` of ``shards``,
    from 1: the part of the sweep that was run. ``count`` is the number of configurations of all
    parts. ``fixed``: every check draws by the seed. ``started`` is a time in seconds since 1970.
    ``listed`` is a number for the configurations of the file in their order, "" in results of
    earlier versions.
    """

    version: str
    code: str
    sweep: str
    files: str
    seed: int
    fixed: bool
    shard: int = 1
    shards: int = 1
    count: int
    started: float
    listed: str = ""

    def differs(self, other: About) -> str:
        """Return the first word for what two files cannot differ in, with both values, or ""."""
        for name in (
            "version",
            "code",
            "sweep",
            "files",
            "seed",
            "fixed",
            "shard",
            "shards",
            "count",
        ):
            one, two = getattr(self, name), getattr(other, name)
            if one != two:
                return f"{name} is {one} in one and {two} in the other"
        return ""


class Results:
    """The results in the file ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def new(cls, path: Path, about: About, planned: Sequence[Planned]) -> Results:
        """Return a new file for a sweep. Raises UsageError if it is there, or cannot be written."""
        if path.exists():
            raise UsageError(
                f"{path} is there already; name another file, or go on with it by --resume"
            )
        # It takes its name when it is whole: a full disk or a kill leaves nothing in the way.
        beside = cls(path.with_name(f".{path.name}.{os.getpid()}.new"))
        try:
            beside._write(about, planned)
            beside.path.rename(path)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
        finally:
            beside.path.unlink(missing_ok=True)
        return cls(path)

    def _write(self, about: About, planned: Sequence[Planned]) -> None:
        """Write the file without results."""
        with self._open(create=True) as database:
            database.execute(f"PRAGMA application_id = {APPLICATION}")
            database.execute(f"PRAGMA user_version = {VERSION}")
            for table in _TABLES:
                database.execute(table)
            listed = msgspec.structs.replace(about, listed=_listed(planned))
            database.execute(
                "INSERT INTO about VALUES ('about', ?)", (msgspec.json.encode(listed).decode(),)
            )
            database.executemany(
                "INSERT INTO planned VALUES (?, ?, ?)",
                (
                    (each.name, place, msgspec.json.encode(each))
                    for place, each in enumerate(planned)
                ),
            )

    def about(self) -> About:
        """Return what the file has the results of."""
        with self._open() as database:
            return self._about(database)

    def planned(self) -> list[Planned]:
        """Return all configurations in their order.

        Raises UsageError if they are others than those with which the file was begun.
        """
        with self._open() as database:
            about = self._about(database)
            rows = database.execute("SELECT name, content FROM planned ORDER BY place").fetchall()
        found = [self._planned(*row) for row in rows]
        # Earlier versions wrote down how many there are, and nothing else.
        of_count = len(range(about.shard - 1, about.count, about.shards))
        if about.listed != _listed(found) if about.listed else of_count != len(found):
            raise UsageError(
                f"{self.path}: table planned: its {len(found)} configurations are not those with "
                f"which the sweep began; the file was altered or is damaged"
            )
        return found

    def results(self, *, reports: bool = False) -> Iterator[Result]:
        """Yield the results in the order of the configurations, without or with their reports.

        Raises UsageError for a result that contradicts its configuration or, with reports, what
        its report says.
        """
        with self._open() as database:
            stray = database.execute(
                "SELECT name FROM result WHERE name NOT IN (SELECT name FROM planned)"
            ).fetchone()
            if stray is not None:
                raise self._damaged("result", stray[0], "the sweep has no such configuration")
            rows = database.execute(
                f"SELECT {_COLUMNS}, CASE WHEN ? THEN result.report END FROM result "
                "JOIN planned USING (name) ORDER BY place",
                (reports,),
            )
            for row in rows:
                yield self._result(*row)

    def result(self, name: str) -> Result | None:
        """Return the result of a configuration with its report, or None."""
        with self._open() as database:
            row = database.execute(
                f"SELECT {_COLUMNS}, result.report FROM result JOIN planned USING (name) "
                "WHERE name = ?",
                (name,),
            ).fetchone()
        return None if row is None else self._result(*row)

    def believed(self) -> Results:
        """Return this file, of which every row was read and contradicts nothing.

        Raises UsageError, naming the first one that does.
        """
        self.about()
        for _ in self.results(reports=True):
            continue
        self.planned()
        return self

    def statuses(self) -> Mapping[str, tuple[str, float]]:
        """Return the status and the seconds of every configuration that has a result."""
        return {each.name: (each.status, each.seconds) for each in self.results()}

    def put(self, results: Iterable[Result], of: About | None = None) -> None:
        """Enter results, all or none. A configuration that has one keeps it: none counts twice.

        Raises UsageError if the file is no longer that ``of`` a sweep, but another one of its name.
        """
        with self._open(writes=True) as database:
            if of is not None and self._about(database) != of:
                raise UsageError(
                    f"{self.path} was replaced by the results of another sweep while this one ran; "
                    f"give each sweep a file that nothing else writes"
                )
            database.executemany(
                "INSERT OR IGNORE INTO result VALUES (?, ?, ?)", map(_row, results)
            )

    def drop(self, names: Iterable[str]) -> None:
        """Remove results, so that their configurations are run again."""
        with self._open(writes=True) as database:
            database.executemany("DELETE FROM result WHERE name = ?", ((name,) for name in names))

    def _about(self, database: sqlite3.Connection) -> About:
        row = database.execute("SELECT value FROM about WHERE key = 'about'").fetchone()
        if row is None:
            raise UsageError(f"{self.path} does not say what it has the results of; it is damaged")
        about = self._decoded(row[0], About)
        if not (1 <= about.shard <= about.shards and 0 <= about.started <= LAST_TIME):
            raise UsageError(
                f"{self.path} is damaged: it is part {about.shard} of {about.shards}, begun "
                f"{about.started:g} seconds after 1970"
            )
        return about

    def _planned(self, name: str, content: bytes) -> Planned:
        planned = self._decoded(content, Planned)
        if planned.name != name:
            raise self._damaged("planned", name, f"its content is about {planned.name!r}")
        return planned

    def _result(
        self, name: str, plan: bytes, content: bytes, has_report: int, report: bytes | None
    ) -> Result:
        planned, result = self._planned(name, plan), self._decoded(content, Result)
        if result.name != name:
            raise self._damaged("result", name, f"its content is about {result.name!r}")
        if report is not None:
            result = msgspec.structs.replace(result, report=self._report(name, report))
        wrong = contradiction(planned, result, has_report=bool(has_report))
        if wrong:
            raise self._damaged("result", name, wrong)
        return result

    def _report(self, name: str, report: bytes) -> Report:
        try:
            whole = zstandard.ZstdDecompressor().decompress(report, max_output_size=MOST_REPORT)
            return decode(whole)
        except (zstandard.ZstdError, msgspec.MsgspecError, ValueError, TypeError) as error:
            raise UsageError(f"{self.path}: the report of {name!r}: {error}") from None

    def _damaged(self, table: str, name: str, said: str) -> UsageError:
        return UsageError(
            f"{self.path}: table {table}, row {name!r}: {said}; the file was altered or is damaged"
        )

    def _decoded(self, content: bytes | str, kind: type[Content]) -> Content:
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.MsgspecError, TypeError) as error:  # a row may hold a value of any type
            raise UsageError(f"{self.path} is damaged: {error}") from None

    @contextmanager
    def _open(self, *, create: bool = False, writes: bool = False) -> Iterator[sqlite3.Connection]:
        """Yield the database within a transaction. Raises UsageError for what goes wrong."""
        if not create and not self.path.is_file():
            raise UsageError(f"{self.path}: no such file; pitcheck sweep writes one")
        try:
            with closing(
                sqlite3.connect(self.path.absolute(), timeout=WAIT, isolation_level=None)
            ) as database:
                if not create:
                    self._check(database)
                database.execute("BEGIN IMMEDIATE" if create or writes else "BEGIN")
                yield database
                database.execute("COMMIT")
        except sqlite3.Error as error:
            raise UsageError(f"{self.path}: {error}") from None

    def _check(self, database: sqlite3.Connection) -> None:
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if (application, version) != (APPLICATION, VERSION):
            raise UsageError(
                f"{self.path} has no results of a sweep in version {VERSION} of their format"
            )


def _listed(planned: Sequence[Planned]) -> str:
    """Return a number, in hexadecimal, that two different lists of configurations do not share."""
    return blake2b(msgspec.json.encode(planned), digest_size=16).hexdigest()


def _row(result: Result) -> tuple[str, bytes, bytes | None]:
    """Return the entry of a result: its name, and it without and with its report."""
    report = None if result.report is None else zstandard.compress(encode(result.report), 6)
    content = msgspec.json.encode(msgspec.structs.replace(result, report=None))
    return result.name, content, report
