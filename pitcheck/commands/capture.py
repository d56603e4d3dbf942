"""``pitcheck capture``: record PyTorch programs and write their plans."""

from __future__ import annotations

from pitcheck.commands.reading import is_program, read_program
from pitcheck.commands.writing import write_pair
from pitcheck.errors import UsageError


def run(program: str, out: str, jobs: int | None) -> int:
    """Write the reference and the parallel plan of ``program`` into the directory ``out``. Raises UsageError for a wrong argument, and as ``read_program``."""
    if not is_program(program):
        raise UsageError(f"{program} names no specification; write FILE.py:NAME of a pitcheck.torch.Spec")
    write_pair(lambda: read_program(program, jobs), out, program.rpartition(":")[2])
    return 0
