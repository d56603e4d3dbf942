"""The standard streams of the process, closed, full and unread ones included."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


def reserve_closed() -> None:
    """Put ``/dev/null`` in the place of standard streams that are closed.

    Without that, the next opened file takes the number of a closed stream, and what is printed
    ends in that file. To write to a closed standard output or descriptor 2 still fails; messages
    for a closed standard error vanish.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            _reserve(number)


def _reserve(number: int) -> None:
    opened = os.open(os.devnull, os.O_RDONLY)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    if number == 1:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if number == 2:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        sys.stderr = os.fdopen(nowhere, "w", encoding="utf-8", errors="backslashreplace")


def flush_or_drop(stream: TextIO) -> None:
    """Flush a stream; send what it cannot take nowhere.

    The interpreter would fail on what is left when it flushes at its end.
    """
    try:
        stream.flush()
    except OSError:
        _drop(stream)


def _drop(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    except OSError:
        return  # a stream in memory, which the interpreter does not flush
    finally:
        os.close(nowhere)


@contextmanager
def messages() -> Iterator[TextIO]:
    """Yield standard error.

    A message that cannot be written is dropped: it must not change the exit code.
    """
    try:
        yield sys.stderr
        sys.stderr.flush()
    except OSError:
        flush_or_drop(sys.stderr)


def say(message: str) -> None:
    """Print a line to standard error, or drop it where that cannot be written to."""
    with messages() as stream:
        print(message, file=stream)
