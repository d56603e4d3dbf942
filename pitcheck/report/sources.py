"""Places in files, as tools that show reports beside source code name them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from pitcheck.report.report import Finding

_NUMBER = re.compile("[1-9][0-9]{0,8}")


class Source(NamedTuple):
    """A file and a line of it, from 1; None for the whole file.

    A file below the working directory is named relative to it.
    """

    file: str
    line: int | None = None

    @property
    def uri(self) -> str:
        """The file as a URI, relative if the path is.

        What UTF-8 cannot hold is written as a backslash escape.
        """
        path = quote(self.file, safe="/", errors="backslashreplace")
        return f"file://{path}" if path.startswith("/") else path


def source_line(text: str | None) -> Source | None:
    """Return the place that ``file:line`` names, or None for a module's path and the like."""
    file, colon, line = (text or "").rpartition(":")
    if not colon or not file or _NUMBER.fullmatch(line) is None:
        return None
    return Source(_seen(file), int(line))


def place_of(finding: Finding, plans: Sequence[str]) -> Source | None:
    """Return the line to blame, or without one the file of the plan that the finding is about.

    ``plans``: the files, the reference first, if any.
    """
    found = source_line(finding.source)
    if found is not None or not plans:
        return found
    named = next((plan for plan in plans if plan in finding.title), None)
    return Source(_seen(named or plans[0 if side_of(finding) == "reference" else -1]))


def side_of(finding: Finding) -> str:
    """Return the plan that a finding is about, ``reference`` or ``parallel``.

    Titles begin with "reference plan:" exactly for what validation says of the reference plan.
    """
    return "reference" if finding.title.startswith("reference plan:") else "parallel"


def _seen(file: str) -> str:
    path = Path(file)
    here = Path.cwd()
    return (
        path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path
    ).as_posix()
