"""The codes of integers and truths that a program is given: each is a place in the whole array."""

from __future__ import annotations

from math import prod

import numpy as np

from pitcheck.frontends.xla.lowering.arrays import NUMPY
from pitcheck.frontends.xla.lowering.placement import lineage_of
from pitcheck.frontends.xla.lowering.random.codebook import Ints
from pitcheck.frontends.xla.lowering.random.codes import Codes, leaf
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.frontends.xla.text.sharding import Sharding
from pitcheck.plan.model import Lineage
from pitcheck.plan.rules.lineage_rules import FREE

KEYS = frozenset({ElementType.U32, ElementType.U64})
"""The types of the keys of random numbers."""


def parameter_codes(
    number: int, whole: ArrayShape, sharding: Sharding | None, devices: int, place: str
) -> Codes | None:
    """Return the codes of a parameter; None unless it is of integers or truths that are no sums.

    Raises UnsupportedError and PlanError as ``lineage_of`` does.
    """
    if whole.element not in NUMPY:
        return None
    lineage, sizes = Lineage(""), whole.dimensions
    if devices > 1:
        lineage, sizes = lineage_of("", sizes, sharding, devices, place)
    if lineage.partial_ranks:
        return None
    rows = devices if lineage.shards else 1
    held = ArrayShape(whole.element, sizes)
    return leaf(held, rows, ("parameter", number), lambda: _places(whole, held, lineage, rows))


def _places(whole: ArrayShape, held: ArrayShape, lineage: Lineage, rows: int) -> Ints:
    """Return for each device the place of each element; what fills it up has one below 0.

    No two elements that fill up have the same.
    """
    found = np.zeros((rows, *held.dimensions), dtype=np.int64)
    for device in range(rows):
        lines = [np.arange(size) for size in held.dimensions]
        for shard in lineage.shards:
            if shard.intervals is not None:
                lines[shard.dim] = _line(shard.intervals.values[device])
        inside = np.ones(held.dimensions, dtype=bool)
        for grid in np.ix_(*lines) if lines else ():
            inside = inside & (grid >= 0)
        places = np.zeros(held.dimensions, dtype=np.int64)
        for grid, size in zip(np.ix_(*lines) if lines else (), whole.dimensions, strict=True):
            places = places * size + grid
        count = prod(held.dimensions)
        others = -1 - device * count - np.arange(count).reshape(held.dimensions)
        found[device] = np.where(inside, places, others)
    return found


def _line(intervals: object) -> Ints:
    """Return the places of some intervals, those of what fills up being below 0."""
    parts = [
        np.full(stop, FREE) if start == FREE else np.arange(start, stop)
        for start, stop in (intervals if isinstance(intervals, tuple) else ())
    ]
    return np.concatenate(parts).astype(np.int64)
