"""A file of entries by key, which several processes may read and write, and which stays small.

Each entry carries a checksum over its key and content. An entry that does not fit it is not
believed, and a file that is no database any more is set aside. Nothing that goes wrong here stops a
check: there is then nothing to remember.

>>> import tempfile
>>> store = Store(Path(tempfile.mkdtemp()) / "proofs.sqlite")
>>> store.put("stage", "a key", b"a proof")
>>> store.get("stage", "a key"), store.get("stage", "another key")
(b'a proof', None)
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

from pitcheck.cache.folder import made

FILE = "proofs.sqlite"
"""The name of the file in its folder."""
VERSION = 1
"""The version of the table. A file of another one is set aside."""
APPLICATION = 0x70697463
"""The number that marks a database as one of these ("pitc")."""
MOST_BYTES = 64 << 20
"""The bytes that all entries may have together."""
KEPT = 3 / 4
"""The share of these that is left when the oldest entries go."""
LARGEST = 8 << 20
"""The bytes of an entry at most."""
WAIT = 5.0
"""The seconds that a process waits for another one that writes."""
FRESH = 24 * 3600
"""The seconds for which the time of an entry's last use is not written again."""

_TABLE = """CREATE TABLE IF NOT EXISTS entries (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    content BLOB NOT NULL,
    checksum BLOB NOT NULL,
    used INTEGER NOT NULL,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID"""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Contents:
    """The number of entries by kind, their bytes, and how many were damaged."""

    entries: dict[str, int]
    size: int
    damaged: int = 0


class ForeignFileError(sqlite3.DatabaseError):
    """A database that is not one of these, or is one of another version."""


class Store:
    """The entries in the file ``path``, of ``most_bytes`` together at most.

    ``trouble`` says what went wrong first, in words, or is "".
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self.path = path
        self.trouble = ""
        self._most_bytes = most_bytes

    def get(self, kind: str, key: str) -> bytes | None:
        """Return the content of an entry, or None if there is none that can be believed."""
        if not self.path.exists():
            return None
        found = self._tried(lambda database: self._read(database, kind, key), None)
        if found is None:
            return None
        content, used = found
        if not 0 <= time.time() - used < FRESH:
            self._tried(lambda database: _use(database, kind, key), None, writes=True)
        return content

    def put(self, kind: str, key: str, content: bytes) -> None:
        """Enter a content, in place of the one that was there."""
        if len(content) <= LARGEST:
            self._tried(
                lambda database: self._write(database, kind, key, content), None, writes=True
            )

    def contents(self) -> Contents:
        """Return what is there; nothing if there is no file."""
        if not self.path.exists():
            return Contents({}, 0)
        return self._tried(_contents, Contents({}, 0))

    def verified(self) -> Contents:
        """Return what is there once all damaged entries are removed, and how many these were."""
        if not self.path.exists():
            return Contents({}, 0)
        return self._tried(_verified, Contents({}, 0), writes=True)

    def clear(self) -> None:
        """Remove all entries, with their file.

        Raises OSError.
        """
        for suffix in ("", "-journal"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def _tried(
        self,
        action: Callable[[sqlite3.Connection], Result],
        nothing: Result,
        *,
        writes: bool = False,
    ) -> Result:
        """Return what an action on the database returns, or ``nothing`` if it fails."""
        try:
            made(self.path.parent)
            with self._open(writes) as database:
                return action(database)
        except sqlite3.OperationalError as error:
            # Locked for long, read-only, or a full disk: the file itself may be in order.
            self._note(f"{self.path}: {error}")
        except sqlite3.DatabaseError as error:
            self._set_aside(error)
        except OSError as error:
            self._note(f"{self.path}: {error.strerror or error}")
        return nothing

    @contextmanager
    def _open(self, writes: bool) -> Iterator[sqlite3.Connection]:
        """Yield the database within one transaction, which is rolled back if anything is raised.

        No connection outlives it, so that forked processes share none.
        """
        with closing(sqlite3.connect(self.path, timeout=WAIT, isolation_level=None)) as database:
            # A killed process leaves a journal, which is played back. Only a machine that stops may
            # leave a damaged file, which is noticed. To wait for the disk costs more than a proof.
            database.execute("PRAGMA synchronous = OFF")
            # Who will write says so first: two readers that both want to write would wait forever.
            database.execute("BEGIN IMMEDIATE" if writes or self._is_new(database) else "BEGIN")
            if self._is_new(database):
                database.execute(_TABLE)
                database.execute(f"PRAGMA user_version = {VERSION}")
                database.execute(f"PRAGMA application_id = {APPLICATION}")
            yield database
            database.execute("COMMIT")

    def _is_new(self, database: sqlite3.Connection) -> bool:
        """Return True if a database has no table yet.

        Raises ForeignFileError if it has another one.
        """
        (version,) = database.execute("PRAGMA user_version").fetchone()
        (application,) = database.execute("PRAGMA application_id").fetchone()
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
        if (version, application) == (VERSION, APPLICATION) and "entries" in tables:
            return False
        if tables or version or application:
            raise ForeignFileError(f"it is no file of version {VERSION} of remembered proofs")
        return True

    def _read(self, database: sqlite3.Connection, kind: str, key: str) -> tuple[bytes, int] | None:
        """Return the content of an entry, and the second of its last use."""
        row = database.execute(
            "SELECT content, checksum, used FROM entries WHERE kind = ? AND key = ?", (kind, key)
        ).fetchone()
        if row is None:
            return None
        content, checksum, used = row
        if not _fits(kind, key, content, checksum, used):
            self._note(f"{self.path}: a damaged entry is left out")
            return None
        return bytes(content), used

    def _write(self, database: sqlite3.Connection, kind: str, key: str, content: bytes) -> None:
        database.execute(
            "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?)",
            (kind, key, content, _checksum(kind, key, content), int(time.time())),
        )
        size = _size(database)
        if size <= self._most_bytes:
            return
        oldest = database.execute(
            "SELECT kind, key, length(content) FROM entries ORDER BY used, key"
        ).fetchall()
        for old_kind, old_key, length in oldest:
            if size <= KEPT * self._most_bytes:
                break
            database.execute("DELETE FROM entries WHERE kind = ? AND key = ?", (old_kind, old_key))
            size -= length

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        """Move a file away that cannot be read, so that a new one can begin."""
        aside = self.path.with_name(f"{self.path.name}.damaged")
        try:
            self.path.replace(aside)
        except OSError as failure:
            self._note(f"{self.path}: {error}; {failure.strerror or failure}")
        else:
            self._note(f"{self.path}: {error}; it was set aside as {aside.name}")

    def _note(self, trouble: str) -> None:
        """Say what went wrong, once; nobody has to look at it."""
        if not self.trouble:
            self.trouble = trouble
            logging.getLogger("pitcheck").warning("remembered proofs: %s", trouble)


def _checksum(kind: str, key: str, content: bytes) -> bytes:
    head = f"{len(kind)} {kind} {len(key)} {key} ".encode()
    return blake2b(head + content, digest_size=32).digest()


def _fits(kind: str, key: str, content: object, checksum: object, used: object) -> bool:
    """Return True if an entry is as it was written, and its last use a number of seconds."""
    return (
        isinstance(content, bytes)
        and isinstance(used, int)
        and checksum == _checksum(kind, key, content)
    )


def _size(database: sqlite3.Connection) -> int:
    """Return the bytes of the pages that are in use. The database knows them without a search."""
    pages, free, size = (
        database.execute(f"PRAGMA {what}").fetchone()[0]
        for what in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _use(database: sqlite3.Connection, kind: str, key: str) -> None:
    """Note that an entry is in use now."""
    database.execute(
        "UPDATE entries SET used = ? WHERE kind = ? AND key = ?", (int(time.time()), kind, key)
    )


def _contents(database: sqlite3.Connection) -> Contents:
    counts = database.execute("SELECT kind, count(*) FROM entries GROUP BY kind ORDER BY kind")
    return Contents(dict(counts.fetchall()), _size(database))


def _verified(database: sqlite3.Connection) -> Contents:
    """Return the contents of a database without its damaged entries."""
    (said,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    if said != "ok":
        raise sqlite3.DatabaseError(str(said))
    rows = database.execute("SELECT kind, key, content, checksum, used FROM entries").fetchall()
    damaged = [row[:2] for row in rows if not _fits(*row)]
    for kind, key in damaged:
        database.execute("DELETE FROM entries WHERE kind = ? AND key = ?", (kind, key))
    found = _contents(database)
    return Contents(found.entries, found.size, len(damaged))
