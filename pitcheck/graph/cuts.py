"""Lineage made concrete: the part of a reference value that a parallel value holds everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.graph.graph import Graph, GraphValue
from pitcheck.graph.grids import Codes, Grid, Home, Lattice, Mask, focus, near
from pitcheck.graph.parts import FREE, ZERO, Box, Interval, Part, Parts, distinct_rows, length
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import MICROBATCH_AXIS, Lineage, Shard

__all__ = [
    "FREE",
    "ZERO",
    "Box",
    "Cut",
    "Interval",
    "Part",
    "Parts",
    "cut_by_code",
    "length",
    "present_parts",
    "resolve",
    "uncovered",
]


@dataclass(frozen=True, eq=False)
class Cut:
    """A claim: ``value`` holds ``scale`` times parts of ``reference`` at every coordinate.

    ``value`` is of the parallel graph, ``reference`` of the reference graph. ``grid`` says which of
    the parts a coordinate holds (-1: none).
    """

    value: int
    reference: int
    parts: Parts
    grid: Grid
    lattice: Lattice
    scale: Fraction = Fraction(1)
    groups: Grid | None = None
    """The sum that each coordinate belongs to, for a cut whose parts are terms of a sum."""

    @property
    def key(self) -> tuple[object, ...]:
        """Return what the cut says, without the numbers of the values."""
        return self.parts, self.scale

    @cached_property
    def part_of(self) -> Codes:
        """Return the part by coordinate code, shape (codes,)."""
        return self.lattice.flat(self.grid, -1)

    @cached_property
    def group_of(self) -> Codes | None:
        """Return the sum by coordinate code, shape (codes,), or None."""
        return None if self.groups is None else self.lattice.flat(self.groups, -1)


def cut_by_code(
    graph: Graph,
    value: int,
    reference: int,
    parts: Sequence[Part],
    part_of: Codes,
    scale: Fraction = Fraction(1),
) -> Cut:
    """Return a cut from parts by coordinate code, shape (codes,)."""
    lattice = graph.values[value].lattice
    return Cut(value, reference, Parts(parts), lattice.grid(part_of), lattice, scale)


def resolve(
    lineage: Lineage,
    value: int,
    graph: Graph,
    reference: int,
    reference_shape: tuple[int, ...],
    place: str,
) -> Cut:
    """Return the cut that a lineage describes.

    Raises:
        PlanError: the lineage does not fit the shapes.
        UnsupportedError: the lineage has a reduction without a meaning.
    """
    if lineage.reduction != "sum" and (lineage.partial or lineage.partial_ranks):
        raise UnsupportedError(
            f"{place}: a lineage that is a term of a {lineage.reduction} is not supported between "
            f"plans; reduce it before it is compared"
        )
    local = graph.values[value]
    key = (
        lineage.shards,
        lineage.partial,
        lineage.partial_ranks,
        reference_shape,
        local.shape,
        local.lattice.microbatched,
    )
    known = graph.placements.get(key)
    if known is None:
        known = graph.placements[key] = _placed(
            lineage, local, graph.coordinates, reference_shape, place
        )
    parts, grid, groups = known
    return Cut(value, reference, parts, grid, local.lattice, _scale(lineage.scale, place), groups)


def _placed(
    lineage: Lineage,
    local: GraphValue,
    coordinates: Coordinates,
    shape: tuple[int, ...],
    place: str,
) -> tuple[Parts, Grid, Grid | None]:
    """Return (the parts, which one every coordinate has, which sum it belongs to)."""
    columns = {shard.dim: _intervals(shard, coordinates, shape, place) for shard in lineage.shards}
    term, terms, groups = _terms(lineage, coordinates, place)
    padded = any(
        i[0] == FREE for _, entries in columns.values() for entry in entries for i in entry
    )
    owner = term * 0 - 1
    if padded:
        every = np.arange(prod(coordinates.shape), dtype=np.int64).reshape(coordinates.shape)
        owner = np.where(_free(list(columns.values())), every, -1)
    numbered = [*(which for which, _ in columns.values()), term, owner]
    if not local.lattice.microbatched:
        numbered = [grid[..., :1] for grid in numbered]
    dense = np.broadcast_arrays(*numbered)
    first, which = distinct_rows([grid.reshape(-1) for grid in dense])
    rows = [grid.reshape(-1)[first] for grid in dense]
    index = np.zeros((len(first), len(shape)), dtype=np.int64)
    for dim, row in zip(columns, rows, strict=False):
        index[:, dim] = row
    boxes = [
        columns[dim][1] if dim in columns else [((0, size),)] for dim, size in enumerate(shape)
    ]
    parts = Parts.of(boxes, index, rows[-2], terms, rows[-1])
    _check_local(parts, local, place)
    return (
        parts,
        which.reshape(dense[0].shape),
        (groups if local.lattice.microbatched else groups[..., :1]) if terms > 1 else None,
    )


def _free(columns: Sequence[tuple[Grid, list[tuple[Interval, ...]]]]) -> NDArray[np.bool_]:
    """Return where a coordinate holds free padding, as a grid."""
    result = np.zeros((1,), dtype=np.bool_)
    for which, entries in columns:
        padded = np.array(
            [any(start == FREE for start, _ in entry) for entry in entries], dtype=np.bool_
        )
        result = result | padded[which]
    return result


def _intervals(
    shard: Shard, coordinates: Coordinates, shape: tuple[int, ...], place: str
) -> tuple[Grid, list[tuple[Interval, ...]]]:
    """Return (the entry that each coordinate has, the entries)."""
    if not 0 <= shard.dim < len(shape):
        raise PlanError(
            f"dimension {shard.dim} does not exist; the reference has shape {shape}", place
        )
    size = shape[shard.dim]
    if shard.intervals is None:
        which = coordinates.row_major_grid(shard.by, place)
        count = coordinates.count(shard.by)
        if size % count:
            raise PlanError(
                f"dimension {shard.dim} of size {size} cannot be cut evenly into {count}", place
            )
        step = size // count
        return which, [((i * step, (i + 1) * step),) for i in range(count)]
    table = shard.intervals
    positions = coordinates.row_major_grid(table.over, f"{place}.over")
    if len(table.values) != coordinates.count(table.over):
        raise PlanError(
            f"{len(table.values)} values for {coordinates.count(table.over)} positions over "
            f"{', '.join(table.over)}",
            f"{place}.values",
        )
    entries: list[tuple[Interval, ...]] = []
    for entry in table.values:
        if not isinstance(entry, tuple):
            raise PlanError(f"{entry!r} is not a list of (start, stop) intervals", place)
        intervals = tuple((int(a), int(b)) for a, b in _pairs(entry, place))
        for start, stop in intervals:
            if start not in (FREE, ZERO) and not 0 <= start <= stop <= size:
                raise PlanError(
                    f"interval ({start}, {stop}) is outside dimension {shard.dim} of size {size}",
                    place,
                )
        entries.append(intervals)
    different = {entry: number for number, entry in enumerate(dict.fromkeys(entries))}
    return np.array([different[entry] for entry in entries], dtype=np.int64)[positions], list(
        different
    )


def _pairs(entry: Sequence[object], place: str) -> list[tuple[int, int]]:
    """Return an entry as (start, stop) pairs. Raises PlanError."""
    pairs: list[tuple[int, int]] = []
    for pair in entry:
        if not (
            isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(x, int) for x in pair)
        ):
            raise PlanError(f"{pair!r} is not a (start, stop) interval", place)
        pairs.append((pair[0], pair[1]))
    return pairs


def _terms(lineage: Lineage, coordinates: Coordinates, place: str) -> tuple[Grid, int, Grid]:
    """Return the terms of a sum that a lineage distributes.

    Returns:
        The number of the term at every coordinate; the number of terms; the sum that every
            coordinate
        belongs to.
    """
    if lineage.partial and lineage.partial_ranks:
        raise PlanError("a lineage is partial over axes or over rank lists, not both", place)
    if lineage.partial:
        others = tuple(
            axis for axis in (*coordinates.sizes, MICROBATCH_AXIS) if axis not in lineage.partial
        )
        return (
            coordinates.row_major_grid(lineage.partial, place),
            coordinates.count(lineage.partial),
            coordinates.row_major_grid(others),
        )
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
    groups = (
        group[:, None] * coordinates.microbatches + np.arange(coordinates.microbatches)[None, :]
    )
    return (
        term.reshape((*coordinates.shape[:-1], 1)),
        counts.pop(),
        groups.reshape(coordinates.shape),
    )


def _check_local(parts: Parts, local: GraphValue, place: str) -> None:
    """Check that parts have the shape of a tensor. Raises PlanError."""
    fits = len(parts.intervals) == len(local.shape)
    if fits and all(
        set(lengths.tolist()) == {size}
        for lengths, size in zip(parts.lengths, local.shape, strict=True)
    ):
        return
    wrong = (
        np.flatnonzero((parts.shapes != np.array(local.shape, dtype=np.int64)).any(axis=1)).tolist()
        if fits
        else [0]
    )
    if wrong:
        raise PlanError(
            f"the lineage describes a tensor of shape {tuple(parts.shapes[wrong[0]].tolist())}, "
            f"but {local.name!r} has shape {local.shape}",
            place,
        )


def _scale(text: str, place: str) -> Fraction:
    """Return a scale as a rational other than 0. Raises PlanError."""
    try:
        scale = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise PlanError(f"scale {text!r} is not a rational", place) from None
    if scale == 0:
        raise PlanError("scale 0 would compare nothing", place)
    return scale


def uncovered(cut: Cut, shape: tuple[int, ...], where: Mask) -> Box | None:
    """Return a box of the reference that no part at ``where`` holds, or None if they tile it.

    A box of which a term is absent is not held. The reference is cut at all interval ends into
    cells; every cell must lie in a complete part.
    """
    parts = cut.parts
    boxes = parts.complete(present_parts(cut, where))
    edges = [
        sorted({0, size} | {e for i in used for e in i})
        for size, used in zip(shape, parts.used(boxes), strict=True)
    ]
    grid = np.zeros([len(e) - 1 for e in edges], dtype=np.bool_)
    place = [{edge: number for number, edge in enumerate(own)} for own in edges]
    cells = [
        [
            np.array(
                [cell for a, b in intervals if a >= 0 for cell in range(own[a], own[b])]
                if used
                else [],
                dtype=np.int64,
            )
            for intervals, used in column
        ]
        for own, column in zip(place, parts.marked(boxes), strict=True)
    ]
    if not shape:
        grid[...] = len(boxes) > 0
    elif all(len(own) <= 1 for column in cells for own in column):
        # Every box is one cell: enter all at once. A box of padding alone has no cell.
        single = [
            np.array([own[0] if len(own) else -1 for own in column], dtype=np.int64)[
                parts.which[boxes, dim]
            ]
            for dim, column in enumerate(cells)
        ]
        held = np.logical_and.reduce([cell >= 0 for cell in single])
        grid[tuple(cell[held] for cell in single)] = True
    else:
        for row in parts.which[boxes].tolist():
            grid[np.ix_(*(column[number] for column, number in zip(cells, row, strict=True)))] = (
                True
            )
    if grid.all():
        return None
    first = np.argwhere(~grid)[0]
    return tuple(((edges[dim][i], edges[dim][i + 1]),) for dim, i in enumerate(first))


def present_parts(cut: Cut, where: Mask, home: Home = ()) -> Codes:
    """Return the numbers of the parts held at some coordinate of ``where``, ascending.

    ``where`` is near ``home``.
    """
    places = focus(where)
    grid, mask = np.broadcast_arrays(near(near(cut.grid, home), places), near(where, places))
    found = np.unique(grid[mask])
    return found[found >= 0]
