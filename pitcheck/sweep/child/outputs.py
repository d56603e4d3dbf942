"""The pipes of a process: its orders, its answer, and the last of what it says.

A process may write without end. What is kept of that has a bound, so that it fills no memory but
its own.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import IO

CHUNK = 1 << 16
"""The bytes that are read at once."""
MOST_ANSWER = 1 << 28
"""The bytes of an answer at most; a longer one is cut, and can be read by nobody."""
MOST_LAST = 1 << 16
"""The last bytes of standard error that are kept."""


@dataclass
class Outputs:
    """The answer and the last words of a process, while it runs and after it has ended."""

    process: subprocess.Popen[bytes]
    answer: bytearray = field(default_factory=bytearray)
    said: bytearray = field(default_factory=bytearray)
    _threads: list[threading.Thread] = field(default_factory=list)

    @classmethod
    def of(cls, process: subprocess.Popen[bytes], given: bytes) -> Outputs:
        """Give a process its orders, and begin to read what it writes."""
        found = cls(process)
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        if stdin is None or stdout is None or stderr is None:
            raise ValueError("the process has no pipes")
        found._begin(lambda: _give(stdin, given))
        found._begin(lambda: _read_first(stdout, found.answer))
        found._begin(lambda: _read_last(stderr, found.said))
        return found

    def _begin(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        self._threads.append(thread)

    def ended(self, seconds: float) -> bool:
        """Wait for so long, and return True if the process has ended and nobody can write more."""
        end = monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            return False
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, end - monotonic()))
        return self.process.returncode is not None


def _give(stream: IO[bytes], given: bytes) -> None:
    with suppress(OSError), stream:  # it may end before it has read them
        stream.write(given)


def _read_first(stream: IO[bytes], kept: bytearray) -> None:
    """Keep the first bytes of a stream, and read it to its end."""
    with stream:
        while chunk := os.read(stream.fileno(), CHUNK):
            kept += chunk[: MOST_ANSWER - len(kept)]


def _read_last(stream: IO[bytes], kept: bytearray) -> None:
    """Keep the last bytes of a stream, and read it to its end."""
    with stream:
        while chunk := os.read(stream.fileno(), CHUNK):
            kept += chunk
            del kept[:-MOST_LAST]
