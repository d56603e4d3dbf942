"""The progress of a sweep on stderr: a table on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from pitcheck.base.streams import say
from pitcheck.report.lines import printable
from pitcheck.sweep.planned import Planned
from pitcheck.sweep.result import Result
from pitcheck.sweep.summary import line

MOST_SHOWN = 12
"""The configurations in work that a table lists."""
Tell = Callable[[Planned | Result], None]


@contextmanager
def shown(total: int, *, quiet: bool) -> Iterator[Tell]:
    """Yield what is told of every start and end of a configuration, to be shown on stderr."""
    if quiet or not total:
        yield lambda _: None
    elif sys.stderr.isatty():
        with _table(total) as tell:
            yield tell
    else:
        yield _lines(total)


def _lines(total: int) -> Tell:
    done = 0

    def tell(found: Planned | Result) -> None:
        nonlocal done
        if isinstance(found, Result):
            done += 1
            say(printable(f"{done}/{total} {line(found)}"))

    return tell


@contextmanager
def _table(total: int) -> Iterator[Tell]:
    from rich.console import Console  # noqa: PLC0415  only a terminal pays for rich
    from rich.live import Live  # noqa: PLC0415

    console = Console(stderr=True)
    running: dict[str, float] = {}
    counts: Counter[str] = Counter()

    def table() -> Any:
        return _shown_now(total, running, counts)

    with Live(get_renderable=table, console=console, refresh_per_second=4) as live:

        def tell(found: Planned | Result) -> None:
            if not isinstance(found, Result):
                running[found.name] = perf_counter()
                return
            running.pop(found.name, None)
            counts[found.status] += 1
            if not found.good:
                live.console.print(printable(line(found)), markup=False, highlight=False)

        yield tell


def _shown_now(total: int, running: dict[str, float], counts: Counter[str]) -> Any:
    """Return the table of what is done and what is in work."""
    from rich.table import Table  # noqa: PLC0415

    said = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    table = Table(title=f"{counts.total()} of {total} done" + (f": {said}" if said else ""))
    table.add_column("in work")
    table.add_column("seconds", justify="right")
    now = perf_counter()
    for name, start in list(running.items())[:MOST_SHOWN]:
        table.add_row(printable(name), f"{now - start:.0f}")
    return table
