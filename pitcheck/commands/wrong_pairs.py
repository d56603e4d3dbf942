"""Pairs of files that cannot be meant: one file twice, or both plans in the wrong places."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Sequence
from math import prod
from pathlib import Path

from pitcheck.errors import UsageError
from pitcheck.plan.model import Plan


def refuse_files(reference: str, parallel: str | None) -> None:
    """Raise UsageError for a device or a socket, and if both names are those of one file.

    A device such as ``/dev/zero`` has no end, and must not be read.
    """
    for file in (reference, parallel):
        if file is not None and _is_device(Path(file)):
            raise UsageError(f"{file} is a device or a socket; name a file")
    try:
        same = parallel is not None and Path(reference).samefile(parallel)
    except (OSError, ValueError):
        return  # the reader says what is wrong with it
    if same:
        raise UsageError(
            f"REFERENCE and PARALLEL are one file, {reference}, and a plan equals itself; name the "
            f"plan of one device first and that of all ranks second: pitcheck check REFERENCE "
            f"PARALLEL"
        )


def _is_device(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False  # the reader says what is wrong with it
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISFIFO(mode))


def refuse_swapped(plans: Sequence[Plan], named: Sequence[str]) -> None:
    """Raise UsageError if the first plan is the parallel one and the second its reference.

    ``named`` are their files. The first one has many ranks and says which part of which reference
    tensor it holds; the second one has one rank and says nothing.
    """
    if len(named) != 2:
        return
    first, second = plans
    ranks = [prod(axis.size for axis in plan.mesh) for plan in plans]
    if ranks[0] > 1 == ranks[1] and _names_reference(first) and not _names_reference(second):
        right = shlex.join(["pitcheck", "check", named[1], named[0]])
        raise UsageError(
            f"the plans are swapped: REFERENCE {named[0]} has {ranks[0]} ranks and a lineage, and "
            f"PARALLEL {named[1]} has one rank and none; the plan of one device comes first: "
            f"{right}"
        )


def _names_reference(plan: Plan) -> bool:
    return any(tensor.lineage is not None for tensor in plan.tensors)
