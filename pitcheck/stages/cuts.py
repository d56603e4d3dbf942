"""Lineage made concrete: which part of a reference value a parallel value holds at every coordinate."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import MICROBATCH_AXIS, Lineage, Shard
from pitcheck.stages.graph import Graph, GraphValue
from pitcheck.stages.grids import Codes, Grid, Home, Lattice, Mask, focus, near

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


class Parts(tuple[Part, ...]):
    """The different parts of a cut, and what follows of them, found once."""

    @cached_property
    def intervals(self) -> tuple[tuple[tuple[Interval, ...], ...], ...]:
        """Per dimension the different lists of intervals."""
        return tuple(tuple(dict.fromkeys(column)) for column in zip(*(part.box for part in self), strict=True))

    @cached_property
    def starts(self) -> NDArray[np.int64] | None:
        """Where every part begins along every dimension, shape (parts, dimensions); None where a part is no single interval or free."""
        if any(len(i) != 1 or i[0][0] == FREE for column in self.intervals for i in column):
            return None
        return np.array([[i[0][0] for i in part.box] for part in self], dtype=np.int64).reshape(len(self), -1)

    @cached_property
    def _words(self) -> dict[tuple[int, ...], NDArray[np.uint64]]:
        return {}

    def words(self, without: tuple[int, ...]) -> NDArray[np.uint64]:
        """A 64-bit hash of every part but for its intervals along some dimensions, shape (parts,)."""
        if without not in self._words:
            said = [(tuple(i for d, i in enumerate(p.box) if d not in without), p.term, p.terms, p.owner) for p in self]
            known = {what: int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=8).digest(), "little") for what in dict.fromkeys(said)}
            self._words[without] = np.array([known[what] for what in said], dtype=np.uint64)
        return self._words[without]

    @cached_property
    def digest(self) -> bytes:
        """Equal for equal parts."""
        return hashlib.blake2b(repr(tuple(self)).encode(), digest_size=16).digest()


@dataclass(frozen=True, eq=False)
class Cut:
    """``value`` (of the parallel graph) holds ``scale`` times the part of ``reference`` (of the reference graph) that ``grid`` says (-1: not held)."""

    value: int
    reference: int
    parts: Parts
    grid: Grid
    lattice: Lattice
    scale: Fraction = Fraction(1)
    groups: Grid | None = None
    """Of a cut whose parts are terms of a sum: which sum each coordinate belongs to."""

    @property
    def key(self) -> tuple[object, ...]:
        """What the cut says, without the numbers of the values."""
        return self.parts, self.scale

    @cached_property
    def part_of(self) -> Codes:
        """The part by coordinate code, shape (codes,)."""
        return self.lattice.flat(self.grid, -1)

    @cached_property
    def group_of(self) -> Codes | None:
        """The sum by coordinate code."""
        return None if self.groups is None else self.lattice.flat(self.groups, -1)


def cut_by_code(graph: Graph, value: int, reference: int, parts: Sequence[Part], part_of: Codes, scale: Fraction = Fraction(1)) -> Cut:
    """A cut from parts by coordinate code, shape (codes,)."""
    lattice = graph.values[value].lattice
    return Cut(value, reference, Parts(parts), lattice.grid(part_of), lattice, scale)


def resolve(lineage: Lineage, value: int, graph: Graph, reference: int, reference_shape: tuple[int, ...], place: str) -> Cut:
    """The cut that a lineage describes. Raises PlanError where it does not fit the shapes, UnsupportedError for a reduction without a meaning."""
    if lineage.reduction != "sum" and (lineage.partial or lineage.partial_ranks):
        raise UnsupportedError(f"{place}: a lineage that is a term of a {lineage.reduction} is not supported between plans; reduce it before it is compared")
    local = graph.values[value]
    key = (lineage.shards, lineage.partial, lineage.partial_ranks, reference_shape, local.shape, local.lattice.microbatched)
    known = graph.placements.get(key)
    if known is None:
        known = graph.placements[key] = _placed(lineage, local, graph.coordinates, reference_shape, place)
    parts, grid, groups = known
    return Cut(value, reference, parts, grid, local.lattice, _scale(lineage.scale, place), groups)


def _placed(lineage: Lineage, local: GraphValue, coordinates: Coordinates, shape: tuple[int, ...], place: str) -> tuple[Parts, Grid, Grid | None]:
    """(the parts, which one every coordinate has, which sum it belongs to)."""
    columns = [_intervals(shard, coordinates, shape, place) for shard in lineage.shards]
    term, terms, groups = _terms(lineage, coordinates, place)
    every = np.arange(prod(coordinates.shape), dtype=np.int64).reshape(coordinates.shape)
    numbered = [which for which, _ in columns] + [term]
    numbered.append(np.where(_free(columns), every, -1) if any(i[0] == FREE for _, entries in columns for entry in entries for i in entry) else term * 0)
    if not local.lattice.microbatched:
        numbered = [grid[..., :1] for grid in numbered]
    stacked = np.stack([grid.reshape(-1) for grid in np.broadcast_arrays(*numbered)], axis=1)
    rows: dict[tuple[int, ...], int] = {}
    grid = np.array([rows.setdefault(tuple(row), len(rows)) for row in stacked.tolist()], dtype=np.int64)
    parts = []
    for row in rows:
        dims: list[tuple[Interval, ...]] = [((0, size),) for size in shape]
        for shard, (_, entries), entry in zip(lineage.shards, columns, row, strict=False):
            dims[shard.dim] = entries[entry]
        _check_local(tuple(dims), local, place)
        owner = row[-1] if any(i[0] == FREE for intervals in dims for i in intervals) else -1
        parts.append(Part(tuple(dims), row[-2], terms, owner))
    merged: dict[Part, int] = {}
    number = np.array([merged.setdefault(part, len(merged)) for part in parts], dtype=np.int64)
    placed = number[grid].reshape(np.broadcast_shapes(*(n.shape for n in numbered)))
    return Parts(merged), placed, (groups if local.lattice.microbatched else groups[..., :1]) if terms > 1 else None


def _free(columns: Sequence[tuple[Grid, list[tuple[Interval, ...]]]]) -> NDArray[np.bool_]:
    """Where a coordinate has padding of its own."""
    result = np.zeros((1,), dtype=np.bool_)
    for which, entries in columns:
        padded = np.array([any(start == FREE for start, _ in entry) for entry in entries], dtype=np.bool_)
        result = result | padded[which]
    return result


def _intervals(shard: Shard, coordinates: Coordinates, shape: tuple[int, ...], place: str) -> tuple[Grid, list[tuple[Interval, ...]]]:
    """(which entry each coordinate has, the entries)."""
    if not 0 <= shard.dim < len(shape):
        raise PlanError(f"dimension {shard.dim} does not exist; the reference has shape {shape}", place)
    size = shape[shard.dim]
    if shard.intervals is None:
        which = coordinates.row_major_grid(shard.by, place)
        count = coordinates.count(shard.by)
        if size % count:
            raise PlanError(f"dimension {shard.dim} of size {size} cannot be cut evenly into {count}", place)
        step = size // count
        return which, [((i * step, (i + 1) * step),) for i in range(count)]
    table = shard.intervals
    positions = coordinates.row_major_grid(table.over, f"{place}.over")
    if len(table.values) != coordinates.count(table.over):
        raise PlanError(f"{len(table.values)} values for {coordinates.count(table.over)} positions over {', '.join(table.over)}", f"{place}.values")
    entries: list[tuple[Interval, ...]] = []
    for entry in table.values:
        if not isinstance(entry, tuple):
            raise PlanError(f"{entry!r} is not a list of (start, stop) intervals", place)
        intervals = tuple((int(a), int(b)) for a, b in _pairs(entry, place))
        for start, stop in intervals:
            if start != FREE and not 0 <= start <= stop <= size:
                raise PlanError(f"interval ({start}, {stop}) is outside dimension {shard.dim} of size {size}", place)
        entries.append(intervals)
    return positions, entries


def _pairs(entry: Sequence[object], place: str) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for pair in entry:
        if not (isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(x, int) for x in pair)):
            raise PlanError(f"{pair!r} is not a (start, stop) interval", place)
        pairs.append((pair[0], pair[1]))
    return pairs


def _terms(lineage: Lineage, coordinates: Coordinates, place: str) -> tuple[Grid, int, Grid]:
    """(term number at every coordinate, number of terms, which sum every coordinate belongs to)."""
    if lineage.partial and lineage.partial_ranks:
        raise PlanError("a lineage is partial over axes or over rank lists, not both", place)
    if lineage.partial:
        others = tuple(axis for axis in (*coordinates.sizes, MICROBATCH_AXIS) if axis not in lineage.partial)
        return coordinates.row_major_grid(lineage.partial, place), coordinates.count(lineage.partial), coordinates.row_major_grid(others)
    if not lineage.partial_ranks:
        nowhere = np.zeros((1,) * len(coordinates.shape), dtype=np.int64)
        return nowhere, 1, nowhere
    term = np.zeros(coordinates.ranks, dtype=np.int64)
    group = np.arange(coordinates.ranks)
    counts = {len(ranks) for ranks in lineage.partial_ranks}
    if len(counts) > 1:
        raise PlanError("the rank lists of a partial sum have different lengths", place)
    for ranks in lineage.partial_ranks:
        term[list(ranks)] = np.arange(len(ranks))
        group[list(ranks)] = min(ranks)
    groups = group[:, None] * coordinates.microbatches + np.arange(coordinates.microbatches)[None, :]
    return term.reshape((*coordinates.shape[:-1], 1)), counts.pop(), groups.reshape(coordinates.shape)


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


def uncovered(cut: Cut, shape: tuple[int, ...], where: Mask) -> Box | None:
    """A box of the reference that no part at ``where`` holds (or of which a term is absent), or None when they tile it.

    The reference is cut at all interval ends into cells; every cell must lie in a complete part.
    """
    held: dict[Box, set[int]] = {}
    for number in present_parts(cut, where):
        part = cut.parts[int(number)]
        held.setdefault(part.box, set()).add(part.term)
    terms = max((part.terms for part in cut.parts), default=1)
    boxes = [box for box, present in held.items() if len(present) == terms]
    edges = [sorted({0, size} | {e for box in boxes for i in box[dim] if i[0] != FREE for e in i}) for dim, size in enumerate(shape)]
    grid = np.zeros([len(e) - 1 for e in edges], dtype=np.bool_)
    place = [{edge: number for number, edge in enumerate(own)} for own in edges]
    for box in boxes:
        index = [[cell for a, b in intervals if a != FREE for cell in range(place[dim][a], place[dim][b])] for dim, intervals in enumerate(box)]
        if grid.ndim == 0:
            grid[...] = True
        else:
            grid[np.ix_(*index)] = True
    if grid.all():
        return None
    first = np.argwhere(~grid)[0]
    return tuple(((edges[dim][i], edges[dim][i + 1]),) for dim, i in enumerate(first))


def present_parts(cut: Cut, where: Mask, home: Home = ()) -> Codes:
    """The numbers of the parts that are held at some coordinate of ``where``, which is near ``home``, in ascending order."""
    places = focus(where)
    grid, mask = np.broadcast_arrays(near(near(cut.grid, home), places), near(where, places))
    found = np.unique(grid[mask])
    return found[found >= 0]
