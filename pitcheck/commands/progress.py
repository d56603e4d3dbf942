"""The progress of a check, and its early end: its time is up, or somebody ends it.

>>> with watched(shown=False) as work:
...     work("stages", 3, 7)
>>> work.done
3
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from time import monotonic, perf_counter
from types import FrameType
from typing import Any

from pitcheck.base.streams import say
from pitcheck.base.work import Work
from pitcheck.errors import Interrupted, UsageError

Progress = Callable[..., None]
"""A function (step, done, total, said) that is told how far a check is. ``said``: a sentence for
people, which may be left out.
"""
AFTER = 0.5
"""The seconds after which a check is worth a bar."""
EVERY = 10.0
"""The seconds between two lines of progress where no terminal shows a bar."""
AGAIN = 1.0
"""The seconds after which a check that goes on is asked to end once more: a program may have taken
the request for an error of its own.
"""
GRACE = 1.5
"""The seconds that one call may take until its end is no longer waited for."""
BY_SIGNAL: Mapping[int, str] = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "ended by SIGTERM",
}
"""Why a check ends early, by the signal that ends it."""


@dataclass
class _Shown:
    """The progress that people see: a bar on a terminal, else a line every ten seconds.

    The part that is done never grows smaller. Where more becomes known, the line says how much.
    """

    work: Work
    start: float = field(default_factory=perf_counter)
    bar: Any = None
    task: Any = None
    part: float = 0.0

    def tell(self, step: str, done: int, total: int, said: str = "") -> None:
        """Show how many are done of what is known."""
        if said:
            say(said)
        self.part = max(self.part, done / total if total else 0.0)
        if self.bar is None and perf_counter() - self.start >= AFTER and sys.stderr.isatty():
            self.bar = _bar()
            self.bar.start()
            self.task = self.bar.add_task(step, total=1.0)
        if self.bar is not None:
            said = f"{done} of {total} {step} known so far"
            self.bar.update(self.task, description=said, completed=self.part)

    def line(self) -> None:
        """Say what goes on, if no bar does."""
        if self.bar is None:
            say(f"{perf_counter() - self.start:.0f} s: {_now(self.work)}")

    def stop(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.stop()


def _now(work: Work) -> str:
    """Return what is done so far and what goes on, in words."""
    counted = f"{work.done} of {work.total} {work.step} known so far; " if work.total else ""
    return f"{counted}now: {work.place() or 'begin'}"


def _reached(work: Work) -> str:
    """Return how far an interrupted check came, in words."""
    if not work.total:
        return "interrupted before anything was proven"
    return (
        f"interrupted without a verdict, at {work.place()} ({work.done} of {work.total} "
        f"{work.step} done). Finished proofs are kept, unless --no-cache was given"
    )


@contextmanager
def watched(
    *,
    shown: bool,
    seconds: float | None = None,
    overdue: Callable[[], None] | None = None,
    signals: bool = False,
) -> Iterator[Work]:
    """Yield what is told how far a check is.

    It is ``shown`` as a bar if stderr is a terminal, else as a line every ten seconds. After
    ``seconds``, and with ``signals`` after Ctrl-C and SIGTERM, Interrupted is raised in the block.
    If one call keeps it from that, ``overdue`` is called in another thread instead.

    Raises:
        UsageError: there is a limit, and this is not the main thread, which alone is interrupted.
    """
    work = Work(doing="read the plans")
    seen = _Shown(work)
    if shown:
        work.told = seen.tell
    main = threading.current_thread() is threading.main_thread()
    if seconds is not None and not main:
        raise UsageError("a check with a limit of seconds has to run in the main thread")
    numbers = [signal.SIGINT, *([signal.SIGTERM] if signals else [])]
    watch = _Watch(work, seconds, seen.line if shown else None, overdue, signals)
    before = {}
    if main and (signals or seconds is not None):
        before = {number: signal.signal(number, watch.signalled) for number in numbers}
    watch.before = before
    if before or shown:
        watch.start()
    try:
        yield work
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_reached(work)) from None
    finally:
        watch.end()
        for number, handler in before.items():
            signal.signal(number, handler)
        seen.stop()


@contextmanager
def limited(seconds: float | None, progress: Progress | None) -> Iterator[Work]:
    """Yield what a check tells its progress, and end it after ``seconds``.

    ``progress`` that keeps a limit of its own stays what it is.
    """
    if isinstance(progress, Work):
        yield progress
        return
    with watched(shown=False, seconds=seconds) as work:
        work.told = progress
        yield work


class _Watch:
    """A thread that says what goes on, and ends the check when its time is up.

    The thread waits nearly always. Signals reach the main thread alone, and between two steps of
    the interpreter alone: while one call of NumPy runs, the thread is what can still act.
    """

    def __init__(
        self,
        work: Work,
        seconds: float | None,
        line: Callable[[], None] | None,
        overdue: Callable[[], None] | None,
        signals: bool,
    ) -> None:
        self.before: Mapping[Any, Any] = {}
        self._work, self._seconds, self._line = work, seconds, line
        self._overdue, self._signals = overdue, signals
        self._ended = threading.Event()
        self._asked = 0
        self._heard = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def end(self) -> None:
        """Watch no more: whatever comes now comes too late."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def signalled(self, number: int, frame: FrameType | None) -> None:
        """Answer a signal in the main thread: raise Interrupted.

        A second interrupt by hand ends everything at once.
        """
        if self._ended.is_set():
            return
        by_hand = self._asked == self._heard
        self._heard = self._asked
        if by_hand and self._work.over and number == signal.SIGINT:
            raise KeyboardInterrupt
        if by_hand and not self._signals:
            handler = self.before.get(number)
            if callable(handler):
                handler(number, frame)
            return
        if not self._work.over:
            self._work.over, self._work.signalled = BY_SIGNAL[number], number
        raise Interrupted(self._work.over)

    def _watch(self) -> None:
        start = monotonic()
        limit = inf if self._seconds is None else start + self._seconds
        line = inf if self._line is None else start + EVERY
        while not self._ended.wait(max(0.0, min(limit, line, monotonic() + EVERY) - monotonic())):
            now = monotonic()
            if self._line is not None and now >= line:
                line += EVERY
                self._line()
            if now >= limit:
                limit = inf if self._work.noticed else now + AGAIN
                self._ask()

    def _ask(self) -> None:
        """Ask the main thread to end the check, and answer in its place if it does not hear."""
        if self._work.noticed:
            return
        self._work.over = f"--seconds {self._seconds:g} are over"
        self._asked += 1
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        if self._overdue is not None and not self._heard and not self._ended.wait(GRACE):
            self._answer_in_place(self._overdue)

    def _answer_in_place(self, overdue: Callable[[], None]) -> None:
        """Answer in place of a main thread that still has not heard."""
        if not self._heard:
            overdue()


def end_now(code: int) -> None:
    """End this process and all that it forked, whatever its main thread does."""
    from multiprocessing import active_children  # noqa: PLC0415

    for child in active_children():
        child.kill()
    sys.stdout.flush()
    os._exit(code)


def _bar() -> Any:
    from rich.console import Console  # noqa: PLC0415  only a terminal pays for rich
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Bar(*columns, console=Console(stderr=True), transient=True)
