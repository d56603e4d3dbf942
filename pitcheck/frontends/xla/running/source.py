"""Programs of JAX as the command line names them, ``FILE.py:NAME@DEVICES``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from pitcheck.base.nearest import shown
from pitcheck.errors import UsageError
from pitcheck.frontends.protocol import Attempt
from pitcheck.frontends.xla.lowering.pair import read_partitioned
from pitcheck.frontends.xla.running.child import SECONDS, partitioned_texts

LONGEST = 86_400.0
"""The most seconds that a program may be given."""


def read_jax_program(source: str, assignments: Sequence[str]) -> Iterator[Attempt]:
    """Yield the plans of a program before and after XLA partitions it. The program runs.

    ``assignments`` may have ``seconds=N``, the time that JAX may take.

    Raises:
        PlanError: the program cannot be used, or what XLA makes of it is damaged.
        UsageError: an assignment or the number of devices is wrong.
        UnsupportedError: something has no meaning in a plan.
        BudgetError: a text, or what it unfolds to, is too large.
    """
    file, _, rest = source.rpartition(":")
    name, _, devices = rest.partition("@")
    seconds = _seconds(assignments)
    with tempfile.TemporaryDirectory(prefix="pitcheck-") as folder:
        texts = partitioned_texts(file, name, int(devices), Path(folder), seconds)
        yield from read_partitioned(texts.before, texts.after)


def _seconds(assignments: Sequence[str]) -> float:
    found = SECONDS
    for assignment in assignments:
        key, _, value = assignment.partition("=")
        if key != "seconds":
            raise UsageError(
                f"--set {shown(assignment)} says nothing about a program of JAX; it takes seconds=N"
            )
        try:
            found = float(value)
        except ValueError:
            found = 0.0
        if not 0 < found <= LONGEST:
            raise UsageError(
                f"--set {shown(assignment)} is no time; give seconds=N with N above 0 and at most "
                f"{LONGEST:g}"
            )
    return found
