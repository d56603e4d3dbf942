"""Frontier models at their real scale: the whole command on configurations of ``plans/``.

``python bench/frontier.py [--only TEXT] [--limit SECONDS]`` prints the table of plans. With
``--scaling`` it measures how the time grows with ranks, layers, micro-batches and hidden size, and
draws ``docs/frontier.svg`` (needs the extra ``bench``). ``--write`` puts the lines into
``docs/frontier.md``. Every line is a separate process, start-up included. A line that needs longer
than the limit is stopped and says so.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairs import KIB, MIB, environment

ROOT = Path(__file__).resolve().parent.parent
PLANS = ROOT / "plans"
PAGE = ROOT / "docs" / "frontier.md"
PLOT = ROOT / "docs" / "frontier.svg"
SECONDS_PER_HOUR = 3600
EVERY = 0.2
"""Seconds between two looks at the memory of all processes of a run."""


@dataclass(frozen=True)
class Row:
    """A configuration with changes, its limits in seconds and MiB, and the published hours.

    ``hours``: those that TrainVerify published for the model, None if there are none.
    """

    name: str
    file: str
    changes: tuple[str, ...] = ()
    most_seconds: float | None = None
    most_mib: float | None = None
    hours: float | None = None


ROWS = (
    Row("Llama-3 8B, DP512", "llama3-8b", most_seconds=3, hours=0.2),
    Row("Llama-3 70B, DP16 TP8 PP4, 32 micro-batches", "llama3-70b", most_seconds=8, hours=2.4),
    Row(
        "Llama-3 405B, DP64 TP8 PP16, 16 micro-batches",
        "llama3-405b",
        most_seconds=15,
        most_mib=2048,
        hours=8.0,
    ),
    Row(
        "Llama-3 405B, DP1024 TP8 PP16, 16 micro-batches",
        "llama3-405b",
        ("dp=1024", "sequences=16384"),
        30,
    ),
    Row("GPT-3 175B, DP8 TP8 PP16 interleaved, 48 micro-batches", "gpt3-175b"),
    Row("Mixtral 8x7B, DP16 TP2 PP4 EP8, 16 micro-batches", "mixtral-8x7b"),
    Row(
        "DeepSeek-V2-Lite 16B, DP16 TP4 PP2 EP16, 16 micro-batches",
        "deepseek-v2-lite",
        most_seconds=10,
        most_mib=3072,
    ),
    Row(
        "DeepSeek-V2 236B, DP16 TP8 PP4 EP32, 16 micro-batches",
        "deepseek-v2",
        most_seconds=15,
        most_mib=3072,
    ),
    Row(
        "DeepSeek-V3 671B, DP32 TP8 PP8 EP64, 16 micro-batches",
        "deepseek-v3",
        most_seconds=25,
        most_mib=3072,
    ),
)

SMALL = (
    "model=llama3-8b-tiny",
    "layers=8",
    "sequences=4096",
    "length=32",
    "dp=2",
    "tp=2",
    "pp=2",
    "microbatches=4",
)
"""The configuration that the scaling starts from: a small model on eight ranks."""
GROWTH: Mapping[str, Sequence[tuple[int, tuple[str, ...]]]] = {
    "ranks": [(4 * dp, (f"dp={dp}",)) for dp in (2, 8, 32, 128, 512)],
    "layers": [(layers, (f"layers={layers}",)) for layers in (4, 8, 16, 32, 64, 128)],
    "micro-batches": [(count, (f"microbatches={count}",)) for count in (2, 8, 32, 128)],
    "hidden size": [
        (size, (f"hidden={size}", f"ffn={3 * size}", f"model.attention.head_dim={size // 4}"))
        for size in (64, 256, 1024, 4096, 16384)
    ],
}
"""The number that grows -> its sizes, with the changes that make them."""


@dataclass(frozen=True)
class Measured:
    """One run; ``report`` is empty if the run was stopped."""

    wall: float
    cpu: float
    memory_mib: float
    report: Mapping[str, Any]

    @property
    def verdict(self) -> str:
        """The verdict, or why there is none."""
        return str(self.report.get("verdict", "stopped"))


def measure(
    file: str, changes: Sequence[str], limit: float, variables: Mapping[str, str]
) -> Measured:
    """Run ``pitcheck check`` on a configuration, stopped after ``limit`` seconds."""
    return measured(
        (str(PLANS / f"{file}.toml"), *(text for change in changes for text in ("--set", change))),
        limit,
        variables,
    )


def measured(arguments: Sequence[str], limit: float, variables: Mapping[str, str]) -> Measured:
    """Run ``pitcheck check`` with some arguments, stopped after ``limit`` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "report.json"
        command = [
            sys.executable,
            "-m",
            "pitcheck",
            "check",
            *arguments,
            "--seed",
            "1",
            "--quiet",
            "--output",
            f"json:{written}",
        ]
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=variables
        )
        timer = threading.Timer(limit, os.kill, (process.pid, signal.SIGKILL))
        timer.start()
        peak = Peak(process.pid)
        peak.start()
        _, status, used = os.wait4(process.pid, 0)
        timer.cancel()
        wall = time.perf_counter() - start
        peak.stop()
        process.returncode = os.waitstatus_to_exitcode(status)
        largest = used.ru_maxrss * (1 if sys.platform == "darwin" else KIB)
        report = json.loads(written.read_text()) if written.exists() else {}
        return Measured(wall, used.ru_utime + used.ru_stime, max(largest, peak.bytes) / MIB, report)


class Peak(threading.Thread):
    """The most memory that a process and its children hold together (Linux).

    Pages that they share are counted once. It is looked at in intervals.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._ended = threading.Event()
        self.bytes = 0

    def run(self) -> None:
        """Look until stopped."""
        while not self._ended.wait(EVERY):
            self.bytes = max(self.bytes, sum(map(_share, _family(self._pid))))

    def stop(self) -> None:
        """Stop looking."""
        self._ended.set()
        self.join()


def _family(pid: int) -> Iterator[int]:
    """Yield a process and its children."""
    yield pid
    try:
        yield from map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    except OSError:
        return


def _share(pid: int) -> int:
    """Return the bytes of a process; a shared page counts by its share. 0 if that is not known."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * KIB for line in lines if line.startswith("Pss:"))


# --- the table

HEAD = (
    "| plan | ranks | operators | proofs | verdict | seconds | at most | processor seconds | peak "
    "MiB | at most | TrainVerify | times as fast |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|",
)


def line(row: Row, found: Measured) -> str:
    """Return one line of the table."""
    report = found.report
    done = found.verdict == "equivalent"
    seconds = f"{found.wall:.1f}" if report else f"stopped after {found.wall:.0f}"
    cells = [
        row.name,
        f"{report['ranks']:,}" if report else "",
        f"{report['operators']['parallel']:,}" if report else "",
        str(report["stages"]["distinct"]) if report else "",
        found.verdict,
        seconds,
        number(row.most_seconds),
        f"{found.cpu:.1f}",
        f"{found.memory_mib:.0f}",
        number(row.most_mib),
        f"{row.hours} h" if row.hours is not None else "",
        f"{row.hours * SECONDS_PER_HOUR / found.wall:,.0f}"
        if done and row.hours is not None
        else "",
    ]
    return f"| {' | '.join(cells)} |"


def number(value: float | None) -> str:
    """Return a limit as the table shows it."""
    return "" if value is None else f"{value:g}"


def table(only: str, limit: float, variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the table as they are measured."""
    yield from HEAD
    for row in ROWS:
        if only in row.name:
            yield line(row, measure(row.file, row.changes, limit, variables))


# --- how the time grows


def growth(limit: float, variables: Mapping[str, str]) -> Iterator[tuple[str, int, Measured]]:
    """Yield (what grows, its size, what was measured)."""
    for what, sizes in GROWTH.items():
        for size, changes in sizes:
            named = {change.partition("=")[0] for change in changes}
            fixed = [change for change in SMALL if change.partition("=")[0] not in named]
            yield what, size, measure("llama3-tiny", [*fixed, *changes], limit, variables)


def draw(points: Sequence[tuple[str, int, Measured]]) -> None:
    """Draw processor seconds over every size that grows, on logarithmic axes.

    They do not depend on what else the machine does.
    """
    import matplotlib as mpl  # noqa: PLC0415  an extra that nothing else needs

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "frontier"
    from matplotlib import pyplot  # noqa: PLC0415

    figure, axes = pyplot.subplots(
        1, len(GROWTH), figsize=(3.2 * len(GROWTH), 3), sharey=True, layout="constrained"
    )
    for place, what in zip(axes, GROWTH, strict=True):
        found = [
            (size, measured.cpu)
            for name, size, measured in points
            if name == what and measured.verdict == "equivalent"
        ]
        place.loglog([size for size, _ in found], [seconds for _, seconds in found], "o-", base=2)
        place.set_xlabel(what)
        place.yaxis.set_major_formatter("{x:g}")
        place.grid(True, which="both", alpha=0.3)
        place.set_xticks([size for size, _ in found], [f"{size:,}" for size, _ in found])
    axes[0].set_ylabel("processor seconds")
    figure.savefig(PLOT, metadata={"Date": None})


def scaling(limit: float, variables: Mapping[str, str]) -> Iterator[str]:
    """Measure, draw, and yield the lines of the table."""
    yield (
        "| what grows | size | ranks | operators | proofs | verdict | seconds | processor "
        "seconds | peak MiB |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    points = []
    for what, size, found in growth(limit, variables):
        points.append((what, size, found))
        report = found.report
        said = (
            [
                f"{report['ranks']:,}",
                f"{report['operators']['parallel']:,}",
                str(report["stages"]["distinct"]),
            ]
            if report
            else ["", "", ""]
        )
        yield (
            f"| {what} | {size:,} | {' | '.join(said)} | {found.verdict} | {found.wall:.2f} | "
            f"{found.cpu:.2f} | {found.memory_mib:.0f} |"
        )
    draw(points)


def written(lines: Sequence[str], name: str, page: Path = PAGE) -> None:
    """Put a table into a page, between its marks."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    after = rest.partition(end)[2]
    page.write_text(
        before + begin + "\n" + "\n".join(lines) + "\n\n" + end + after, encoding="utf-8"
    )


def main() -> None:
    """Measure, print, and write the table if asked to."""
    parser = argparse.ArgumentParser(
        description="The whole command on frontier models at their real scale."
    )
    parser.add_argument("--only", default="", help="only plans whose name holds this text")
    parser.add_argument(
        "--limit", type=float, default=300, help="seconds after which a line is stopped"
    )
    parser.add_argument(
        "--scaling", action="store_true", help="how the time grows, instead of the plans"
    )
    parser.add_argument("--write", action="store_true", help="write docs/frontier.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        variables = environment(cache)
        # Fills the caches of files and of compiled modules.
        measure("llama3-tiny", (), options.limit, variables)
        lines = []
        for text in (
            scaling(options.limit, variables)
            if options.scaling
            else table(options.only, options.limit, variables)
        ):
            print(text, flush=True)
            lines.append(text)
    if options.write:
        written(lines, "scaling" if options.scaling else "plans")


if __name__ == "__main__":
    main()
