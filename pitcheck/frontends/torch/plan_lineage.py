"""Lineage of what a step begins with, from the part of it that every rank holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.known import check_known
from pitcheck.frontends.torch.program import Axes, Input, Part
from pitcheck.frontends.torch.trace import Intervals
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Lineage, Shard, Table

Box = tuple[Intervals, ...]
"""Per dimension the intervals of the whole that a rank holds, joined."""


def axes_of(axes: Axes) -> tuple[str, ...]:
    """Mesh axes as a tuple."""
    return (axes,) if isinstance(axes, str) else tuple(axes)


def of_input(name: str, stated: Input) -> Lineage:
    """The lineage of a tensor of the batch."""
    return Lineage(name, shards=tuple(Shard(dim, by=axes_of(axes)) for dim, axes in sorted(stated.split.items())))


def of_output(name: str, part: Part, mesh: Mapping[str, int]) -> Lineage:
    """The lineage of an output of which ranks hold a part. UnsupportedError: a sum and a mean at once; PlanError: an axis that the mesh has not."""
    added, averaged = axes_of(part.sum), axes_of(part.mean)
    for axes in (added, averaged, *map(axes_of, part.split.values())):
        check_known(axes, mesh, f"Spec.outputs[{name!r}]")
    if added and averaged:
        raise UnsupportedError(f"outputs[{name!r}] is both a sum over {added} and a mean over {averaged}; give one of them")
    count = 1
    for axis in averaged:
        count *= mesh[axis]
    shards = tuple(Shard(dim, by=axes_of(axes)) for dim, axes in sorted(part.split.items()))
    # Terms of a mean add up to as many times the mean as there are ranks.
    return Lineage(name, shards=shards, partial=added or averaged, scale=str(count))


def of_boxes(name: str, whole: Sequence[int], boxes: Mapping[int, Box], coordinates: Coordinates) -> Lineage:
    """The lineage of a tensor of which every rank in ``boxes`` holds a box of a whole of shape ``whole``."""
    shards = []
    for dim, size in enumerate(whole):
        held = {rank: box[dim] for rank, box in boxes.items()}
        if any(intervals != ((0, size),) for intervals in held.values()):
            shards.append(Shard(dim, intervals=_table(held, coordinates)))
    return Lineage(name, shards=tuple(shards))


def _table(held: Mapping[int, Intervals], coordinates: Coordinates) -> Table:
    """The intervals over as few axes as tell them apart; where no rank holds the tensor, those of one that does."""
    over = [axis.name for axis in coordinates.mesh]
    for axis in list(over):
        fewer = [name for name in over if name != axis]
        if _filled(fewer, held, coordinates) is not None:
            over = fewer
    values = _filled(over, held, coordinates)
    return Table(tuple(over), tuple(values or ()))


def _filled(over: Sequence[str], held: Mapping[int, Intervals], coordinates: Coordinates) -> list[Intervals] | None:
    """Row-major over these axes; None where they do not determine the intervals."""
    count = coordinates.count(tuple(over))
    table: list[Intervals | None] = [None] * count
    for rank, intervals in held.items():
        place = 0
        for axis in over:
            place = place * coordinates.sizes[axis] + int(coordinates.of_rank(axis)[rank])
        if table[place] not in (None, intervals):
            return None
        table[place] = intervals
    some = next(iter(held.values()))
    return [some if entry is None else entry for entry in table]
