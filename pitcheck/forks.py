"""Forked processes that each give one answer. A fork inherits what it works on; only the answer is
sent.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Collection, Hashable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)


MOST_JOBS = 4
"""Processes where nobody says how many: each needs memory of its own."""


class Ended(NamedTuple, Generic[Key]):
    """A process that is done; ``answer`` is None where it gave none, and ``code`` what it exited
    with.
    """

    key: Key
    answer: Any
    code: int | None


def can_fork() -> bool:
    """Whether the system can fork processes."""
    return "fork" in multiprocessing.get_all_start_methods()


def usable_jobs() -> int:
    """As many processes as this one may use processors; one where forking a process that has run
    numerical libraries is not safe.
    """
    return min(len(os.sched_getaffinity(0)), MOST_JOBS) if sys.platform == "linux" else 1


class Forks(Generic[Key]):
    """The processes that run, by key. Raises ValueError where the system cannot fork."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("fork")
        self._running: dict[Connection, tuple[Key, BaseProcess]] = {}

    @property
    def running(self) -> Collection[Key]:
        """The keys of what runs."""
        return [key for key, _ in self._running.values()]

    def start(self, key: Key, work: Callable[..., Any], *arguments: Any) -> None:
        """Run ``work`` in a process of its own."""
        mine, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_answer, args=(theirs, work, arguments), daemon=True)
        process.start()
        theirs.close()
        self._running[mine] = (key, process)

    def ended(self, timeout: float | None = None) -> list[Ended[Key]]:
        """What has ended, waiting for the first at most so many seconds (None: as long as it
        takes).
        """
        found = []
        for pipe in wait(list(self._running), timeout) if self._running else ():
            if isinstance(pipe, Connection):
                key, process = self._running.pop(pipe)
                try:
                    answer = pipe.recv()
                except EOFError:
                    answer = None
                pipe.close()
                process.join()
                found.append(Ended(key, answer, process.exitcode))
        return found

    def stop(self) -> None:
        """End what runs."""
        for pipe, (_, process) in self._running.items():
            process.terminate()
            process.join()
            pipe.close()
        self._running.clear()


def _answer(pipe: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    answer = work(*arguments)
    if answer is not None:
        pipe.send(answer)
    pipe.close()
