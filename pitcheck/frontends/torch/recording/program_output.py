"""What a user's program prints, and how it ends: neither must be taken for pitcheck's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import NoReturn

from pitcheck.frontends.torch.recording.patching import replaced

STANDARD, ERROR = 1, 2
"""Descriptors of a process."""


def to_stderr() -> None:
    """Have this process print to standard error from now on, for pitcheck's report goes to standard
    output.
    """
    # A process may have none of them.
    with suppress(OSError):
        os.dup2(ERROR, STANDARD)
    sys.stdout = sys.stderr


@contextmanager
def guest() -> Iterator[None]:
    """Have what runs in this context print to standard error, and raise SystemExit where it would
    end the process at once.
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
