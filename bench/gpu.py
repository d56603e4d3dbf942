"""The GPU, measured: the same residues, the rates of kernels, whole checks, whole shapes.

``python bench/gpu.py [--only TEXT] [--seconds S] [--backend numpy] [--small]`` prints one line per
figure, with its ratio to what the card measures in the same run. ``--file FILE`` keeps the figures
with date and card (default: ``bench/gpu.json``), ``--page`` puts a file of figures into
``docs/gpu.md`` without measuring. A line that fails says why; a line that does not fit into the
time stays unmeasured. Exit code 1: CuPy's results are not NumPy's. Exit code 2: no GPU.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import kernel_rates
import msgspec
import numpy as np
from frontier import written
from gpu_lines import KERNEL_GOALS, LINES, Bench, Line

from pitcheck import __version__
from pitcheck.algebra.backend import array_module
from pitcheck.errors import UsageError

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "bench" / "gpu.json"
PAGE = ROOT / "docs" / "gpu.md"
HEAD = ("| what | measured | ratio | goal | said |", "|---|---|---|---|---|")
DIFFERENT = "DIFFERENT"
KERNEL = "kernel: "
MOST_SAID = 300
"""The characters of a message in the table."""
FIRST = 1
"""The lines that are measured before the kernels: nothing is worth measuring that is wrong."""


class Figure(msgspec.Struct):
    """One line: the measured value with its unit, the ratio to its baseline, and what was said.

    ``date``: the day on which it was measured, if it was not that of the others.
    """

    name: str
    value: float | None
    unit: str
    ratio: float | None
    said: str
    date: str = ""


class Figures(msgspec.Struct):
    """All lines of a run, with the card and the day."""

    card: str
    date: str
    versions: str
    lines: list[Figure]


def card(xp: Any) -> str:
    """Return the name of the device that ``xp`` computes on."""
    if xp is np:
        return "no GPU (NumPy)"
    return str(xp.cuda.runtime.getDeviceProperties(0)["name"].decode())


def measured(line: Line, bench: Bench) -> Figure:
    """Return the figure of a line; one that raises has no value, and says so."""
    start = time.perf_counter()
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(bench.most_seconds)
    try:
        value, ratio, said = line.measure(bench)
    except Exception as error:  # any line may fail on a new card, and the others must go on
        traceback.print_exc()
        value, ratio, said = None, None, f"failed: {type(error).__name__}: {error}"[:MOST_SAID]
    finally:
        signal.alarm(0)
    taken = time.perf_counter() - start
    figure = Figure(line.name, value, line.unit, ratio, said)
    print(f"{row(line.name, line.goal, figure)}   ({taken:.1f} s)", flush=True)
    return figure


def _too_long(*_: object) -> NoReturn:
    raise TimeoutError("it took longer than a line may")


def kernels(xp: Any) -> list[Figure]:
    """Return the figures of all kernels, each beside the copy or the GEMM of the same run."""
    found = []
    for each in kernel_rates.figures(xp):
        value, unit = (each.microseconds, "us") if each.rate is None else (each.rate, each.unit)
        figure = Figure(KERNEL + each.name, value, unit, each.share, f"{each.microseconds:,.1f} us")
        found.append(figure)
        print(row(figure.name, KERNEL_GOALS.get(each.name), figure), flush=True)
    return found


def row(name: str, least: float | None, figure: Figure | None) -> str:
    """Return a line of the table, for the least ratio that is wanted."""
    goal = "" if least is None else f"at least {least:.2f}"
    if figure is None:
        return f"| {name} | not measured | | {goal} | |"
    value = "-" if figure.value is None else f"{figure.value:,.4g} {figure.unit}"
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    said = "; ".join(filter(None, (figure.said, figure.date)))
    return f"| {name} | {value} | {ratio} | {goal} | {said} |"


def table(figures: Figures) -> list[str]:
    """Return the table of the page. A line without a figure is called not measured."""
    known = {figure.name: figure for figure in figures.lines}
    goals = {KERNEL + name: least for name, least in KERNEL_GOALS.items()}
    named = {**goals, **{line.name: line.goal for line in LINES}}
    rows = {name: named.get(name) for name in (*goals, *known, *named)}
    return [
        f"{figures.card}, {figures.date}, {figures.versions}.",
        "",
        *HEAD,
        *(row(name, least, known.get(name)) for name, least in rows.items()),
    ]


def joined(before: Path, figures: Figures) -> Figures:
    """Return the figures with those of earlier runs on the same card kept, with their days."""
    if not before.exists():
        return figures
    old = msgspec.json.decode(before.read_bytes(), type=Figures)
    if (old.card, old.versions) != (figures.card, figures.versions):
        return figures
    new = {figure.name for figure in figures.lines}
    kept = [
        msgspec.structs.replace(figure, date=_unlike(figure.date or old.date, figures.date))
        for figure in old.lines
        if figure.name not in new
    ]
    return msgspec.structs.replace(figures, lines=kept + figures.lines)


def _unlike(date: str, other: str) -> str:
    """Return a day, or "" if it is the other one."""
    return "" if date == other else date


def measure(
    xp: Any, lines: Sequence[Line], bench: Bench, seconds: float, *, with_kernels: bool
) -> Iterator[Figure]:
    """Yield the figures of lines until ``seconds`` are spent, and of kernels after the first."""
    end = time.monotonic() + seconds
    for number, line in enumerate(lines):
        if number == FIRST and with_kernels:
            yield from kernels(xp)
        if time.monotonic() < end:
            yield measured(line, bench)


def begun(xp: Any) -> Figures:
    """Return the figures of a run before its first line."""
    versions = f"NumPy {np.__version__}" + ("" if xp is np else f", CuPy {version_of_cupy(xp)}")
    return Figures(card(xp), datetime.now(UTC).date().isoformat(), versions, [])


def version_of_cupy(xp: Any) -> str:
    """Return CuPy's version and that of the CUDA runtime."""
    runtime = int(xp.cuda.runtime.runtimeGetVersion())
    return f"{xp.__version__}, CUDA {runtime // 1000}.{runtime % 1000 // 10}"


def main() -> int:
    """Measure, print, and keep the figures."""
    parser = argparse.ArgumentParser(description="The GPU, measured.")
    parser.add_argument("--only", default="", help="only lines whose name holds this text")
    parser.add_argument("--seconds", type=float, default=480, help="when to begin no further line")
    parser.add_argument("--limit", type=int, default=120, help="the seconds of a line")
    parser.add_argument("--backend", choices=("numpy", "cupy"), default="cupy")
    parser.add_argument("--small", action="store_true", help="small sizes, to try the lines")
    parser.add_argument("--file", type=Path, default=FIGURES, help="where the figures are kept")
    parser.add_argument("--page", action="store_true", help="write docs/gpu.md from the file")
    options = parser.parse_args()
    if options.page:
        figures = msgspec.json.decode(options.file.read_bytes(), type=Figures)
        written(table(figures), "measured", PAGE)
        return 0
    try:
        xp = array_module(options.backend)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"pitcheck {__version__}, {card(xp)}")
    lines = [line for line in LINES if options.only in line.name]
    every = not options.only and xp is not np
    figures, bench = begun(xp), Bench(xp, options.small, options.limit)
    for figure in measure(xp, lines, bench, options.seconds, with_kernels=every):
        figures.lines.append(figure)
        kept = joined(options.file, figures)
        options.file.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
    return 1 if any(DIFFERENT in figure.said for figure in figures.lines) else 0


if __name__ == "__main__":
    sys.exit(main())
