"""The texts that XLA dumps when it compiles one program.

JAX takes XLA's debugging options for a single compilation. So nothing else that a process compiles
is dumped, and no environment variable has to be set before JAX starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pitcheck.errors import UnsupportedError

BEFORE_PARTITIONER = ".before_spmd-partitioning.txt"
AFTER_PARTITIONER = ".after_spmd-partitioning."
BEFORE_ALL = ".before_optimizations.txt"


@dataclass(frozen=True)
class Texts:
    """The files of a program before and after the partitioner."""

    before: Path
    after: Path


def dumped_around_partitioner(lowered: Any, folder: Path) -> Texts:
    """Compile a ``jax.stages.Lowered`` and return its texts around the partitioner, in ``folder``.

    Raises:
        UnsupportedError: the program is not partitioned: it is for one device, or nothing of it is
            sharded.
    """
    files = _dump(lowered, folder)
    before = [file for file in files if file.name.endswith(BEFORE_PARTITIONER)]
    after = [file for file in files if AFTER_PARTITIONER in file.name]
    if len(before) != 1 or len(after) != 1:
        raise UnsupportedError(
            "XLA does not partition the program: it is for one device; give shardings of a mesh "
            "with several devices to its arguments"
        )
    return Texts(before[0], after[0])


def dumped_first(lowered: Any, folder: Path) -> Path:
    """Compile a ``jax.stages.Lowered`` and return its text before any pass, in ``folder``.

    Raises UnsupportedError if XLA dumps none.
    """
    files = [file for file in _dump(lowered, folder) if file.name.endswith(BEFORE_ALL)]
    if len(files) != 1:
        raise UnsupportedError(f"XLA dumps {len(files)} texts of the program; there must be one")
    return files[0]


def _dump(lowered: Any, folder: Path) -> Sequence[Path]:
    lowered.compile(
        compiler_options={
            "xla_dump_to": str(folder),
            "xla_dump_hlo_pass_re": "spmd.*",
            "xla_dump_hlo_as_text": True,
            "xla_dump_large_constants": True,
        }
    )
    return sorted(folder.iterdir())
