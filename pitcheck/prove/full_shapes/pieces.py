"""Pieces of a stage that fit into memory, which together compare all that the stage compares.

A stage is cut into *slices* along axes that both sides carry along, place by place: what is
computed of a slice is the slice of what is computed. Where that does not do, its compared rows are
taken in *groups*, each with the steps that it needs. Every compared element is in exactly one
piece. Slices of one size are the same statement, word for word, and stand here once.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shapes import symbolic_pair
>>> plan = one_operator("exp", [(64, 512)], (64, 512))
>>> stage = Problem.of(plan, plan).whole_stage()
>>> found = Measured(stage, symbolic_pair(stage.reference, stage.parallel, stage.all_cuts()))
>>> [part.count for part in pieces(found, None, 1 << 30)]
[1]
>>> [part.count for part in pieces(found, None, 1 << 22)]
[8]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from pitcheck.algebra.dimensions.size_choice import LEAST, Scale, Sizes
from pitcheck.errors import BudgetError
from pitcheck.graph.grids import Codes, near
from pitcheck.ops.axis_templates import Templates
from pitcheck.prove.full_shapes.demand import Demand, demand_of
from pitcheck.stage.pruned_batch import pruned_to
from pitcheck.stage.reductions.sizes import Measured
from pitcheck.stage.shapes import symbolic_pair
from pitcheck.stage.stage import Stage, compared_rows

MOST_LEVELS = 4
"""The residues of a number over the longest chain of primes. Exponentials tie these to each other,
so all are computed together.
"""
TOGETHER = 2
"""The least number of draws that are evaluated together: one alone does not tell what is drawn from
what is constant.
"""
MOST_PIECES = 1 << 16
"""The pieces of a stage up to which it is taken apart."""

Parts = Mapping[int, int]
"""The number of slices along an axis, by the number of its class."""


@dataclass(frozen=True)
class Piece:
    """A part of a stage, its name (empty for the whole), and what one draw of it takes.

    ``count``: the parts that it stands for, all of which are the same statement.
    """

    found: Measured
    name: str
    demand: Demand
    count: int = 1


@dataclass(frozen=True)
class Room:
    """The bytes that a piece may take. ``in_slabs``: it is evaluated in slabs where it can be."""

    bytes: int
    in_slabs: bool

    def demand(self, found: Measured) -> Demand:
        """Return what one draw of a piece takes."""
        return demand_of(found.symbolic, found.sizes, MOST_LEVELS, in_slabs=self.in_slabs)

    def needed(self, found: Measured) -> int:
        """Return the bytes that a piece takes."""
        return self.demand(found).bytes(TOGETHER)


def pieces(
    found: Measured, templates: Templates | None, most: int, *, in_slabs: bool = False
) -> list[Piece]:
    """Return the distinct pieces of a stage, of which each takes at most ``most`` bytes.

    ``in_slabs``: large inputs that are only summed are evaluated slab by slab.

    Raises:
        BudgetError: it cannot be taken apart so far.
    """
    room = Room(most, in_slabs)
    parts = _parts(found, room)
    if parts is not None:
        return list(_slices(found, parts, "", room))
    rows = _rows(found.stage)
    count = 2
    while count < 2 * len(rows):
        groups = _groups(found, rows, min(count, len(rows)), templates)
        own = [_parts(group, room) for group in groups]
        if all(each is not None for each in own):
            return [
                piece
                for number, (group, each) in enumerate(zip(groups, own, strict=True), start=1)
                for piece in _slices(group, each or {}, f"rows {number} of {len(groups)}", room)
            ]
        count *= 2
    raise _too_large(found, room)


def number_of(parts: Sequence[Piece]) -> int:
    """Return how many pieces of a stage the distinct ones stand for."""
    return sum(part.count for part in parts)


def told(parts: Sequence[Piece]) -> tuple[str, ...]:
    """Return in how many pieces a stage was compared, as a sentence; nothing for one piece."""
    every = number_of(parts)
    if every == 1:
        return ()
    distinct = f", {len(parts)} of them distinct, each once" if len(parts) < every else ""
    return (f"compared in {every} pieces{distinct}",)


def _parts(found: Measured, room: Room) -> Parts | None:
    """Return the fewest slices, by axis, of which each fits; None if none fit.

    The axis is halved, again and again, that leaves least.
    """
    units = _units(found)
    least = _least(found)
    parts: dict[int, int] = {}
    while _needed(found, parts, room) > room.bytes:
        halved = [
            {**parts, number: more}
            for number, unit in units.items()
            if (more := min(2 * parts.get(number, 1), unit // least[number])) > parts.get(number, 1)
        ]
        if not halved or _count(parts) > MOST_PIECES:
            return None
        parts = min(halved, key=lambda each: _needed(found, each, room))
    return parts


def _count(parts: Parts) -> int:
    return prod(parts.values())


def _needed(found: Measured, parts: Parts, room: Room) -> int:
    """Return the bytes that the largest slice takes."""
    largest = {n: _widths(unit, parts[n])[0] for n, unit in _units(found).items() if n in parts}
    return room.needed(_sliced(found, largest))


def _units(found: Measured) -> dict[int, int]:
    """Return the lengths of the axes of a target that both sides carry along, by their classes.

    The condition is that of reduced sizes: no operator mixes, cuts, counts or moves their places.
    """
    symbolic = found.symbolic
    nodes = (
        node
        for target in found.stage.targets
        for node in symbolic.reference.values[target.cut.reference].dims
    )
    return {
        symbolic.system.number_of(node): symbolic.system.class_of(node).unit
        for node in nodes
        if symbolic.system.is_batch(node)
    }


def _least(found: Measured) -> dict[int, int]:
    """Return the least width of a slice along the axes that can be sliced, by their classes.

    If a value has several axes of one class, some of its elements have a place of their own on
    each, and a slice has such elements, too.
    """
    together = found.symbolic.axes_together()
    return {number: max(LEAST, together.get(number, 0)) for number in _units(found)}


def _widths(unit: int, count: int) -> list[int]:
    """Return the widths of ``count`` slices of a unit, the largest first; they differ by 1."""
    return [unit // count + (number < unit % count) for number in range(count)]


def _sliced(found: Measured, widths: Parts) -> Measured:
    """Return a slice of a stage, with so many places of every unit of some classes."""
    units = _units(found)
    scales = {n: Scale(units[n], width) for n, width in widths.items() if width < units[n]}
    return replace(found, base=Sizes(found.symbolic.system, scales)) if scales else found


def _slices(found: Measured, parts: Parts, name: str, room: Room) -> Iterator[Piece]:
    """Yield the distinct slices of a stage, or of a group of its rows that has a ``name``.

    A slice is nothing but its widths: places along these axes are all treated equally.
    """
    units = _units(found)
    widths = [Counter(_widths(units[number], count)) for number, count in parts.items()]
    place = 1
    for chosen in product(*(each.items() for each in widths)):
        own = _sliced(found, {n: width for n, (width, _) in zip(parts, chosen, strict=True)})
        count = prod(many for _, many in chosen)
        said = f"slice {place} of {_count(parts)}" if parts else ""
        yield Piece(own, ", ".join(filter(None, (name, said))), room.demand(own), count)
        place += count


def _rows(stage: Stage) -> Codes:
    """Return a coordinate code of every compared row; none if rows are not compared one by one."""
    if len(stage.targets) != 1 or stage.targets[0].cut.groups is not None:
        return np.zeros(0, dtype=np.int64)
    return compared_rows(stage.targets[0], stage.parallel)[2]


def _groups(
    found: Measured, rows: Codes, count: int, templates: Templates | None
) -> list[Measured]:
    """Return the stage for each of ``count`` groups of its compared rows."""
    return [_with_rows(found, rows[own], templates) for own in _split(len(rows), count)]


def _split(total: int, count: int) -> list[Codes]:
    return np.array_split(np.arange(total, dtype=np.int64), count)


def _with_rows(found: Measured, codes: Codes, templates: Templates | None) -> Measured:
    """Return the stage of some compared rows, with what computes them."""
    stage = found.stage
    whole = stage.targets[0]
    target = replace(whole, where=near(whole.cut.lattice.mask(codes), whole.home))
    rows = compared_rows(target, stage.parallel)[0][0]
    parallel = pruned_to(stage.parallel, {target.cut.value: rows})
    part = stage.with_parallel(parallel, targets=(target,))
    symbolic = symbolic_pair(part.reference, part.parallel, part.all_cuts(), templates)
    return Measured(part, symbolic, found.kept)


def _too_large(found: Measured, room: Room) -> BudgetError:
    """Return the error of a stage that cannot be taken apart any further."""
    units = _units(found)
    least = {n: least for n, least in _least(found).items() if units[n] > least}
    needed = room.needed(_sliced(found, least))
    target = found.stage.targets[0]
    name = target.name or found.stage.parallel.graph.values[target.cut.value].name
    axes = "its smallest slices" if least else "it has no axis that can be sliced, and"
    return BudgetError(
        f"the stage of {name!r} at full shapes: {axes} "
        f"need{'' if least else 's'} about {-(-needed >> 20)} MiB for {TOGETHER} draws, more than "
        f"--max-memory allows ({room.bytes >> 20} MiB); give --max-memory "
        f"{-(-needed >> 20)}MiB, or check a smaller batch"
    )
