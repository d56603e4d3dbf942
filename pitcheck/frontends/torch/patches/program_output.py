"""The output of a user's program, and its end, which must not be taken for pitcheck's."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import NoReturn

from pitcheck.frontends.torch.patches.patching import replaced

STANDARD, ERROR = 1, 2
"""The descriptors of a process's standard output and standard error."""


def to_stderr() -> None:
    """Have this process print to standard error from now on.

    Standard output is for pitcheck's report.
    """
    # A process may have neither descriptor.
    with suppress(OSError):
        os.dup2(ERROR, STANDARD)
    sys.stdout = sys.stderr


def to_file(descriptor: int) -> None:
    """Have this process, and all that it starts, print to an open file from now on."""
    for number in (STANDARD, ERROR):
        os.dup2(descriptor, number)
    sys.stdout = sys.stderr = os.fdopen(
        ERROR, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )


def flush_all() -> None:
    """Write what this process has printed so far, that of C and C++ libraries included."""
    sys.stdout.flush()
    sys.stderr.flush()
    # The buffers of C's standard output are lost when a forked process ends.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


@contextmanager
def guest() -> Iterator[None]:
    """Have the code in this context print to standard error.

    A call that would end the process at once raises SystemExit instead.
    """
    kept = None
    with suppress(OSError):
        sys.stdout.flush()
        kept = os.dup(STANDARD)
        os.dup2(ERROR, STANDARD)
    try:
        with redirect_stdout(sys.stderr), replaced(os, "_exit", _exit):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, STANDARD)
            os.close(kept)


def _exit(status: int) -> NoReturn:
    raise SystemExit(status)
