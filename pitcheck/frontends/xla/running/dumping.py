"""The texts that XLA dumps when it compiles one program.

JAX takes XLA's debugging options for a single compilation. So nothing else that a process compiles
is dumped, and no environment variable has to be set before JAX starts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pitcheck.errors import UnsupportedError

BEFORE_PARTITIONER = ".before_spmd-partitioning.txt"
AFTER_PARTITIONER = ".after_spmd-partitioning."
LOOKS = 0.01
"""The seconds between two looks at what XLA has written."""


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
    _dump(lowered, folder)
    return texts_in(folder)


def call_when_whole(folder: Path, call: Callable[[], None]) -> None:
    """Call a function, in a thread of its own, as soon as the texts in a folder are whole.

    XLA writes its files one after the other. So a text is whole when the next one is there, and XLA
    is then about to optimize the program and to make machine code, which takes longer than all
    before it. Nothing is called if XLA writes no further file.
    """

    def wait() -> None:
        names = _names(folder)
        while not any(AFTER_PARTITIONER in name for name in names):
            time.sleep(LOOKS)
            names = _names(folder)
        while _names(folder) <= names:
            time.sleep(LOOKS)
        call()

    threading.Thread(target=wait, daemon=True).start()


def _names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def texts_in(folder: Path) -> Texts:
    """Return the texts in a folder. Raises UnsupportedError as ``dumped_around_partitioner``."""
    files = sorted(folder.iterdir())
    before = [file for file in files if file.name.endswith(BEFORE_PARTITIONER)]
    after = [file for file in files if AFTER_PARTITIONER in file.name]
    if len(before) != 1 or len(after) != 1:
        raise UnsupportedError(
            "XLA does not partition the program: it is for one device; give shardings of a mesh "
            "with several devices to its arguments"
        )
    return Texts(before[0], after[0])


def _dump(lowered: Any, folder: Path) -> None:
    with _no_cache():
        lowered.compile(
            compiler_options={
                "xla_dump_to": str(folder),
                # The second is the next pass: it shows that the text before it is whole.
                "xla_dump_hlo_pass_re": "spmd.*|control-dep.*",
                # XLA_FLAGS of the process may leave out modules by their names.
                "xla_dump_hlo_module_re": ".*",
                "xla_dump_hlo_as_text": True,
                "xla_dump_large_constants": True,
                # Nothing is executed: the machine code, made after the partitioner, is of no use.
                "xla_backend_optimization_level": 0,
            }
        )


@contextmanager
def _no_cache() -> Iterator[None]:
    """Keep JAX from taking what an earlier compilation has left: it would dump nothing."""
    import jax  # noqa: PLC0415  an extra
    from jax.experimental.compilation_cache.compilation_cache import reset_cache  # noqa: PLC0415

    config: Any = jax.config
    before = config.jax_enable_compilation_cache
    config.update("jax_enable_compilation_cache", False)
    # JAX looks at the option once, and again after a reset.
    reset_cache()
    try:
        yield
    finally:
        config.update("jax_enable_compilation_cache", before)
        reset_cache()
