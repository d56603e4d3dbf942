"""Fingerprints of stages: targets with one fingerprint have the same stage but for names.

A stage is so recognised without cutting it out. A fingerprint says everything that cutting out and
canonical form look at, before any coordinate is followed: the nodes around the target with their
attributes, masks and tables, the cuts at which they end with their parts, and what is known of
every value. It is finer than the canonical form (it knows ranks), so it only saves work where a
plan repeats itself, as layers do.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> problem, (target,) = (found := Problem.of(plan, plan)), found.targets()
>>> given = problem.specification.initial
>>> key, walk = Fingerprints(problem.reference, problem.parallel, given).of(target, given.get)
>>> len(walk.values), len(walk.nodes), len(walk.cuts)
(2, 1, 1)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import Graph, Node, Source, Stacked
from pitcheck.graph.grids import Home, Mask
from pitcheck.graph.reads import FromPlaces
from pitcheck.stage.batch import crosses
from pitcheck.stage.stage import Stage, Target

Key = tuple[Hashable, ...]
CutOf = Callable[[int], Cut | None]


@dataclass
class Walk:
    """The values and nodes that a walk from the target meets, in order, and what is said."""

    said: list[Hashable] = field(default_factory=list)
    values: dict[int, int] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    homes: dict[Home, int] = field(default_factory=dict)
    """The homes met, by number. Only which homes are equal matters: what lies near them is the
    same.
    """


@dataclass(frozen=True)
class Known:
    """A stage that was seen before.

    ``form``: its canonical form. By place in the walk, ``demands`` are the cuts it takes as given
    with the codes needed of them, and ``nodes`` the nodes it covers.
    """

    form: str
    demands: tuple[tuple[int, Mask], ...]
    nodes: tuple[int, ...]


class Fingerprints:
    """The fingerprints over one pair of graphs.

    Masks, tables and parts are numbered once, so that a fingerprint is a tuple of small numbers.
    """

    def __init__(self, first: Graph, second: Graph, initial: Mapping[int, Cut]) -> None:
        self.first = first
        self.second = second
        self.initial = initial
        self.known: dict[Key, Known] = {}
        self._numbers: dict[Hashable, int] = {}
        self._of: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._infos: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._cuts: dict[int, tuple[Cut, int]] = {}

    def of(self, target: Target, cut_of: CutOf) -> tuple[Key, Walk]:
        """Return the fingerprint of a target's stage, and the walk over the parallel side."""
        own = target.cut.value
        parallel = Walk()

        def ends(value: int) -> Hashable:
            if (
                self.second.values[value].tensor.value is not None
                and not self.second.values[value].writers
            ):
                return "constant"
            cut = None if value == own and self.second.values[value].writers else cut_of(value)
            if cut is None:
                return None
            parallel.cuts.append(value)
            return "cut", self._cut(cut)

        parallel.homes[target.home] = 0
        self._walk(self.second, 1, own, parallel, ends)
        numbers: dict[int, int] = {}
        for value in parallel.cuts:
            cut = cut_of(value)
            if cut is not None:
                numbers.setdefault(cut.reference, len(numbers))
                parallel.said.append(numbers[cut.reference])
        reference = Walk()

        def given(value: int) -> Hashable:
            if value in numbers:
                return "given", numbers[value]
            return None if self.first.values[value].writers else "initial"

        self._walk(self.first, 0, target.cut.reference, reference, given)
        infos = tuple(self.info(0, value) for value in numbers)
        key = (
            self._cut(target.cut),
            self._number(_said(target.where)),
            tuple(parallel.said),
            tuple(reference.said),
            infos,
        )
        return key, parallel

    def node(self, side: int, number: int) -> int:
        """Return the number of all that is known of a node, but for what it reads.

        ``side``: 0 for the first graph, 1 for the second.
        """
        found = self._of[side].get(number)
        if found is None:
            node = (self.first, self.second)[side].nodes[number]
            operands = tuple(self._operand(side, node, o) for o in node.inputs)
            attributes = repr(sorted(node.attributes.items()))
            axes = tuple(axis for axis, _ in node.home)
            found = self._of[side][number] = self._number(
                (node.kind, attributes, _said(node.near), axes, operands, len(node.outputs))
            )
        return found

    def info(self, side: int, value: int) -> int:
        """Return the number of all that is known of a value by itself; ``side`` as above."""
        found = self._infos[side].get(value)
        if found is None:
            info = (self.first, self.second)[side].values[value]
            tensor = info.tensor
            found = self._infos[side][value] = self._number(
                (info.shape, info.kind, repr(tensor.value), tensor.bounds, bool(info.writers))
            )
        return found

    def remember(
        self, key: Key, walk: Walk, stage: Stage, form: str, demanded: Sequence[tuple[int, Mask]]
    ) -> None:
        """Note what a stage is.

        Nothing is noted if cutting it out met fewer cuts than the walk: then the walk does not tell
        where the reference's side ends.
        """
        if set(stage.met) != set(walk.cuts):
            return
        demands = tuple((walk.values[value], mask) for value, mask in demanded)
        nodes = tuple(walk.nodes[step.node] for step in stage.parallel.steps)
        self.known[key] = Known(form, demands, nodes)

    def _walk(
        self, graph: Graph, side: int, start: int, walk: Walk, ends: Callable[[int], Hashable]
    ) -> None:
        """Walk back over a graph from a value to all ends, and note what is met."""
        waiting = [start]
        walk.values[start] = 0
        while waiting:
            value = waiting.pop()
            end = ends(value)
            home = graph.values[value].home
            walk.said += [
                self.info(side, value),
                end,
                walk.homes.setdefault(home, len(walk.homes)),
            ]
            if end is not None:
                continue
            for number in graph.values[value].writers:
                node = graph.nodes[number]
                walk.said.append(tuple(output == value for output in node.outputs))
                if number in walk.nodes:
                    walk.said.append(walk.nodes[number])
                    continue
                walk.nodes[number] = len(walk.nodes)
                walk.said += [
                    self.node(side, number),
                    walk.homes.setdefault(node.home, len(walk.homes)),
                ]
                for source, _ in node.reads:
                    if source.value not in walk.values:
                        walk.values[source.value] = len(walk.values)
                        waiting.append(source.value)
                    walk.said.append(walk.values[source.value])

    def _number(self, what: Hashable) -> int:
        """Return the number of something hashable."""
        return self._numbers.setdefault(what, len(self._numbers))

    def _operand(self, side: int, node: Node, operand: object) -> Hashable:
        """Return all that is known of how a node reads an operand."""
        if isinstance(operand, Source):
            return self._source(side, node, operand)
        if isinstance(operand, Stacked):
            return tuple(self._source(side, node, member) for member in operand.members)
        return repr(operand)

    def _source(self, side: int, node: Node, source: Source) -> Hashable:
        """Return how a node reads a value.

        Where the node is belongs to it if the node reads across homes, or if it reads more than
        what is near its home.
        """
        info = (self.first, self.second)[side].values[source.value]
        if info.writers:
            if isinstance(source.read, FromPlaces) and self._is_across(
                source.read, node.home, info.home
            ):
                return "across", source.read.axis
            elsewhere = info.home != node.home
        else:
            cut = self.initial.get(source.value)
            elsewhere = cut is not None and any(cut.grid.shape[axis] > 1 for axis, _ in node.home)
        return source.key, (node.home, info.home) if node.home and (
            elsewhere or crosses(source, node.home)
        ) else ()

    def _is_across(self, read: FromPlaces, here: Home, there: Home) -> bool:
        """Return True if a read goes from one home to the other, wherever these are."""
        return there == tuple(
            (axis, read.places[place] if axis == read.axis else place) for axis, place in here
        ) and any(a == read.axis for a, _ in here)

    def _cut(self, cut: Cut) -> int:
        """Return the number of what a cut says."""
        kept = self._cuts.get(id(cut))
        if kept is None:
            group = None if cut.groups is None else _said(cut.groups)
            # The cut is kept beside its number, so that no other one can take its place in memory.
            kept = self._cuts[id(cut)] = (
                cut,
                self._number((cut.parts.digest, cut.scale, _said(cut.grid), group)),
            )
        return kept[1]


def _said(grid: NDArray[Any]) -> Hashable:
    """Return the contents of an array as something hashable."""
    return grid.shape, grid.tobytes()


def places(walk: Walk) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Return (values by place, nodes by place) of a walk."""
    return {place: value for value, place in walk.values.items()}, {
        place: node for node, place in walk.nodes.items()
    }
