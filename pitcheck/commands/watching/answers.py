"""Questions to the file system, and their answers: what a check has found there.

A check depends on more than the files that it opens. A file that is not there, a folder that is
listed and the folders of imports decide as well what it sees.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from importlib.machinery import all_suffixes
from os import scandir, stat
from stat import S_IFMT, S_ISREG

Signature = tuple[int, ...] | None
"""The state of a file that differs after every write, None without a file."""
Answer = tuple[int, ...] | tuple[str, ...] | None
"""A state, or the sorted names in a folder; None for what is not there."""
Question = tuple[str, str]
"""The kind of a question, and the absolute name of a file or folder."""

OPENED, ASKED, LISTED, SEARCHED = "opened", "asked", "listed", "searched"
"""Opened for reading; asked for its state or existence; a folder listed, or searched by imports."""
_SUFFIXES = tuple(all_suffixes())


def signature(path: str) -> Signature:
    """Return the state of a file. A write that restores size and time changes ``ctime``."""
    try:
        found = stat(path)  # noqa: PTH116  runs inside an audit hook, for every opened file
    except (OSError, ValueError):
        return None
    return (
        found.st_mode,
        found.st_dev,
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )


def state(path: str) -> Signature:
    """Return the signature of a file, and of anything else what and which one it is.

    The time of a folder changes with everything that is written into it.
    """
    found = signature(path)
    return found if found is None or S_ISREG(found[0]) else (S_IFMT(found[0]), *found[1:3])


def kind(found: Answer) -> Answer:
    """Return of a state that something is there, and what it is: a file or a folder."""
    return (S_IFMT(int(found[0])),) if found else None


def names(folder: str) -> Answer:
    """Return the names in a folder, sorted; None if it cannot be listed."""
    return _names(folder, lambda _: True)


def modules(folder: str) -> Answer:
    """Return the names in a folder that an import may find, sorted; None as for :func:`names`."""
    return _names(folder, _is_module)


def _names(folder: str, counts: Callable[[os.DirEntry[str]], bool]) -> Answer:
    try:
        with scandir(folder) as entries:
            return tuple(sorted(entry.name for entry in entries if counts(entry)))
    except (OSError, ValueError):
        return None


def _is_module(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith((".", "__pycache__")):
        return False
    return entry.name.endswith(_SUFFIXES) or entry.is_dir()


ANSWERS: Mapping[str, Callable[[str], Answer]] = {
    OPENED: state,
    ASKED: state,
    LISTED: names,
    SEARCHED: modules,
}
"""Kind of a question -> what answers it."""


def without(found: Answer, folder: str, made: Collection[str]) -> Answer:
    """Return the names of a folder without those of files that the check itself made."""
    if found is None:
        return None
    return tuple(str(name) for name in found if os.path.join(folder, str(name)) not in made)  # noqa: PTH118


def now(question: Question, made: Collection[str] = ()) -> Answer:
    """Return the answer of this moment. Files that are ``made`` by the check do not count."""
    what, name = question
    found = ANSWERS[what](name)
    return without(found, name, made) if what in (LISTED, SEARCHED) else found
