"""The lineage of tensors with which a step begins, from the part that every rank holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pitcheck.errors import PlanError
from pitcheck.frontends.torch.known_names import check_known
from pitcheck.frontends.torch.program import Input, Part
from pitcheck.frontends.torch.routing import Axes
from pitcheck.frontends.torch.trace import Intervals
from pitcheck.plan.model import Lineage, Shard
from pitcheck.plan.rules.lineage_rules import FREE
from pitcheck.plan.tables import Places

Box = tuple[Intervals, ...]
"""For each dimension, the intervals of the whole that a rank holds, joined."""


def axes_of(axes: Axes) -> tuple[str, ...]:
    """Return mesh axes as a tuple."""
    return (axes,) if isinstance(axes, str) else tuple(axes)


def of_input(name: str, stated: Input) -> Lineage:
    """Return the lineage of a tensor of the batch."""
    return Lineage(
        name,
        shards=tuple(Shard(dim, by=axes_of(axes)) for dim, axes in sorted(stated.split.items())),
    )


def of_output(name: str, part: Part, mesh: Mapping[str, int]) -> Lineage:
    """Return the lineage of an output that ranks hold in parts.

    Raises PlanError for an unknown mesh axis, and for an axis that is named twice.
    """
    added, averaged = axes_of(part.sum), axes_of(part.mean)
    for axes in (added, averaged, *map(axes_of, part.split.values())):
        check_known(axes, mesh, f"Spec.outputs[{name!r}]")
    every = [*added, *averaged, *(axis for axes in part.split.values() for axis in axes_of(axes))]
    twice = [axis for axis in every if every.count(axis) > 1]
    if twice:
        raise PlanError(
            f"Spec.outputs[{name!r}] names the axis {twice[0]!r} twice; a rank holds a term of a "
            f"sum, a term of a mean or a part along it, and not two of these"
        )
    count = 1
    for axis in averaged:
        count *= mesh[axis]
    shards = tuple(Shard(dim, by=axes_of(axes)) for dim, axes in sorted(part.split.items()))
    # The terms of a mean over n ranks add up to n times the mean.
    return Lineage(name, shards=shards, partial=(*added, *averaged), scale=str(count))


def within(box: Box, whole: Sequence[int]) -> Box:
    """Return the part that a rank holds, with padding for what lies beyond the end of the whole.

    Padding may be any number, and no result may depend on it.
    """
    if len(box) != len(whole):
        return box
    return tuple(
        tuple(part for interval in held for part in _before_the_end(interval, size))
        for held, size in zip(box, whole, strict=True)
    )


def _before_the_end(interval: tuple[int, int], size: int) -> list[tuple[int, int]]:
    start, stop = interval
    if start < 0 or stop <= size:
        return [interval]
    padding = (FREE, stop - max(start, size))
    return [(start, size), padding] if start < size else [padding]


def of_boxes(name: str, whole: Sequence[int], boxes: Mapping[int, Box], places: Places) -> Lineage:
    """Return the lineage of a tensor of shape ``whole`` from the box that each rank holds."""
    axes = [axis.name for axis in places.coordinates.mesh if axis.size > 1]
    shards = []
    for dim, size in enumerate(whole):
        held = {rank: box[dim] for rank, box in boxes.items()}
        if any(intervals != ((0, size),) for intervals in held.values()):
            shards.append(Shard(dim, intervals=places.table(axes, held)))
    return Lineage(name, shards=tuple(shards))
