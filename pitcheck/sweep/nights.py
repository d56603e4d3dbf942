"""The order of sweeps in time, also where a clock was set back.

A sweep that follows another one is later, whatever its clock says: the page, ``--resume`` and
``--before`` would take an old night for the newest one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from pitcheck.base.streams import say
from pitcheck.cache.folder import FOLDER
from pitcheck.errors import UsageError
from pitcheck.report.lines import printable
from pitcheck.sweep.results import Results

SWEEPS = Path(FOLDER, "sweeps")
"""The folder of results if no file is named."""
SUFFIX = ".sqlite"
STEP = 0.001
"""The seconds by which a sweep is later than the last one, if the clock says that it is earlier."""


def files_in(folder: Path) -> list[Path]:
    """Return the files of results in a folder, by their names."""
    return sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []


def started(file: Path) -> float:
    """Return when the sweep of a file began, in seconds since 1970. Raises UsageError."""
    return Results(file).about().started


def newest(files: Iterable[Path]) -> Path | None:
    """Return the file of the sweep that began last. Raises UsageError if one cannot be read."""
    return max(files, key=started, default=None)


def readable(files: Iterable[Path]) -> list[Path]:
    """Return the files that are results of a sweep."""
    found = []
    for file in files:
        with suppress(UsageError):
            started(file)
            found.append(file)
    return found


def begun(earlier: Iterable[Path]) -> float:
    """Return the time of a sweep that begins now: later than all ``earlier`` ones.

    A clock that is behind one of them is said.
    """
    now, last = time.time(), newest(readable(earlier))
    latest = None if last is None else started(last)
    if latest is None or now > latest:
        return round(now, 3)
    say(
        f"pitcheck: the clock says {_said(now)}, and {printable(str(last))} is of {_said(latest)}; "
        f"this sweep counts as the later one"
    )
    return round(latest + STEP, 3)


def _said(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
