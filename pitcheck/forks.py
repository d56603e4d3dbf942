"""Forked processes that give one answer each, or answer one question after the other.

A fork inherits the data it works on; only questions and answers are sent. The module that forks is
imported when a process is asked for: one process needs none, and a browser has none.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

Key = TypeVar("Key", bound=Hashable)


NO_FORK = "--jobs above 1 needs a system that can fork processes; leave it at 1"
MOST_JOBS = 4
"""The most processes without a choice of the user: each needs separate memory."""


ENDING = (signal.SIGINT, signal.SIGTERM)
"""The signals that end a process."""


class Ended(NamedTuple, Generic[Key]):
    """A process that is done.

    ``answer`` is None if it gave none; ``code`` is its exit code.
    """

    key: Key
    answer: Any
    code: int | None


def can_fork() -> bool:
    """Return True if the system can fork processes."""
    import multiprocessing  # noqa: PLC0415

    return "fork" in multiprocessing.get_all_start_methods()


def usable_jobs() -> int:
    """Return the number of processors that this process may use, at most MOST_JOBS.

    Return 1 if forking a process that has run numerical libraries is not safe.
    """
    return min(len(os.sched_getaffinity(0)), MOST_JOBS) if sys.platform == "linux" else 1


class Forks(Generic[Key]):
    """The running processes, by key.

    Raises:
        ValueError: if the system cannot fork.
    """

    def __init__(self) -> None:
        import multiprocessing  # noqa: PLC0415

        self._context = multiprocessing.get_context("fork")
        self._running: dict[Connection, tuple[Key, BaseProcess]] = {}

    @property
    def running(self) -> Collection[Key]:
        """The keys of the running processes."""
        return [key for key, _ in self._running.values()]

    @property
    def pipes(self) -> list[Connection]:
        """The pipes of the running processes, which can be read once a process has ended."""
        return list(self._running)

    def start(self, key: Key, work: Callable[..., Any], *arguments: Any) -> None:
        """Run ``work`` in a forked process."""
        mine, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_answer, args=(theirs, work, arguments), daemon=True)
        with _held_back():
            process.start()
        theirs.close()
        self._running[mine] = (key, process)

    def ended(self, timeout: float | None = None) -> list[Ended[Key]]:
        """Return the processes that have ended.

        Wait for the first at most ``timeout`` seconds (None: as long as it takes).
        """
        from multiprocessing.connection import Connection, wait  # noqa: PLC0415

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
        """End the running processes."""
        for pipe, (_, process) in self._running.items():
            process.terminate()
            process.join()
            pipe.close()
        self._running.clear()


class Answering:
    """A forked process that answers questions, one after the other.

    ``begin`` is called in the process, once, and returns what answers a question.

    Raises:
        ValueError: if the system cannot fork.
    """

    def __init__(self, begin: Callable[[], Callable[[Any], Any]]) -> None:
        import multiprocessing  # noqa: PLC0415

        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        arguments = (self.pipe, theirs, begin)
        self._process = context.Process(target=_answer_all, args=arguments, daemon=True)
        with _held_back():
            self._process.start()
        theirs.close()

    def ask(self, question: Any) -> None:
        """Send a question. A process that has ended is noticed when its answer is taken."""
        with suppress(OSError):
            self.pipe.send(question)

    def answer(self) -> Any:
        """Wait for the answer, and return it.

        Raises:
            EOFError: the process ended without one.
        """
        try:
            return self.pipe.recv()
        except OSError as error:
            raise EOFError from error

    def stop(self) -> int | None:
        """End the process, and return its exit code: negative for that of a signal."""
        self.pipe.close()
        self._process.terminate()
        self._process.join()
        return self._process.exitcode


def ready(pipes: Collection[Connection]) -> Collection[Any]:
    """Wait until some of the pipes can be read, and return these."""
    from multiprocessing.connection import wait  # noqa: PLC0415

    return wait(list(pipes))


@contextmanager
def _held_back() -> Iterator[None]:
    """Hold signals back while a process is forked: until it has begun it would answer wrongly."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    """Make this process one that ends as soon as the one that forked it says so.

    What was inherited would answer signals in place of that one: an interrupt is its affair.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    # A collection would visit all that is inherited, and so copy the memory that is shared.
    gc.freeze()


def _answer_all(
    theirs: Connection, pipe: Connection, begin: Callable[[], Callable[[Any], Any]]
) -> None:
    theirs.close()
    _begin()
    answer = begin()
    for question in _questions(pipe):
        pipe.send(answer(question))


def _questions(pipe: Connection) -> Iterator[Any]:
    """Yield questions until the process that asks is done with this one, or has ended."""
    with suppress(EOFError, OSError):
        while True:
            yield pipe.recv()


def _answer(pipe: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    _begin()
    answer = work(*arguments)
    if answer is not None:
        pipe.send(answer)
    pipe.close()
