"""Pairs of plans, written to files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pitcheck.errors import UsageError
from pitcheck.plan.files import write_plan
from pitcheck.plan.model import Plan
from pitcheck.report.destinations import print_bytes
from pitcheck.report.lines import printable


def write_pair(plans: Callable[[], Sequence[Plan]], directory: str, name: str) -> None:
    """Write the reference and the parallel plan that ``plans`` makes; print the files.

    Raises UsageError if ``directory`` is not one.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise UsageError(f"--out {directory} is no directory; create it first")
    for plan, side in zip(plans(), ("reference", "parallel"), strict=True):
        target = folder / f"{name}.{side}.plan.zst"
        write_plan(plan, target)
        print_bytes(f"{printable(str(target))}\n".encode())
