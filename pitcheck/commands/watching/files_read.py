"""The log of all that a check asks the file system, with the answers that it was given.

The process of a check logs it, with its forks: plans, settings, a program and whatever it imports,
reads, lists or asks for, wherever that stands. ``pitcheck check --watch`` waits for other answers.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from importlib.util import source_from_cache
from pathlib import Path
from typing import Any

from pitcheck.commands.watching.answers import (
    ANSWERS,
    ASKED,
    LISTED,
    OPENED,
    SEARCHED,
    Answer,
    Question,
    signature,
    without,
)

_WRITTEN, _MADE, _STARTED = "written", "made", "started"
_LIBRARIES = ("site-packages", "dist-packages", "__pycache__")
_SYSTEM = ("/proc/", "/sys/", "/dev/")
_IMPORTS = ("<frozen importlib", str(Path(importlib.__file__).parent))
"""The beginnings of the names of code that looks for modules and packages."""
_PITCHECK = str(Path(__file__).parents[2]) + os.sep
_CHANGES: Mapping[str, tuple[slice, slice]] = {
    "os.remove": (slice(1), slice(1, 2)),
    "os.rename": (slice(2), slice(2, 4)),
    "os.link": (slice(1, 2), slice(2, 4)),
    "os.symlink": (slice(1, 2), slice(2, 3)),
    "os.truncate": (slice(1), slice(0)),
}
"""Event -> where its arguments have the names that it changes, and the folders they start from."""
_STARTS: Mapping[str, int] = {"subprocess.Popen": 1, "os.exec": 1, "os.posix_spawn": 1}
"""Event -> which of its arguments has the words of a program that is started."""


@dataclass(frozen=True)
class Reads:
    """The questions of a check with their first answers, and the programs that it started.

    ``made`` are the files and folders that it wrote itself, which are no inputs.
    """

    answers: Mapping[Question, Answer] = field(default_factory=dict)
    made: frozenset[str] = frozenset()
    started: tuple[str, ...] = ()


class Log:
    """The log of what this process and its forks ask the file system from now on.

    What belongs to installed packages, to Python and to pitcheck is left out, as is everything
    below the folders ``left_out``. The hooks stay until the process ends.
    """

    def __init__(self, file: Path, left_out: Sequence[Path] = ()) -> None:
        self._folders = (*_libraries(), *(f"{folder.absolute()}{os.sep}" for folder in left_out))
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._seen: set[Question] = set()
        self._busy = threading.local()
        sys.addaudithook(self._happens)
        for name in ("stat", "lstat", "access"):  # these raise no event
            self._wrap(name)

    def searches(self, folders: Iterable[str]) -> None:
        """Log that imports look into some folders, in which there may be no module yet."""
        for folder in folders:
            self._quietly(self._add, SEARCHED, os.path.abspath(folder))  # noqa: PTH100  as signature

    def _wrap(self, name: str) -> None:
        """Put a function that logs in the place of one that asks for the state of a file."""
        asks = getattr(os, name)

        @wraps(asks)
        def asked(path: Any, *others: Any, **named: Any) -> Any:
            if named.get("dir_fd") is None:
                self._quietly(self._ask, path)
            return asks(path, *others, **named)

        setattr(os, name, asked)
        for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if asks in able:
                able.add(asked)
        if asks in os.supports_effective_ids:
            os.supports_effective_ids.add(asked)

    def _quietly(self, log: Callable[..., None], *arguments: Any) -> None:
        """Log something. What cannot be logged must not change what the program does."""
        if getattr(self._busy, "now", False):
            return
        self._busy.now = True
        try:
            log(*arguments)
        except (OSError, TypeError, ValueError, IndexError):
            return
        finally:
            self._busy.now = False

    def _happens(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            self._quietly(self._open, *arguments)
        elif event in ("os.listdir", "os.scandir"):
            by = sys._getframe(1).f_code.co_filename
            self._quietly(self._list, arguments[0], SEARCHED if by.startswith(_IMPORTS) else LISTED)
        elif event in _CHANGES:
            self._quietly(self._change, event, arguments)
        elif event == "os.mkdir":
            self._quietly(self._make, arguments)
        elif event == "sqlite3.connect":
            by = sys._getframe(1).f_code.co_filename
            self._quietly(self._connect, arguments[0], by.startswith(_PITCHECK))
        elif event in _STARTS:
            self._quietly(self._start, arguments, _STARTS[event])
        elif event == "os.system":
            self._quietly(self._add, _STARTED, os.fsdecode(arguments[0]).split()[0])

    def _open(self, path: Any, mode: str | None, flags: int) -> None:
        if isinstance(path, int):
            return
        name = _source(_absolute(path))
        reads = _only_reads(mode, flags)
        self._add(OPENED if reads else _WRITTEN, name)
        if reads and name.endswith(".py"):  # a new module beside it may be another one's import
            self._add(SEARCHED, os.path.dirname(name))  # noqa: PTH120  as signature

    def _ask(self, path: Any) -> None:
        if not isinstance(path, int):
            self._add(ASKED, _absolute(path))

    def _list(self, folder: Any, kind: str) -> None:
        if not isinstance(folder, int):
            self._add(kind, _absolute("." if folder is None else folder))

    def _change(self, event: str, arguments: tuple[Any, ...]) -> None:
        files, starts = _CHANGES[event]
        if all(start == -1 for start in arguments[starts]):
            for path in arguments[files]:
                self._add(_WRITTEN, _absolute(path))

    def _make(self, arguments: tuple[Any, ...]) -> None:
        path, _, start = arguments
        if start == -1 and signature(_absolute(path)) is None:
            self._add(_MADE, _absolute(path))

    def _connect(self, database: Any, inside: bool) -> None:
        """Log a database: that of pitcheck and a new one are written, any other may be an input."""
        if database not in ("", ":memory:"):
            made = inside or signature(_absolute(database)) is None
            self._add(_WRITTEN if made else ASKED, _absolute(database))

    def _start(self, arguments: tuple[Any, ...], words: int) -> None:
        """Log a program that is started, and the files that its command names."""
        given = arguments[words]
        given = [given] if isinstance(given, (str, bytes)) else list(given)
        self._add(_STARTED, os.path.basename(os.fsdecode(given[0])))  # noqa: PTH119  as signature
        for word in map(os.fsdecode, given):
            if signature(_absolute(word)) is not None:
                self._add(ASKED, _absolute(word))

    def _add(self, kind: str, name: str) -> None:
        """Write one line for a question, unless there is one."""
        if (kind, name) in self._seen or (kind != _STARTED and _is_left_out(name, self._folders)):
            return
        self._seen.add((kind, name))
        answer = ANSWERS[kind](name) if kind in ANSWERS else None
        os.write(self._file, json.dumps([kind, name, answer]).encode("ascii") + b"\n")


def read_log(log: Path) -> Reads:
    """Return what was asked, with the first answers.

    What was written, too, is no input: a program may keep files of its own.
    """
    first: dict[Question, Answer] = {}
    for line in log.read_text(encoding="ascii").splitlines() if log.exists() else ():
        kind, name, answer = json.loads(line)
        first.setdefault((kind, name), None if answer is None else tuple(answer))
    folders = tuple(f"{name}{os.sep}" for kind, name in first if kind == _MADE)
    made = frozenset(name for kind, name in first if kind in (_WRITTEN, _MADE))
    answers = {
        (kind, name): without(answer, name, made) if kind in (LISTED, SEARCHED) else answer
        for (kind, name), answer in first.items()
        if kind in ANSWERS and name not in made and not name.startswith(folders)
    }
    return Reads(answers, made, tuple(name for kind, name in first if kind == _STARTED))


def _absolute(path: Any) -> str:
    return os.path.abspath(os.fsdecode(path))  # noqa: PTH100  as signature


def _only_reads(mode: str | None, flags: int) -> bool:
    if mode is None:
        return flags & (os.O_ACCMODE | os.O_CREAT | os.O_TRUNC) == os.O_RDONLY
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
    return inside or f"{name}{os.sep}".startswith((*_SYSTEM, *folders))


def _libraries() -> list[str]:
    """Return the folders of Python and of pitcheck, which no one edits between two checks."""
    packages = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
    python = Path(sysconfig.get_path("stdlib")).parent
    return [f"{path}{os.sep}" for path in (*packages, python)] + [_PITCHECK]
