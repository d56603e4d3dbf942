"""A process with all that it has started: the memory of all of them, and their end.

Both are read from ``/proc``. Where there is none, a process group stands for the tree, and its
memory is not known.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import NamedTuple

PROC = Path("/proc")
STALE = 0.2
"""The seconds for which a list of all processes is taken for the present one."""
_COUNTED = re.compile(rb"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s+([0-9]+) kB$", re.MULTILINE)
"""Memory that only these processes hold: files that are mapped can be read again."""
_WHOLE = re.compile(rb"^(?:Pss|SwapPss):\s+([0-9]+) kB$", re.MULTILINE)


class Process(NamedTuple):
    """The parent of a process, and its session."""

    parent: int
    session: int


def processes() -> dict[int, Process]:
    """Return all processes by their number; none where there is no ``/proc``."""
    found = {}
    with suppress(OSError):
        for name in os.listdir(PROC):  # noqa: PTH208  names alone, and often
            if name.isdecimal():
                with suppress(OSError, ValueError, IndexError):
                    found[int(name)] = _process((PROC / name / "stat").read_bytes())
    return found


def _process(stat: bytes) -> Process:
    # The name of a program stands in parentheses, and may hold any character.
    fields = stat.rpartition(b")")[2].split()
    return Process(int(fields[1]), int(fields[3]))


def tree(root: int, every: Mapping[int, Process]) -> set[int]:
    """Return the processes of the session ``root``, with all that they and ``root`` started."""
    found = {root} | {number for number, each in every.items() if each.session == root}
    while more := {n for n, each in every.items() if each.parent in found and n not in found}:
        found |= more
    return found


def kill(root: int) -> None:
    """Kill all that the leader ``root`` of a session has started, and it last."""
    for number in tree(root, processes()) - {root}:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(number, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(root, signal.SIGKILL)


def memory(numbers: set[int]) -> int:
    """Return the bytes that some processes hold together, 0 if that is not known.

    What they share counts once: shared memory, and pages that a fork has not written to.
    """
    return sum(map(_memory, numbers))


def _memory(number: int) -> int:
    try:
        told = (PROC / str(number) / "smaps_rollup").read_bytes()
    except OSError:
        return 0
    counted = _COUNTED if b"Pss_Anon:" in told else _WHOLE
    return 1024 * sum(map(int, counted.findall(told)))


class Watcher:
    """The memory of trees of processes. Threads that ask at one time share a look at them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._every: dict[int, Process] = {}
        self._looked = -STALE

    def of(self, root: int) -> int:
        """Return the bytes that a process and all that it has started hold together."""
        return memory(tree(root, self._now()))

    def _now(self) -> dict[int, Process]:
        with self._lock:
            if monotonic() - self._looked >= STALE:
                self._every, self._looked = processes(), monotonic()
            return self._every


def end_with(lifeline: int, ending: Callable[[], None]) -> None:
    """Call ``ending`` in a thread when the other end of the pipe ``lifeline`` is closed.

    That is when its process has ended, however it did.
    """

    def wait() -> None:
        while os.read(lifeline, 1):
            continue
        ending()

    threading.Thread(target=wait, daemon=True).start()
