"""The files that a check reads, each as it was when it was opened.

The process of a check logs them, with its forks: plans, settings, a program and whatever it
imports or reads, wherever the import stands. ``pitcheck check --watch`` waits for them to change.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Callable, Collection, Sequence
from importlib.util import source_from_cache
from pathlib import Path
from typing import Any

Signature = tuple[int, ...] | None
"""The state of a file that differs after every write, None without a file."""

_LIBRARIES = ("site-packages", "dist-packages", "__pycache__")
_SYSTEM = ("/proc/", "/sys/", "/dev/")


def signature(path: str) -> Signature:
    """Return the state of a file. A write that restores size and time changes ``ctime``."""
    try:
        found = os.stat(path)  # noqa: PTH116  runs inside an audit hook, for every opened file
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


def log_files(log: Path, left_out: Sequence[Path] = ()) -> None:
    """Log from now on every file that this process and its forks open.

    Files of installed packages, of Python and of pitcheck are left out, as are those below the
    folders ``left_out``. The hook stays until the process ends.
    """
    folders = (*_libraries(), *(f"{folder.absolute()}{os.sep}" for folder in left_out))
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    sys.addaudithook(_hook(descriptor, folders))


def read_log(log: Path) -> dict[str, Signature]:
    """Return the files that were read, as they were at first.

    What was written, too, is no input: a program may keep files of its own.
    """
    first: dict[str, Signature] = {}
    written: set[str] = set()
    for line in log.read_text(encoding="ascii").splitlines() if log.exists() else ():
        path, reads, state = json.loads(line)
        if reads:
            first.setdefault(path, None if state is None else tuple(state))
        else:
            written.add(path)
    return {path: state for path, state in first.items() if path not in written}


def _hook(descriptor: int, folders: tuple[str, ...]) -> Callable[[str, tuple[Any, ...]], None]:
    seen: set[tuple[str, bool]] = set()

    def opened(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open":
            return
        try:
            _log(arguments, descriptor, folders, seen)
        except (OSError, TypeError, ValueError):
            return  # what cannot be logged must not change what is opened

    return opened


def _log(
    arguments: tuple[Any, ...],
    descriptor: int,
    folders: tuple[str, ...],
    seen: set[tuple[str, bool]],
) -> None:
    """Write one line for a file that is opened, unless there is one."""
    path, mode, flags = arguments
    if isinstance(path, int):
        return
    name = _source(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100  as signature
    reads = _only_reads(mode, flags)
    if (name, reads) in seen or _is_left_out(name, folders):
        return
    seen.add((name, reads))
    os.write(descriptor, json.dumps([name, reads, signature(name)]).encode("ascii") + b"\n")


def _only_reads(mode: str | None, flags: int) -> bool:
    if mode is None:
        return flags & os.O_ACCMODE == os.O_RDONLY
    return not set(mode) & set("wax+")


def _source(name: str) -> str:
    """Return the source file of bytecode; every other name as it is."""
    if not name.endswith(".pyc"):
        return name
    try:
        return source_from_cache(name)
    except ValueError:
        return name


def _is_left_out(name: str, folders: Collection[str]) -> bool:
    inside = not set(_LIBRARIES).isdisjoint(Path(name).parts)
    return inside or name.startswith((*_SYSTEM, *folders))


def _libraries() -> list[str]:
    """Return the folders of Python and of pitcheck, which no one edits between two checks."""
    packages = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
    python, pitcheck = Path(sysconfig.get_path("stdlib")).parent, Path(__file__).parents[2]
    return [f"{path}{os.sep}" for path in (*packages, python, pitcheck)]
