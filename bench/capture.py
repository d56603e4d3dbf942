"""PyTorch programs from the command to the verdict: recording every rank, and the check.

It writes the table of ``docs/pytorch.md``: ``python bench/capture.py [--only TEXT] [--limit
SECONDS] [--write]``. Every line is a separate process, with the import of torch and all ranks.
Memory is that of all its processes together. A line that needs longer than the limit is stopped and
says so. A program whose package is missing is printed as not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from frontier import Measured, measured, number, written
from pairs import environment

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "bench" / "programs"
PAGE = ROOT / "docs" / "pytorch.md"


@dataclass(frozen=True)
class Row:
    """A program with its limits: the seconds in all, those without recording, and the MiB.

    ``needs``: a package, and a file.
    """

    name: str
    program: str
    most_seconds: float
    most_checking: float | None = None
    most_mib: float | None = None
    needs: tuple[str, Path] | None = None

    @property
    def there(self) -> bool:
        """True if the program can be run."""
        return self.needs is None or (
            importlib.util.find_spec(self.needs[0]) is not None and self.needs[1].is_file()
        )


ROWS = (
    Row(
        "Llama of 2 layers, FSDP2 DP2, DTensor TP2 with sequence parallelism",
        "llama.py:two_layers",
        15,
    ),
    Row(
        "megatron-core GPTModel of 2 layers, TP2 with sequence parallelism",
        "megatron_core.py:spec",
        15,
        needs=(
            "megatron",
            ROOT / "tests/frontends/torch/frameworks/megatron_gpt.py",
        ),
    ),
    Row(
        "Llama-3 8B sizes, 32 layers, FSDP2 DP2, DTensor TP4 with sequence parallelism",
        "llama.py:full_size",
        120,
        30,
        6144,
    ),
)
HEAD = (
    "| program | ranks | operators | proofs | verdict | seconds | at most | of them checking | at "
    "most | processor seconds | peak MiB | at most |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|",
)


def line(row: Row, found: Measured) -> str:
    """Return one line of the table."""
    report = found.report
    seconds = report.get("seconds", {})
    cells = [
        row.name,
        str(report["ranks"]) if report else "",
        f"{report['operators']['parallel']:,}" if report else "",
        str(report["stages"]["distinct"]) if report else "",
        found.verdict,
        f"{found.wall:.1f}" if report else f"stopped after {found.wall:.0f}",
        number(row.most_seconds),
        f"{seconds['total'] - seconds['load']:.1f}" if report else "",
        number(row.most_checking),
        f"{found.cpu:.1f}",
        f"{found.memory_mib:.0f}",
        number(row.most_mib),
    ]
    return f"| {' | '.join(cells)} |"


def table(only: str, limit: float, variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the table as they are measured."""
    yield from HEAD
    for row in ROWS:
        if only not in row.name:
            continue
        if row.there:
            yield line(row, measured((str(PROGRAMS / row.program),), limit, variables))
        else:
            yield f"| {row.name} | | | | not installed | | {number(row.most_seconds)} | | | | | |"


def main() -> None:
    """Measure, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(
        description="PyTorch programs from the command to the verdict."
    )
    parser.add_argument("--only", default="", help="only programs whose name holds this text")
    parser.add_argument(
        "--limit", type=float, default=300, help="seconds after which a line is stopped"
    )
    parser.add_argument("--write", action="store_true", help="write docs/pytorch.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        variables = environment(cache)
        # Fills the caches of files and of compiled modules.
        measured(
            (str(ROOT / "docs" / "examples" / "tensor_parallel.py:spec"),), options.limit, variables
        )
        lines = []
        for text in table(options.only, options.limit, variables):
            print(text, flush=True)
            lines.append(text)
    if options.write:
        written(lines, "capture", PAGE)


if __name__ == "__main__":
    main()
