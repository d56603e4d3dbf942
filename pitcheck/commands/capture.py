"""``pitcheck capture``: record PyTorch programs and write their plans."""

from __future__ import annotations

import sys
from pathlib import Path

from pitcheck.commands.reading import is_program, read_program
from pitcheck.errors import UsageError
from pitcheck.plan.files import write_plan


def run(program: str, out: str, jobs: int | None) -> int:
    """Write the reference and the parallel plan of ``program`` into the directory ``out``. Raises UsageError for a wrong argument, and as ``read_program``."""
    if not is_program(program):
        raise UsageError(f"{program} names no specification; write FILE.py:NAME of a pitcheck.torch.Spec")
    folder = Path(out)
    if not folder.is_dir():
        raise UsageError(f"--out {out} is no directory; create it first")
    name = program.rpartition(":")[2]
    for plan, side in zip(read_program(program, jobs), ("reference", "parallel"), strict=True):
        target = folder / f"{name}.{side}.plan.zst"
        write_plan(plan, target)
        sys.stdout.write(f"{target}\n")
    return 0
