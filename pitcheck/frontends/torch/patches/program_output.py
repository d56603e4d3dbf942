"""The output of a user's program, and its end, which must not be taken for pitcheck's."""

from __future__ import annotations

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
