"""The progress of a check: a bar on a terminal after half a second, and a word on interrupts.

>>> with watched(shown=False) as progress:
...     progress("stages", 3, 7)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from pitcheck.base.streams import say

Progress = Callable[..., None]
"""A function (step, done, total, said) that is told how far a check is. ``said``: a sentence for
people, which may be left out.
"""
AFTER = 0.5
"""The seconds after which a check is worth a bar."""


@dataclass
class _Reached:
    """The last that was told."""

    step: str = ""
    done: int = 0
    total: int = 0

    def sentence(self) -> str:
        """Return how far the check came, in words."""
        if not self.step:
            return "interrupted before anything was proven"
        return (
            f"interrupted: {self.done} of {self.total} {self.step} done; proofs that were made are "
            f"remembered, unless --no-cache was given"
        )


@contextmanager
def watched(*, shown: bool) -> Iterator[Progress]:
    """Yield what is told how far a check is.

    It is ``shown`` as a bar if stderr is a terminal. Raises KeyboardInterrupt with what was reached
    if the check is interrupted.
    """
    reached, start = _Reached(), perf_counter()
    bar: Any = None
    task: Any = None

    def progress(step: str, done: int, total: int, said: str = "") -> None:
        nonlocal bar, task
        if said and shown:
            say(said)
        reached.step, reached.done, reached.total = step, done, total
        if bar is None and shown and perf_counter() - start >= AFTER and sys.stderr.isatty():
            bar = _bar()
            bar.start()
            task = bar.add_task(step)
        if bar is not None:
            bar.update(task, description=step, completed=done, total=total)

    try:
        yield progress
    except KeyboardInterrupt:
        raise KeyboardInterrupt(reached.sentence()) from None
    finally:
        if bar is not None:
            bar.stop()


def _bar() -> Any:
    from rich.console import Console  # noqa: PLC0415  only a terminal pays for rich
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(separator=" of "),
        TimeElapsedColumn(),
    )
    return Bar(*columns, console=Console(stderr=True), transient=True)
