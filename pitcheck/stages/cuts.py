"""Lineage made concrete: which part of a reference value a parallel value holds at every coordinate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import MICROBATCH_AXIS, Lineage, Shard
from pitcheck.stages.graph import Codes, Graph, GraphValue

Interval = tuple[int, int]
Box = tuple[tuple[Interval, ...], ...]
"""Per dimension of the reference the intervals whose concatenation is the local dimension; (-1, n) are n free elements."""

FREE = -1


@dataclass(frozen=True)
class Part:
    """A box of the reference value, or term number ``term`` of ``terms`` that add up to it. ``owner`` tells free padding of different ranks apart."""

    box: Box
    term: int = 0
    terms: int = 1
    owner: int = -1


@dataclass(frozen=True)
class Cut:
    """``value`` (of the parallel graph) holds ``scale`` times part ``part_of[code]`` of ``reference`` (of the reference graph); -1: not held."""

    value: int
    reference: int
    parts: tuple[Part, ...]
    part_of: Codes
    scale: Fraction = Fraction(1)
    group_of: Codes | None = None
    """Of a cut whose parts are terms of a sum: which sum each code belongs to."""

    @property
    def key(self) -> tuple[object, ...]:
        """What the cut says, without the numbers of the values."""
        return self.parts, self.scale


def resolve(lineage: Lineage, value: int, graph: Graph, reference: int, reference_shape: tuple[int, ...], place: str) -> Cut:
    """The cut that a lineage describes. Raises PlanError where it does not fit the shapes, UnsupportedError for a reduction without a meaning."""
    if lineage.reduction != "sum" and (lineage.partial or lineage.partial_ranks):
        raise UnsupportedError(f"{place}: a lineage that is a term of a {lineage.reduction} is not supported between plans; reduce it before it is compared")
    coordinates = graph.coordinates
    local = graph.values[value]
    microbatched = local.tensor.microbatched
    columns = [_intervals(shard, coordinates, reference_shape, place) for shard in lineage.shards]
    term, terms, group_of = _terms(lineage, coordinates, place)
    parts: dict[Part, int] = {}
    part_of = np.full(graph.codes, -1, dtype=np.int64)
    whole: list[tuple[Interval, ...]] = [((0, size),) for size in reference_shape]
    seen: dict[tuple[int, ...], int] = {}
    for code in range(0, graph.codes, 1 if microbatched else coordinates.microbatches):
        key = (*(int(which[code]) for which, _, _ in columns), int(term[code]))
        if key in seen and not any(free for _, _, free in columns):
            part_of[code] = seen[key]
            continue
        dims = list(whole)
        for shard, (which, intervals, _) in zip(lineage.shards, columns, strict=True):
            dims[shard.dim] = intervals[int(which[code])]
        box = tuple(dims)
        _check_local(box, local, place)
        part = Part(box, int(term[code]), terms, code if any(free for _, _, free in columns) else -1)
        part_of[code] = seen[key] = parts.setdefault(part, len(parts))
    return Cut(value, reference, tuple(parts), part_of, _scale(lineage.scale, place), group_of if terms > 1 else None)


def _intervals(shard: Shard, coordinates: Coordinates, shape: tuple[int, ...], place: str) -> tuple[Codes, list[tuple[Interval, ...]], bool]:
    """(which entry each code has, the entries, whether any is padded)."""
    if not 0 <= shard.dim < len(shape):
        raise PlanError(f"dimension {shard.dim} does not exist; the reference has shape {shape}", place)
    size = shape[shard.dim]
    if shard.intervals is None:
        count = coordinates.count(shard.by)
        if size % count:
            raise PlanError(f"dimension {shard.dim} of size {size} cannot be cut evenly into {count}", place)
        step = size // count
        which = coordinates.row_major(shard.by, place).reshape(-1)
        return which, [((i * step, (i + 1) * step),) for i in range(count)], False
    positions, values = coordinates.table(shard.intervals, place)
    entries: list[tuple[Interval, ...]] = []
    for entry in values:
        if not isinstance(entry, tuple):
            raise PlanError(f"{entry!r} is not a list of (start, stop) intervals", place)
        intervals = tuple((int(a), int(b)) for a, b in _pairs(entry, place))
        for start, stop in intervals:
            if start != FREE and not 0 <= start <= stop <= size:
                raise PlanError(f"interval ({start}, {stop}) is outside dimension {shard.dim} of size {size}", place)
        entries.append(intervals)
    return positions.reshape(-1), entries, any(start == FREE for entry in entries for start, _ in entry)


def _pairs(entry: Sequence[object], place: str) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for pair in entry:
        if not (isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(x, int) for x in pair)):
            raise PlanError(f"{pair!r} is not a (start, stop) interval", place)
        pairs.append((pair[0], pair[1]))
    return pairs


def _terms(lineage: Lineage, coordinates: Coordinates, place: str) -> tuple[Codes, int, Codes]:
    """(term number per code, number of terms, which sum each code belongs to)."""
    if lineage.partial and lineage.partial_ranks:
        raise PlanError("a lineage is partial over axes or over rank lists, not both", place)
    if lineage.partial:
        others = tuple(axis for axis in (*coordinates.sizes, MICROBATCH_AXIS) if axis not in lineage.partial)
        return coordinates.row_major(lineage.partial, place).reshape(-1), coordinates.count(lineage.partial), coordinates.row_major(others).reshape(-1)
    term = np.zeros(coordinates.ranks, dtype=np.int64)
    group = np.arange(coordinates.ranks)
    counts = {len(ranks) for ranks in lineage.partial_ranks} or {1}
    if len(counts) > 1:
        raise PlanError("the rank lists of a partial sum have different lengths", place)
    for ranks in lineage.partial_ranks:
        term[list(ranks)] = np.arange(len(ranks))
        group[list(ranks)] = min(ranks)
    groups = group[:, None] * coordinates.microbatches + np.arange(coordinates.microbatches)[None, :]
    return np.repeat(term, coordinates.microbatches), counts.pop(), groups.reshape(-1)


def _check_local(box: Box, local: GraphValue, place: str) -> None:
    shape = tuple(sum(length(i) for i in intervals) for intervals in box)
    if shape != local.shape:
        raise PlanError(f"the lineage describes a tensor of shape {shape}, but {local.name!r} has shape {local.shape}", place)


def length(interval: Interval) -> int:
    """Number of elements of an interval."""
    start, stop = interval
    return stop if start == FREE else stop - start


def _scale(text: str, place: str) -> Fraction:
    try:
        scale = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise PlanError(f"scale {text!r} is not a rational", place) from None
    if scale == 0:
        raise PlanError("scale 0 would compare nothing", place)
    return scale


def uncovered(cut: Cut, shape: tuple[int, ...], codes: Codes) -> Box | None:
    """A box of the reference that no part at ``codes`` holds (or of which a term is absent), or None when they tile it.

    The reference is cut at all interval ends into cells; every cell must lie in a complete part.
    """
    held: dict[Box, set[int]] = {}
    for number in np.unique(cut.part_of[codes]):
        if number >= 0:
            part = cut.parts[int(number)]
            held.setdefault(part.box, set()).add(part.term)
    terms = max((part.terms for part in cut.parts), default=1)
    boxes = [box for box, present in held.items() if len(present) == terms]
    edges = [sorted({0, size} | {e for box in boxes for i in box[dim] if i[0] != FREE for e in i}) for dim, size in enumerate(shape)]
    grid = np.zeros([len(e) - 1 for e in edges], dtype=np.bool_)
    for box in boxes:
        index = [
            np.flatnonzero([any(a <= start and stop <= b for a, b in intervals if a != FREE) for start, stop in zip(edges[dim], edges[dim][1:], strict=False)])
            for dim, intervals in enumerate(box)
        ]
        if grid.ndim == 0:
            grid[...] = True
        else:
            grid[np.ix_(*index)] = True
    if grid.all():
        return None
    first = np.argwhere(~grid)[0]
    return tuple(((edges[dim][i], edges[dim][i + 1]),) for dim, i in enumerate(first))
