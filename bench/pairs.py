"""The whole command on real pairs of execution plans, start-up included.

The baseline is a bare Python that imports NumPy in the same run. Run ``python bench/pairs.py
[--folder FOLDER] [--runs N] [--only TEXT]``. ``FOLDER`` holds a ``manifest.json`` with the pairs. A
line is the median of N runs: seconds, times the baseline, and the peak memory of the process.
Ratios hold on a busy machine too; seconds do not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
FOLDERS = (HERE.parent / "shared" / "nnscaler", HERE / "tests" / "data" / "nnscaler")
BASELINE = ("-c", "import numpy")
BARE = ("-c", "")
MIB = 1 << 20
KIB = 1 << 10


@dataclass(frozen=True)
class Measured:
    """Medians over the runs of one command; ``status`` is its exit status."""

    wall: float
    cpu: float
    memory_mib: float
    status: int


def environment(cache: str) -> dict[str, str]:
    """Return the environment of an installed package: compiled modules are kept in ``cache``."""
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPYCACHEPREFIX": cache,
    }


def once(arguments: Sequence[str], variables: Mapping[str, str]) -> Measured:
    """Run Python with ``arguments``; drop what it prints."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=variables,
    )
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    unit = 1 if sys.platform == "darwin" else KIB
    return Measured(
        wall, used.ru_utime + used.ru_stime, used.ru_maxrss * unit / MIB, process.returncode
    )


def measured(arguments: Sequence[str], runs: int, variables: Mapping[str, str]) -> Measured:
    """Return medians of ``runs`` runs, after one that fills the caches.

    Those are caches of files and of compiled modules.
    """
    once(arguments, variables)
    found = [once(arguments, variables) for _ in range(runs)]
    return Measured(
        statistics.median(m.wall for m in found),
        statistics.median(m.cpu for m in found),
        statistics.median(m.memory_mib for m in found),
        found[-1].status,
    )


def right_pairs(folder: Path, only: str) -> Iterator[tuple[str, str]]:
    """Yield (reference, parallel) of the right pairs of a manifest."""
    for entry in json.loads((folder / "manifest.json").read_text()):
        if (
            entry["expect"] == "equivalent"
            and entry["parallel"].startswith("pairs/")
            and only in entry["parallel"]
        ):
            yield str(folder / entry["reference"]), str(folder / entry["parallel"])


def line(name: str, found: Measured, base: Measured) -> None:
    """Print one case: above the baseline, and in ratio to it."""
    print(
        f"{name:48s} {found.wall:6.2f} s {found.wall / base.wall:6.1f} x   cpu {found.cpu:6.2f} s "
        f"{found.cpu / base.cpu:6.1f} x"
        f"   peak {found.memory_mib:6.0f} MiB {found.memory_mib / base.memory_mib:5.1f} x   exit "
        f"{found.status}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description="The whole command on real pairs of plans, against Python that imports NumPy."
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=next((folder for folder in FOLDERS if folder.exists()), FOLDERS[-1]),
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="", help="only pairs whose name holds this text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        measure(options.folder, options.only, options.runs, environment(cache))


def measure(folder: Path, only: str, runs: int, variables: Mapping[str, str]) -> None:
    """Print all lines."""
    bare = measured(BARE, runs, variables)
    base = measured(BASELINE, runs, variables)
    line("python -c ''", bare, base)
    line("python -c 'import numpy' (the baseline)", base, base)
    usage = measured(("-m", "pitcheck", "--help"), runs, variables)
    line("pitcheck --help", usage, base)
    print(
        f"pitcheck --help is {usage.wall - bare.wall:.3f} s above bare Python, "
        f"{usage.wall / bare.wall:.1f} times it"
    )
    for reference, parallel in right_pairs(folder, only):
        line(
            Path(parallel).stem,
            measured(
                ("-m", "pitcheck", "check", reference, parallel, "--seed", "1"), runs, variables
            ),
            base,
        )


if __name__ == "__main__":
    main()
