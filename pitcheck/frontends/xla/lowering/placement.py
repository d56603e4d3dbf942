"""The lineage that a sharding states: which part of a tensor each partition holds."""

from __future__ import annotations

from collections import defaultdict

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.xla.lowering.building import DEVICE
from pitcheck.frontends.xla.text.sharding import Placement, Sharding, Use
from pitcheck.plan.model import Lineage, Shard, Table
from pitcheck.plan.rules.lineage_rules import FREE


def lineage_of(
    reference: str, sizes: tuple[int, ...], sharding: Sharding | None, devices: int, place: str
) -> tuple[Lineage, tuple[int, ...]]:
    """Return the parts of a tensor that partitions hold, and the sizes of each part.

    ``sharding``: None stands for a replica everywhere. The last tile of a dimension whose size is
    no multiple of the tiles is filled up with numbers of which nothing is known.

    Raises:
        UnsupportedError: for a sharding that says less, or that plans cannot state.
        PlanError: for one of another rank, or of other devices.
    """
    if sharding is None:
        return Lineage(reference), sizes
    placements = [sharding.placement(device, len(sizes)) for device in range(devices)]
    held = [each for each in placements if each is not None]
    if len(held) < devices:
        raise UnsupportedError(f"{place}: a tensor that one device alone holds has no meaning here")
    if any(each.numbers.get(Use.MANUAL) for each in held):
        raise UnsupportedError(f"{place}: a tensor that each device holds as it likes (manual)")
    cuts = sharding.tiles(len(sizes))
    local = tuple(-(-size // count) for size, count in zip(sizes, cuts, strict=True))
    shards = tuple(
        _shard(dim, sizes[dim], local[dim], held) for dim, count in enumerate(cuts) if count > 1
    )
    return Lineage(reference, shards, partial_ranks=_partial(sharding, held)), local


def _shard(dim: int, size: int, width: int, held: list[Placement]) -> Shard:
    """Return the shard of one dimension, by the tile of each device."""
    intervals = []
    for each in held:
        start = min(each.tile[dim] * width, size)
        stop = min(start + width, size)
        own = ((start, stop),) if start < stop else ()
        padding = ((FREE, width - (stop - start)),) if stop - start < width else ()
        intervals.append((*own, *padding))
    return Shard(dim, intervals=Table((DEVICE,), tuple(intervals)))


def _partial(sharding: Sharding, held: list[Placement]) -> tuple[tuple[int, ...], ...]:
    """Return the devices that hold the terms of each sum, none if nothing is a sum."""
    if sharding.count(Use.UNREDUCED) == 1:
        return ()
    sums: dict[tuple[tuple[int, ...], int], list[int]] = defaultdict(list)
    for device, each in enumerate(held):
        sums[each.tile, each.numbers.get(Use.REPLICATED, 0)].append(device)
    if len({len(members) for members in sums.values()}) > 1:
        raise PlanError("a sharding has sums of different numbers of terms")
    return tuple(map(tuple, sums.values()))
