"""``pitcheck capture``: record PyTorch programs and write their plans."""

from __future__ import annotations

from pitcheck.commands.reading import read_pair
from pitcheck.commands.writing import write_pair
from pitcheck.errors import UsageError
from pitcheck.frontends.builtin import PROGRAMS


def run(program: str, out: str, jobs: int | None) -> int:
    """Write the reference and the parallel plan of ``program`` into the directory ``out``.

    Raises UsageError for a wrong argument, and what recording raises.
    """
    if not PROGRAMS.recognises(program):
        raise UsageError(
            f"{program} names no specification; write FILE.py:NAME of a pitcheck.torch.Spec"
        )
    write_pair(lambda: read_pair(program, jobs=jobs), out, program.rpartition(":")[2])
    return 0
