"""The nearest known name, for messages about a wrong one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

_LONGEST = 100
_MOST_ENTRIES = 10_000


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "; the nearest is 'NAME'" for the known name that resembles ``name``, or "".

    Upper and lower case count as equal.
    """
    by_lower = {each.lower(): each for each in known}
    near = get_close_matches(name[:_LONGEST].lower(), by_lower, n=1)
    return f"; the nearest is {by_lower[near[0]]!r}" if near else ""


def nearest_file(path: Path) -> str:
    """Return the nearest file in the folder of a file that is missing, as :func:`nearest` does.

    Files of the same suffix come first. A folder that is missing is named instead.
    """
    if not path.parent.is_dir():
        return f"; the folder {path.parent} does not exist"
    try:
        with os.scandir(path.parent) as entries:
            names = [
                entry.name for entry in islice(entries, _MOST_ENTRIES) if entry.name != path.name
            ]
    except OSError:
        return ""
    suffix = "".join(path.suffixes[-2:])
    # A suffix that both names have would make any two of them similar.
    stems = {name.removesuffix(suffix): name for name in names if name.endswith(suffix)}
    near = get_close_matches(path.name.removesuffix(suffix)[:_LONGEST], stems, n=1)
    if near:
        return f"; the nearest is {stems[near[0]]!r}"
    return nearest(path.name, [name for name in names if not name.endswith(suffix)])


def shown(value: object) -> str:
    """Return a value as a message quotes it, cut to 60 characters."""
    return cut(repr(value))


def cut(text: str) -> str:
    """Return a text, cut to 60 characters."""
    return text if len(text) <= 60 else f"{text[:57]}..."
