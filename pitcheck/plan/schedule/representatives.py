"""Representatives: a few coordinates of every mesh axis that stand for all equivalent ones.

Two coordinates of an axis are equivalent if exchanging them is a symmetry of the plan. It must
change nothing that says what a rank runs, in which order, and whom it meets. No box, and no table
of an operator that communicates, tells them apart. No send, receive or rank list leads from one of
them to another coordinate, and neither is that of a root. Two coordinates of a class are kept;
``docs/mathematics.md`` says why they decide for all.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from pitcheck.errors import PlanError
from pitcheck.plan.collective_roots import has_root, root_places
from pitcheck.plan.coordinates import Coordinates, places_of
from pitcheck.plan.model import (
    MICROBATCH_AXIS,
    Attribute,
    Axis,
    Box,
    Group,
    Operator,
    Plan,
    Table,
    attribute_values,
)
from pitcheck.plan.rules.name_rules import table_error
from pitcheck.plan.schedule.events import refined, row_numbers
from pitcheck.plan.schedule.run_order import PAIRED, Ints, Mask, is_event

KEPT = 2
"""The number of coordinates of a class that are kept. A group over the axis stays one of several
ranks, and different groups stay different.
"""


@dataclass(frozen=True)
class Representatives:
    """The ranks of a plan that stand for all of them.

    ``plan`` is the plan on the kept ranks. ``kept`` has per mesh axis the coordinates kept,
    ascending; ``of`` the place in ``kept`` of the one that stands for each coordinate.
    """

    plan: Plan
    kept: tuple[Ints, ...]
    of: tuple[Ints, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the mesh axes of the kept ranks."""
        return tuple(len(kept) for kept in self.kept)

    @cached_property
    def of_rank(self) -> Ints:
        """The number of the kept rank that stands for each rank, shape (ranks,)."""
        ranks: Ints = (
            np.ravel_multi_index(np.ix_(*self.of), self.shape).reshape(-1).astype(np.int64)
        )
        return ranks

    def spread(self, grid: NDArray[Any]) -> NDArray[Any]:
        """Return an array over the axes of all ranks from one over those of the kept ranks.

        There may be more dimensions. The result has size 1 along an axis of one class.
        """
        for axis, of in enumerate(self.of):
            grid = np.take(grid, of if of.any() else [0], axis=axis)
        return grid

    def met_along(self, axis: int, met: Ints) -> Ints:
        """Return the coordinate along ``axis`` that every coordinate along it meets (-1: none).

        ``met`` has those that the kept ones meet.
        """
        of = self.of[axis]
        found = met[of]
        # A coordinate that stands for others meets itself: no meeting leads from one coordinate
        # of a class to another.
        return np.where(
            found < 0,
            -1,
            np.where(found == of, np.arange(len(of)), self.kept[axis][np.maximum(found, 0)]),
        )

    def met_rank(self, ranks: Ints, met: Ints) -> Ints:
        """Return the rank that each of ``ranks`` meets.

        The rank that stands for it meets the kept rank ``met`` (-1: none). Arrays broadcast.
        """
        own = places_of(ranks, tuple(len(of) for of in self.of))
        theirs = places_of(np.maximum(met, 0), self.shape)
        places = [
            np.where(of[a] == b, a, kept[b])
            for a, b, of, kept in zip(own, theirs, self.of, self.kept, strict=True)
        ]
        found: Ints = np.ravel_multi_index(
            np.broadcast_arrays(*places), tuple(len(of) for of in self.of)
        ).astype(np.int64)
        return np.where(met < 0, -1, found)


def everyone(plan: Plan) -> Representatives:
    """Return every rank as its only representative."""
    all_of_them = tuple(np.arange(axis.size) for axis in plan.mesh)
    return Representatives(plan, all_of_them, all_of_them)


def representatives(plan: Plan) -> Representatives | None:
    """Return the representatives of a plan's ranks.

    Return None if they would be all of them, or if something does not fit the mesh, which the rules
    report.
    """
    if all(axis.size <= KEPT for axis in plan.mesh):
        return None
    try:
        labels = _Classes(plan).find()
    except PlanError:
        return None
    kept = tuple(_kept(own) for own in labels)
    if all(len(few) == len(own) for few, own in zip(kept, labels, strict=True)):
        return None
    of = tuple(_standing(own, few) for own, few in zip(labels, kept, strict=True))
    return Representatives(_Restriction(plan, kept).plan(), kept, of)


def _kept(labels: Ints) -> Ints:
    """Return the first coordinates of every class, ascending."""
    return np.sort(
        np.concatenate([np.flatnonzero(labels == label)[:KEPT] for label in np.unique(labels)])
    )


def _standing(labels: Ints, kept: Ints) -> Ints:
    """Return for every coordinate the place in ``kept`` of the one that stands for it.

    That is itself, or the first of its class.
    """
    first = {int(label): at for at, label in reversed(list(enumerate(labels[kept].tolist())))}
    result = np.array([first[label] for label in labels.tolist()], dtype=np.int64)
    result[kept] = np.arange(len(kept))
    return result


class _Classes:
    """The classes of coordinates of every mesh axis.

    ``labels`` per axis are equal for equivalent coordinates.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.coordinates = Coordinates.of(plan)
        self.sizes = self.coordinates.shape
        self.labels: list[Ints] = [np.zeros(axis.size, dtype=np.int64) for axis in plan.mesh]
        self._seen: set[Hashable] = set()
        self._sent: dict[Hashable, tuple[Attribute, list[Mask]]] = {}
        """Peers, each with the places of all sends and receives that have them."""

    def find(self) -> list[Ints]:
        """Return the labels, once nothing tells equal ones apart.

        Raises:
            PlanError: if something does not fit the mesh.
        """
        for operator in self.plan.operators:
            self._boxes(operator.where)
            if is_event(operator):
                self._event(operator)
        for program in self.plan.programs:
            self._boxes(program.where)
        for peer, masks in self._sent.values():
            self._peers(peer, np.logical_or.reduce(np.broadcast_arrays(*masks)))
        return self.labels

    def _first_time(self, *key: Hashable) -> bool:
        """Return True if something has not been looked at before.

        Objects are known by their identity: the plan keeps them.
        """
        new = key not in self._seen
        self._seen.add(key)
        return new

    def _split(self, axis: int, numbers: Ints) -> None:
        if axis < len(self.labels):
            self.labels[axis] = refined(self.labels[axis], numbers)

    def _alone(self, axis: int, places: Ints) -> None:
        """Make coordinates stand for themselves only."""
        numbers = np.full(self.sizes[axis], -1, dtype=np.int64)
        numbers[places] = places
        self._split(axis, numbers)

    def _boxes(self, where: tuple[Box, ...]) -> None:
        if not where or not self._first_time("where", id(where)):
            return
        for box in where:
            for axis, values in box.items():
                if self._first_time(axis, values):
                    dimension = self.coordinates.dimension(axis, "where")
                    inside = np.isin(np.arange(self.sizes[dimension]), values)
                    if int(inside.sum()) != len(set(values)):
                        raise PlanError(f"a value is outside axis {axis!r}", "where")
                    self._split(dimension, inside.astype(np.int64))

    def _event(self, operator: Operator) -> None:
        for name, value in operator.attributes.items():
            if isinstance(value, Table) and name != "peer" and self._first_time("table", id(value)):
                self._table(value)
        if operator.kind in PAIRED:
            peer = operator.attributes.get("peer")
            key = peer if type(peer) is int else (id(peer),)
            if self._first_time("peer", key, id(operator.where)):
                self._sent.setdefault(key, (peer, []))[1].append(
                    self.coordinates.mask_grid(operator.where)
                )
        group = operator.group
        if group is not None and has_root(operator) and "root" in operator.attributes:
            self._root(group, operator.attributes["root"])
        if group is not None and self._first_time(
            "group", group.axes, id(group.ranks) if group.ranks else ()
        ):
            if set(group.axes) - set(self.coordinates.sizes):
                raise PlanError("a group over an unknown axis", "group")
            if group.ranks:
                self._lists(group)

    def _root(self, group: Group, root: Attribute) -> None:
        """Make coordinates of roots stand for themselves only.

        A root reads data that the others do not read, or has data that they do not have. In a rank
        list every member stands for itself.
        """
        if group.ranks or not self._first_time(
            "root", group.axes, id(root) if isinstance(root, Table) else (type(root), root)
        ):
            return
        axes, sizes = axes_of(self.plan.mesh, group)
        roots = np.array(root_places(root), dtype=np.int64)
        if ((roots < 0) | (roots >= prod(sizes))).any():
            raise PlanError("a root is no place in its group", "attributes.root")
        for axis, places in zip(axes, places_of(roots, sizes), strict=True):
            self._alone(axis, np.unique(places))

    def _table(self, table: Table) -> None:
        known: dict[str, int] = {}
        numbers = np.array(
            [known.setdefault(repr(value), len(known)) for value in table.values], dtype=np.int64
        )
        grid = self._over(table, numbers)
        for dimension in range(len(self.labels)):
            if grid.shape[dimension] > 1:
                self._split(dimension, row_numbers(_rows(grid, dimension)))

    def _over(self, table: Table, values: Ints) -> Ints:
        """Return the values of a table as an array over all axes, of size 1 along absent ones."""
        message = table_error(table, self.coordinates)
        if message:
            raise PlanError(message, "table")
        grid: Ints = values[self.coordinates.row_major_grid(table.over)]
        return grid

    # --- who meets whom

    def _peers(self, peer: Attribute, mask: Mask) -> None:
        values = [value for value in attribute_values(peer) if type(value) is int]
        if len(values) < len(attribute_values(peer)) or not (
            0 <= min(values) <= max(values) < self.coordinates.ranks
        ):
            raise PlanError("a peer is no rank", "peer")
        numbers = np.array(values, dtype=np.int64)
        grid = (
            self._over(peer, numbers)
            if isinstance(peer, Table)
            else numbers.reshape((1,) * len(self.sizes))
        )
        shape = (*self.sizes[:-1], max(grid.shape[-1], mask.shape[-1]))
        # A table may say anything at coordinates at which nothing is sent or received.
        here = np.broadcast_to(mask, shape)
        met = places_of(np.broadcast_to(grid, shape), self.sizes[:-1])
        for axis, places in enumerate(met):
            own = np.arange(self.sizes[axis]).reshape(
                [-1 if d == axis else 1 for d in range(len(shape))]
            )
            leaves = here & (places != own)
            self._alone(
                axis, np.union1d(np.flatnonzero(_rows(leaves, axis).any(axis=1)), places[leaves])
            )
        for axis in range(len(met)):
            # The place met along other axes must not depend on the coordinate along this one.
            others = np.ravel_multi_index(
                [places * 0 if a == axis else places for a, places in enumerate(met)],
                self.sizes[:-1],
            )
            self._split(axis, row_numbers(_rows(np.where(here, others, -1), axis)))

    def _lists(self, group: Group) -> None:
        """Split coordinates by rank lists.

        Coordinates to which a list crosses over stand for themselves. Others are equivalent if the
        lists among them are.
        """
        shape = self.sizes[:-1]
        if not all(group.ranks):
            raise PlanError("a rank list is empty", "group.ranks")
        self.coordinates.groups(group)
        first, slot = (
            np.full(self.coordinates.ranks, -1, dtype=np.int64),
            np.full(self.coordinates.ranks, -1, dtype=np.int64),
        )
        for members in group.ranks:
            first[list(members)] = members[0]
            slot[list(members)] = np.arange(len(members))
        own = places_of(np.arange(self.coordinates.ranks), shape)
        heads = places_of(np.maximum(first, 0), shape)
        for axis in range(len(shape)):
            crosses = (first >= 0) & (heads[axis] != own[axis])
            self._alone(axis, np.union1d(own[axis][crosses], heads[axis][crosses]))
        for axis in range(len(shape)):
            others = np.ravel_multi_index(
                [h * 0 if a == axis else h for a, h in enumerate(heads)], shape
            )
            said = np.stack([np.where(first < 0, -1, others), slot], axis=-1).reshape((*shape, 2))
            self._split(axis, row_numbers(_rows(said, axis)))


def axes_of(mesh: Sequence[Axis], group: Group) -> tuple[list[int], list[int]]:
    """Return the numbers of the axes of a group, in the order of the mesh, and their sizes."""
    numbers = [number for number, axis in enumerate(mesh) if axis.name in group.axes]
    return numbers, [mesh[number].size for number in numbers]


def _rows(grid: NDArray[Any], axis: int) -> NDArray[Any]:
    """Return an array with a row per coordinate along ``axis``."""
    return np.moveaxis(grid, axis, 0).reshape(grid.shape[axis], -1)


class _Restriction:
    """A plan on some coordinates of every mesh axis.

    No box and no rank list of it tells them from those left out.
    """

    def __init__(self, plan: Plan, kept: Sequence[Ints]) -> None:
        self.whole = plan
        self.kept = {axis.name: few for axis, few in zip(plan.mesh, kept, strict=True)}
        self.sizes = tuple(axis.size for axis in plan.mesh)
        self._place = {
            axis.name: _inverse(few, axis.size) for axis, few in zip(plan.mesh, kept, strict=True)
        }
        """The number of every coordinate among the kept ones, or -1, per axis."""
        self._wheres: dict[int, tuple[Box, ...]] = {}
        self._values: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = {}
        self._tables: dict[tuple[int, bool], Table] = {}
        self._groups: dict[int, Group] = {}

    def plan(self) -> Plan:
        """Return the restricted plan."""
        mesh = tuple(Axis(name, len(few)) for name, few in self.kept.items())
        operators = tuple([self._operator(operator) for operator in self.whole.operators])
        programs = tuple(
            replace(program, where=self._where(program.where)) for program in self.whole.programs
        )
        return replace(self.whole, mesh=mesh, operators=operators, programs=programs)

    def _operator(self, operator: Operator) -> Operator:
        where = self._where(operator.where) if operator.where else operator.where
        attributes = operator.attributes
        if attributes and is_event(operator):
            attributes = {
                name: self._attribute(value, name == "peer" and operator.kind in PAIRED)
                for name, value in attributes.items()
            }
            if (
                "root" in attributes
                and has_root(operator)
                and operator.group is not None
                and not operator.group.ranks
            ):
                attributes["root"] = self._root(operator.group, attributes["root"])
        group = (
            self._group(operator.group)
            if operator.group is not None and operator.group.ranks
            else operator.group
        )
        if (
            where is operator.where
            and attributes is operator.attributes
            and group is operator.group
        ):
            return operator
        return replace(operator, where=where, attributes=attributes, group=group)

    def _where(self, where: tuple[Box, ...]) -> tuple[Box, ...]:
        known = self._wheres.get(id(where))
        if known is None:
            boxes = tuple(
                {axis: self._values_of(axis, values) for axis, values in box.items()}
                for box in where
            )
            known = self._wheres[id(where)] = where if boxes == where else boxes
        return known

    def _values_of(self, axis: str, values: tuple[int, ...]) -> tuple[int, ...]:
        if axis == MICROBATCH_AXIS:
            return values
        key = axis, values
        if key not in self._values:
            places = self._place[axis][list(values)]
            self._values[key] = tuple(places[places >= 0].tolist())
        return self._values[key]

    def _attribute(self, value: Attribute, of_ranks: bool) -> Attribute:
        if isinstance(value, Table):
            return self._table(value, of_ranks)
        return int(self._ranks(np.array(value))) if of_ranks else value

    def _root(self, group: Group, root: Attribute) -> Attribute:
        """Return a root by its place among the kept members of its group; a root is always kept."""
        axes, sizes = axes_of(self.whole.mesh, group)
        names = [self.whole.mesh[axis].name for axis in axes]
        places = [
            self._place[name][own]
            for name, own in zip(
                names, places_of(np.array(root_places(root), dtype=np.int64), sizes), strict=True
            )
        ]
        found = (
            np.ravel_multi_index(places, [len(self.kept[name]) for name in names])
            if names
            else np.zeros(len(root_places(root)), dtype=np.int64)
        )
        return Table(root.over, tuple(found.tolist())) if isinstance(root, Table) else int(found[0])

    def _table(self, table: Table, of_ranks: bool) -> Table:
        key = id(table), of_ranks
        if key not in self._tables:
            sizes = [
                self.whole.microbatches if axis == MICROBATCH_AXIS else len(self._place[axis])
                for axis in table.over
            ]
            places = np.arange(len(table.values)).reshape(sizes)
            for dimension, axis in enumerate(table.over):
                if axis != MICROBATCH_AXIS:
                    places = np.take(places, self.kept[axis], axis=dimension)
            values = tuple([table.values[place] for place in places.reshape(-1).tolist()])
            self._tables[key] = Table(
                table.over, tuple(self._ranks(np.array(values)).tolist()) if of_ranks else values
            )
        return self._tables[key]

    def _ranks(self, ranks: Ints) -> Ints:
        """Return the numbers of ranks among the kept ones; -1 for a rank that is not kept.

        -1 is no rank: no kept rank meets one that is not kept.
        """
        places = [
            place[own]
            for place, own in zip(self._place.values(), places_of(ranks, self.sizes), strict=True)
        ]
        missing = np.logical_or.reduce([place < 0 for place in places])
        found: Ints = np.ravel_multi_index(
            [np.maximum(place, 0) for place in places], [len(few) for few in self.kept.values()]
        )
        return np.where(missing, -1, found)

    def _group(self, group: Group) -> Group:
        """Return the rank lists of kept ranks.

        A list has only kept ranks or none: along every axis its members stand for themselves or are
        at one coordinate.
        """
        if id(group.ranks) not in self._groups:
            lists = [tuple(self._ranks(np.array(members)).tolist()) for members in group.ranks]
            self._groups[id(group.ranks)] = Group(
                ranks=tuple(members for members in lists if -1 not in members)
            )
        return replace(self._groups[id(group.ranks)], name=group.name)


def _inverse(kept: Ints, size: int) -> Ints:
    places = np.full(size, -1, dtype=np.int64)
    places[kept] = np.arange(len(kept))
    return places
