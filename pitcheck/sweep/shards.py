"""Parts of a sweep that run on different machines, and their results in one file again."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pitcheck.errors import UsageError
from pitcheck.sweep.planned import Planned
from pitcheck.sweep.results import About, Results

_SHARD = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


def parse_shard(text: str) -> tuple[int, int]:
    """Return number and count of ``2/5``, counted from 1. Raises UsageError for anything else."""
    found = _SHARD.fullmatch(text.strip())
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise UsageError(f"--shard {text!r} is no part of a sweep; write 1/4 to 4/4 for four parts")
    return int(found[1]), int(found[2])


def part(planned: Sequence[Planned], shard: int, shards: int) -> list[Planned]:
    """Return the configurations of one of several parts, which all have one in each of them."""
    return list(planned[shard - 1 :: shards])


def merge(target: Path, files: Sequence[Path]) -> Results:
    """Return the results of all parts of a sweep in the new file ``target``.

    Raises UsageError for parts that are missing, twice there, not finished, or of different sweeps.
    """
    parts = [Results(file).believed() for file in files]
    abouts = [each.about() for each in parts]
    _check_one_sweep(files, abouts)
    _check_all_there(files, abouts)
    planned = [each.planned() for each in parts]
    for file, each, own in zip(files, parts, planned, strict=True):
        left = len(own) - len(each.statuses())
        if left:
            raise UsageError(f"{file}: {left} of {len(own)} configurations have no result yet")
    names = {p.name for own in planned for p in own}
    count = sum(map(len, planned))
    if len(names) != count or count != abouts[0].count:
        raise UsageError(
            f"the parts have {len(names)} different configurations in {count}, and the sweep has "
            f"{abouts[0].count}"
        )
    by_shard = [own for _, own in sorted(zip([a.shard for a in abouts], planned, strict=True))]
    whole = [own[n] for n in range(max(map(len, by_shard))) for own in by_shard if n < len(own)]
    about = msgspec.structs.replace(
        abouts[0], shard=1, shards=1, started=min(each.started for each in abouts)
    )
    if target.exists():
        raise UsageError(f"{target} is there already; name another file")
    beside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        Results.new(beside, about, whole).put(
            result for each in parts for result in each.results(reports=True)
        )
        beside.replace(target)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from None
    finally:
        beside.unlink(missing_ok=True)
    return Results(target)


def _check_one_sweep(files: Sequence[Path], abouts: Sequence[About]) -> None:
    """Raise UsageError if two files are not of one sweep."""
    first = abouts[0]
    for file, about in zip(files[1:], abouts[1:], strict=True):
        same_part = msgspec.structs.replace(about, shard=first.shard)
        difference = first.differs(same_part)
        if difference:
            raise UsageError(f"{files[0]} and {file} are of different sweeps: {difference}")


def _check_all_there(files: Sequence[Path], abouts: Sequence[About]) -> None:
    """Raise UsageError if a part of the sweep is missing or twice there."""
    by_shard: dict[int, Path] = {}
    for file, about in zip(files, abouts, strict=True):
        if about.shard in by_shard:
            raise UsageError(
                f"{by_shard[about.shard]} and {file} are both part {about.shard} of {about.shards}"
            )
        by_shard[about.shard] = file
    shards = abouts[0].shards
    missing = [str(n) for n in range(1, shards + 1) if n not in by_shard]
    if missing:
        raise UsageError(f"part {', '.join(missing)} of {shards} is missing")
