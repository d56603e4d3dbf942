"""Whole frameworks: programs written with them, proven, and with mistakes planted beside.

It writes the table of ``docs/frameworks.md``: ``python bench/frameworks.py [--only TEXT] [--limit
SECONDS] [--write]``. The rows are listed in ``framework_rows.py``, their programs are in
``programs/frameworks``. A row is the right program, and the same with each of its mistakes. Every
check has a process of its own, which has imported the framework before its time is taken. A row
whose framework is not installed is printed as such, and never written.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import multiprocessing
import multiprocessing.connection
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any

from framework_rows import ROWS, Row
from frontier import written

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "bench" / "programs" / "frameworks"
PAGE = ROOT / "docs" / "frameworks.md"
HEAD = (
    "| framework | feature | mesh | lines | verdict | processor seconds | planted mistakes | "
    "causes found |",
    "|---|---|---|---|---|---|---|---|",
)
MEETING = ("PIT004", "PIT005", "PIT006", "PIT007", "PIT010")
"""The codes of invalid programs whose ranks do not meet, or race."""
FORKING = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Checked:
    """The result of one check: the verdict, processor seconds, and the first finding if any.

    ``line`` is the line of the program or of the framework that the finding names, "" for none.
    """

    verdict: str
    seconds: float
    code: str = ""
    line: str = ""
    said: str = ""

    @property
    def caught(self) -> bool:
        """True if programs differ, or ranks do not meet. A program that raises is not caught."""
        return self.verdict == "mismatch" or (self.verdict == "invalid" and self.code in MEETING)


def isolated(function: Callable[[], Any], limit: float) -> Any:
    """Return what a function returns in a process of its own, None if it takes too long or dies."""
    here, there = FORKING.Pipe(duplex=False)
    process = FORKING.Process(target=lambda: there.send(function()))
    process.start()
    there.close()
    try:
        return here.recv() if here.poll(limit) else None
    except EOFError:
        return None
    finally:
        process.kill()
        process.join()


def check_of(row: Row, mistake: str) -> Checked:
    """Check the program of a row, with a mistake or ("") without.

    Mistakes are not tried at other meshes, which takes long and changes no cause.
    """
    from pitcheck.commands.checking.pair import checked  # noqa: PLC0415  slow to import
    from pitcheck.torch import Options, capture  # noqa: PLC0415

    spec = program(row).spec(mesh=dict(row.mesh), mistake=mistake, **row.options)
    before = used()
    report = checked([lambda: list(capture(spec))], Options(seed=1))
    seconds = used() - before
    finding = next((each for each in report.findings if each.verdict != "warning"), None)
    if finding is None:
        return Checked(report.verdict, seconds)
    said = " ".join(filter(None, (finding.title, finding.cause)))
    return Checked(report.verdict, seconds, finding.code, finding.source or "", said)


def used() -> float:
    """Return the processor seconds of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def program(row: Row) -> Any:
    """Import the module that has the program of a row."""
    for folder in (PROGRAMS, ROOT / "tests"):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    return importlib.import_module(row.program)


def installed(framework: str) -> str:
    """Return the version of a package, "" if it is not installed."""
    try:
        return version(framework)
    except PackageNotFoundError:
        return ""


def lines_of(row: Row) -> int:
    """Return the lines of code of both programs of a row and of their specification.

    Counted are ``spec``, or what ``Row.counted`` names, and all functions and classes of the same
    file that it uses, without imports, comments and docstrings.
    """
    path, _, names = row.counted.partition(":")
    file = ROOT / path if path else PROGRAMS / f"{row.program}.py"
    module = ast.parse(file.read_text(encoding="utf-8"))
    named = {
        node.name: node for node in module.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    found, waiting = set(), names.split(",") if names else ["spec"]
    while waiting:
        name = waiting.pop()
        if name in named and name not in found:
            found.add(name)
            waiting += [node.id for node in ast.walk(named[name]) if isinstance(node, ast.Name)]
    return sum(_count(named[name]) for name in found)


def _count(node: ast.AST) -> int:
    """Return the number of lines on which the code of a node stands."""
    held = {
        id(inner.body[0])
        for inner in ast.walk(node)
        if isinstance(inner, ast.FunctionDef | ast.ClassDef)
        and isinstance(inner.body[0], ast.Expr)
        and isinstance(inner.body[0].value, ast.Constant)
    }
    lines: set[int] = set()
    waiting: list[ast.AST] = [node]
    while waiting:
        inner = waiting.pop()
        if id(inner) in held:
            continue
        if hasattr(inner, "lineno"):
            lines |= {inner.lineno, inner.end_lineno or inner.lineno}
        waiting += ast.iter_child_nodes(inner)
    return len(lines)


def line(row: Row, right: Checked | None, wrong: Mapping[str, Checked | None]) -> str:
    """Return one line of the table."""
    verdict = "stopped" if right is None else right.verdict
    cells = [
        f"{row.framework} {installed(row.framework)}",
        row.feature,
        row.at,
        str(lines_of(row)),
        verdict if not row.reason else f"{verdict} ({row.reason})",
        "" if right is None else f"{right.seconds:.1f}",
        "; ".join(wrong),
        "; ".join(map(cause, wrong.values())),
    ]
    return f"| {' | '.join(cells)} |"


def cause(found: Checked | None) -> str:
    """Return the code of a mistake that was found, and whether a line was named."""
    if found is None or not found.caught:
        return f"**{'stopped' if found is None else found.verdict}**"
    if not found.code:
        return found.verdict
    return f"[{found.code}](causes/{found.code}.md){', line' if found.line else ''}"


def table(rows: list[Row], limit: float, told: bool) -> Iterator[str]:
    """Yield the lines of some rows of one framework as they are measured."""
    for row in rows:
        right = isolated(lambda row=row: check_of(row, ""), limit)
        wrong = {
            mistake: isolated(lambda row=row, mistake=mistake: check_of(row, mistake), limit)
            for mistake in row.mistakes
        }
        if told:
            for found in (right, *wrong.values()):
                print(f"    {found}", file=sys.stderr, flush=True)
        yield line(row, right, wrong)


def measured(rows: list[Row], limit: float, told: bool) -> list[str]:
    """Return the lines of all rows that have one program; print them as they come."""
    if not installed(rows[0].framework):
        print(f"| {rows[0].framework} | not installed |")
        return []
    program(rows[0])
    lines = []
    for text in table(rows, limit, told):
        print(text, flush=True)
        lines.append(text)
    return lines


def merged(lines: Iterable[str], page: Path) -> list[str]:
    """Return the lines of a page in the order of the rows; new ones take the place of old ones."""
    text = page.read_text(encoding="utf-8").partition("<!-- frameworks -->")[2]
    found = {
        key_of(each): each
        for each in (*text.partition("<!-- end")[0].splitlines(), *lines)
        if each.startswith("| ")
    }
    return [found[key] for key in map(key_of_row, ROWS) if key in found]


def key_of(text: str) -> tuple[str, ...]:
    """Return framework, feature and mesh of a line of the table."""
    framework, feature, mesh = (cell.strip() for cell in text.split("|")[1:4])
    return framework.partition(" ")[0], feature, mesh


def key_of_row(row: Row) -> tuple[str, ...]:
    """Return framework, feature and mesh of a row."""
    return row.framework, row.feature, row.at


def main() -> None:
    """Measure, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(description="Whole frameworks.")
    parser.add_argument("--only", default="", help="rows whose program or feature has this text")
    parser.add_argument("--limit", type=float, default=300, help="seconds for one check")
    parser.add_argument("--tell", action="store_true", help="print what every check found")
    parser.add_argument("--write", action="store_true", help="write docs/frameworks.md")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rows = [row for row in ROWS if options.only in f"{row.program} {row.feature}"]
    lines = list(HEAD)
    for _, group in groupby(rows, key=lambda row: row.program):
        together = list(group)
        # A process for each program: frameworks change PyTorch when they are imported.
        lines += isolated(
            lambda together=together: measured(together, options.limit, options.tell),
            options.limit * 3 * len(together),
        )
        if options.write:
            written([*HEAD, *merged(lines[len(HEAD) :], PAGE)], "frameworks", PAGE)


if __name__ == "__main__":
    main()
