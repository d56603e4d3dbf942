"""``pitcheck demo``: a pair of plans that is right, and one with a bug.

A real planner made both, and they are shipped with pitcheck.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pitcheck.base.options import Options
from pitcheck.commands.checking.pair import checked
from pitcheck.commands.checking.sources import sources
from pitcheck.errors import UsageError
from pitcheck.report.destinations import print_bytes
from pitcheck.report.report import Verdict
from pitcheck.report.write import write_report
from pitcheck.resources import shipped

REFERENCE = "mlp-L4.reference.plan.json"
EXPECTED: tuple[tuple[str, Verdict, str], ...] = (
    (
        "mlp-L4.megatron.plan.json",
        "equivalent",
        "A right plan: 4 linear layers on 8 ranks, data, pipeline and tensor parallel, 2 "
        "micro-batches.",
    ),
    (
        "mlp-L4.missing-allreduce.plan.json",
        "mismatch",
        "The same plan with one bug: the all-reduce after a row-parallel layer is gone.",
    ),
)
SEED = 1


def run() -> int:
    """Check both shipped pairs, print their reports, and return 0.

    Raises UsageError if a verdict is not the expected one: then this installation cannot be
    trusted.
    """
    folder = shipped("plans", "plans") / "demo"
    wrong = []
    for file, expected, what in EXPECTED:
        _say(what, folder / file, folder)
        report = checked(
            sources(str(folder / REFERENCE), str(folder / file), ()), Options(seed=SEED)
        )
        write_report(report, ())
        print_bytes(b"\n")
        if report.verdict != expected:
            wrong.append(f"{file} is {report.verdict}, not {expected}")
    if wrong:
        raise UsageError(
            f"this installation of pitcheck does not work: {'; '.join(wrong)}; run pitcheck doctor"
        )
    return 0


def _say(what: str, file: Path, folder: Path) -> None:
    sys.stdout.write(f"{what}\n$ pitcheck check {folder / REFERENCE} {file}\n\n")
