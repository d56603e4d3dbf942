"""Draws of dropout by which ranks mean a part of the reference's draw, given their places in it.

A plan may say that its ranks draw the masks of the elements that they hold (attribute ``own``). The
reference's mask is then taken to be theirs, put together. Which part a rank draws is looked up:
both plans are run with nothing dropped, and what a rank's mask meets is found in what the
reference's meets. Nothing rests on that: whatever is looked up, the numbers of one state of a
generator stay the same wherever they are used, and those of two states are never the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pitcheck.base.options import Options
from pitcheck.claims.problem import Problem
from pitcheck.graph.graph import Graph, Node, Source, sources_of
from pitcheck.ops.registry import operator_kind
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Attribute, Operator, Plan, Table
from pitcheck.refute.whole_run import run_full
from pitcheck.stage.batch import Batch

OWN = "own"
"""The attribute of draws whose places are looked up: the axes along which ranks may draw the same.
A draw that has its place has True: numbers that are not the reference's are other ones.
"""
BY_ORDER = "by order"
"""The value instead if several places fit: the draw has the first of them, and may mean another."""
PARTS = frozenset({"offset", "start", "whole"})
"""The attributes of a draw that say which numbers of a stream it takes."""
TRIALS = (0, 4)
"""The draws of the inputs in which values are looked up; the second has other integers."""
ROUNDED = 1e-6
"""The relative difference up to which two float64 values are taken for the same."""

Shape = tuple[int, ...]
Score = tuple[int, int]
"""How well a place fits: by what a mask meets first, and by the rest."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Place:
    """A part of the reference's draw of ``stream``; with an ``offset`` no number is one of it.

    ``by_order``: several draws of the reference fit, of which it is the first that is left.
    """

    stream: str
    start: Shape
    size: Shape
    whole: Shape
    offset: int = 0
    by_order: bool = False

    @property
    def is_inside(self) -> bool:
        """Return True if the part lies within the whole."""
        ends = (s + n for s, n in zip(self.start, self.size, strict=True))
        return all(end <= size for end, size in zip(ends, self.whole, strict=True))

    def overlaps(self, other: Place) -> bool:
        """Return True if some elements are in both parts."""
        return self.stream == other.stream and all(
            a < b + m and b < a + n
            for a, n, b, m in zip(self.start, self.size, other.start, other.size, strict=True)
        )

    def __str__(self) -> str:
        spelled = (f"{a}:{a + n}" for a, n in zip(self.start, self.size, strict=True))
        return f"[{', '.join(spelled)}]"


@dataclass(frozen=True)
class Drawn:
    """A draw at one coordinate, and the tensors that its mask meets: (trials, *their shape)."""

    operator: str
    stream: str
    probability: str
    code: int
    rank: int
    size: Shape
    source: str
    meets: tuple[Floats, ...]


@dataclass(frozen=True)
class Misuse:
    """A draw that cannot be what is meant, and the one before that it does not go with.

    ``same``: both draw the same numbers, for different elements. Else they draw different numbers
    for the same elements. ``part`` is that of the reference's mask which ``drawn`` should be.
    """

    drawn: Drawn
    before: Drawn
    part: Place
    same: bool


@dataclass(frozen=True)
class Placed:
    """A plan whose own draws have their places, the misuses, and the plan without these."""

    plan: Plan
    misuses: Sequence[Misuse]
    meant: Plan


def drops_alike(reference: Plan, parallel: Plan) -> bool:
    """Return True if the lines that draw masks in the parallel plan do so in the reference.

    A mask of the same line and probability means the same on both sides.
    """
    lines = [
        {(o.source, str(o.attributes["probability"])) for o in plan.operators if _drops(o.kind)}
        for plan in (reference, parallel)
    ]
    return bool(lines[1]) and lines[1] <= lines[0] and all(source for source, _ in lines[1])


def without_drops(plan: Plan) -> Plan:
    """Return a plan in which no draw drops anything, but what is kept is scaled as before."""
    kept = (
        msgspec.structs.replace(o, attributes={**o.attributes, "probability": "0"})
        if _drops(o.kind)
        else o
        for o in plan.operators
    )
    return msgspec.structs.replace(plan, operators=tuple(kept))


def _drops(kind: str) -> bool:
    said = operator_kind(kind)
    return said.random and "probability" in said.attributes


def has_own_draws(plan: Plan) -> bool:
    """Return True if the places of some draws are to be looked up."""
    return any(isinstance(o.attributes.get(OWN), tuple) for o in plan.operators)


def with_places(reference: Plan, parallel: Plan, seed: int, options: Options) -> Placed:
    """Return a parallel plan whose own draws have their places in the reference's.

    A draw keeps its own numbers if nothing that it meets is found in the reference. If both plans
    differ even with nothing dropped, it has a place beside that of a like draw on its rank.

    Raises:
        BudgetError: the run needs more memory than the options allow.
        StepError, PlanError, UnsupportedError: an operator cannot be evaluated.
    """
    kept = without_drops(reference), without_drops(parallel)
    problem = Problem.of(*kept, options=options, seed=seed)
    run = run_full(problem, TRIALS)
    wanted = _draws(reference, run.stage.reference, run.evaluated.reference, 0)
    places = _Places(wanted, Coordinates.of(parallel), _alike(parallel), bool(run.suspects()))
    for code in range(problem.parallel.codes):
        places.find(_draws(parallel, run.stage.parallel, run.evaluated.parallel, code))
    said = msgspec.structs.replace(
        parallel, assumptions=(*parallel.assumptions, *places.sentences())
    )
    return Placed(
        _with(said, places, places.found), places.misuses, _with(said, places, places.meant)
    )


def _alike(plan: Plan) -> tuple[str, ...]:
    """Return the axes along which ranks may draw the same."""
    said = [o.attributes.get(OWN) for o in plan.operators]
    axes = (axis for axes in said if isinstance(axes, tuple) for axis in axes)
    return tuple(dict.fromkeys(map(str, axes)))


# --- what masks meet


def _draws(plan: Plan, batch: Batch, values: Mapping[int, Any], code: int) -> list[Drawn]:
    """Return what a plan draws at a coordinate, in order; ``values`` are those of a run."""
    graph, found = batch.graph, []
    chances = {o.id: o.attributes["probability"] for o in plan.operators if _drops(o.kind)}
    readers = _readers(graph)
    for number in graph.order:
        node = graph.nodes[number]
        mask = node.outputs[0] if node.outputs else None
        if mask is None or not (_drops(node.kind) and node.mask[code]):
            continue
        if not PARTS.isdisjoint(node.attributes):
            continue  # which numbers of a stream it takes is stated
        size = graph.values[mask].shape
        held = (_numbers(batch, values, v, code) for v in _meets(graph, readers, mask, code))
        meets = tuple(each for each in held if each is not None and _fits(size, each.shape[1:]))
        stream = str(node.attributes["stream"])
        chance = str(chances[node.operator])
        rank, _ = graph.place(code)
        found.append(Drawn(node.operator, stream, chance, code, rank, size, node.source, meets))
    return found


def _readers(graph: Graph) -> dict[int, list[Node]]:
    """Return the nodes that read each value, in their order."""
    readers = defaultdict[int, list[Node]](list)
    for number in graph.order:
        node = graph.nodes[number]
        for value in {s.value for operand in node.inputs for s in sources_of(operand)}:
            readers[value].append(node)
    return readers


def _meets(
    graph: Graph, readers: Mapping[int, Sequence[Node]], value: int, code: int
) -> Iterator[int]:
    """Yield the values that a mask meets element by element.

    On the way it is only cast, scaled and passed on, in its shape.
    """
    for node in readers.get(value, ()):
        sources = [operand for operand in node.inputs if isinstance(operand, Source)]
        said = operator_kind(node.kind)
        in_place = said.in_place or said.copies
        if not (node.mask[code] and in_place) or any(s.read is not None for s in sources):
            continue
        others = [source.value for source in sources if source.value != value]
        yield from others
        outputs = [output for output in node.outputs if output is not None]
        if not others and [graph.values[o].shape for o in outputs] == [graph.values[value].shape]:
            yield from _meets(graph, readers, outputs[0], code)


def _numbers(batch: Batch, values: Mapping[int, Any], value: int, code: int) -> Floats | None:
    """Return the numbers of a value at a coordinate, shape (trials, *shape); None without any."""
    if value not in values or value not in batch.grids or values[value].kind != "field":
        return None
    row, data = int(batch.rows[value][code]), np.asarray(values[value].data)[0]
    if row < 0:
        return None
    held: Floats = data[:, row if data.shape[1] > 1 else 0]
    return np.broadcast_to(held, (len(TRIALS), *batch.shape(value)))


def _fits(mask: Shape, held: Shape) -> bool:
    """Return True if a mask meets each element of a tensor: it may be repeated along dimensions."""
    return len(mask) == len(held) and all(m in (1, n) for m, n in zip(mask, held, strict=True))


# --- where they lie in the reference


@dataclass
class _Places:
    """The places of draws, found one after the other.

    ``found`` and ``meant`` have them by operator and coordinate, ``owners`` what was placed first.
    """

    wanted: Sequence[Drawn]
    coordinates: Coordinates
    alike: tuple[str, ...]
    differ: bool
    found: dict[tuple[str, int], Place] = field(default_factory=dict)
    meant: dict[tuple[str, int], Place] = field(default_factory=dict)
    owners: list[tuple[Place, Drawn]] = field(default_factory=list)
    misuses: list[Misuse] = field(default_factory=list)

    @cached_property
    def _copies(self) -> list[int]:
        """Return by code which copy of a state it has, of those that may draw the same."""
        return list(map(int, self.coordinates.row_major(self.alike).reshape(-1)))

    @cached_property
    def given_away(self) -> frozenset[str]:
        """Return the streams of the reference of which parts have a place."""
        return frozenset(place.stream for place, _ in self.owners)

    def find(self, draws: Sequence[Drawn]) -> None:
        """Note the places of draws, of those that have one.

        A draw that is not found has the place of its state, as one that is computed again may.
        """
        for drawn in draws:
            place = self._place(drawn)
            if place is not None:
                self.found[drawn.operator, drawn.code] = place
        for drawn in draws:
            at, of_state = (drawn.operator, drawn.code), self._of_state(drawn)
            if at not in self.found and of_state:
                self.found[at] = of_state[0][0]
        self.meant = {**self.found, **self.meant}

    def _of_state(self, drawn: Drawn) -> list[tuple[Place, Drawn]]:
        """Return the places of the state of a draw, and what was drawn there first."""
        return [
            (place, before)
            for place, before in self.owners
            if before.stream == drawn.stream
            and self._copies[before.code] == self._copies[drawn.code]
        ]

    def _place(self, drawn: Drawn) -> Place | None:
        """Return the place of a draw among those that hold what it meets.

        A state that has a place keeps it: used for other elements, its numbers are still the same.
        A part that another state has is not given away again: these numbers are other ones.
        """
        fitting = self._fitting(drawn)
        for place, before in self.owners:
            plain = replace(place, offset=0, by_order=False)
            if before.stream == drawn.stream and plain in fitting:
                return place
        sure = [p for p in fitting if sum(p.stream == other.stream for other in fitting) == 1]
        if not fitting and self.differ:
            sure = self._beside(drawn)
        if not sure:
            return None
        if len(sure) == 1:
            self.meant[drawn.operator, drawn.code] = sure[0]
        of_state = self._of_state(drawn)
        if of_state:
            place, before = of_state[0]
            self.misuses.append(Misuse(drawn, before, sure[0], same=True))
            return place
        left = [p for p in sure if not any(p.overlaps(other) for other, _ in self.owners)]
        if left:
            self.owners.append((replace(left[0], by_order=len(sure) > 1), drawn))
            return self.owners[-1][0]
        first = sure[0]
        before = next(d for p, d in self.owners if p.overlaps(first))
        self.misuses.append(Misuse(drawn, before, first, same=False))
        place = replace(first, offset=prod(first.whole) * (len(self.owners) + 1))
        self.owners.append((place, drawn))
        return place

    def _fitting(self, drawn: Drawn) -> list[Place]:
        """Return the places where most of what a draw meets is found."""
        scores: dict[Place, Score] = {}
        for whole in self.wanted:
            for place, score in _parts_of(drawn, whole).items():
                scores[place] = max(score, scores.get(place, (0, 0)))
        return [place for place, score in scores.items() if score == max(scores.values())]

    def _beside(self, drawn: Drawn) -> list[Place]:
        """Return parts that are left, as a rank draws the same share of another mask."""
        like = [place for (_, code), place in self.found.items() if code == drawn.code]
        beside = (_same_share(place, drawn, whole) for whole in self.wanted for place in like)
        return [
            place
            for place in beside
            if place is not None and not any(place.overlaps(other) for other, _ in self.owners)
        ]

    def sentences(self) -> list[str]:
        """Return what is assumed of the reference's masks."""
        given = {place.stream for place in self.found.values()}
        sources = list({w.stream: w.source for w in self.wanted if w.stream in given}.values())
        if not sources:
            return []
        more = f", and {len(sources) - 1} more," if len(sources) > 1 else ""
        alike = f"; ranks along {', '.join(self.alike)} may draw the same" if self.alike else ""
        return [
            f"the reference's mask of dropout at {sources[0]}{more} consists of those that ranks "
            f"draw for their elements{alike}"
        ]


def _same_share(place: Place, drawn: Drawn, whole: Drawn) -> Place | None:
    """Return the part of a draw of the reference that is the same share of it; None if none is."""
    if not len(place.size) == len(drawn.size) == len(whole.size):
        return None
    dims = list(zip(place.start, place.size, place.whole, drawn.size, whole.size, strict=True))
    if any(w * n != full * size or s * n % size for s, size, w, n, full in dims):
        return None
    start = tuple(s * n // size for s, size, _, n, _ in dims)
    return Place(whole.stream, start, drawn.size, whole.size)


def _parts_of(drawn: Drawn, whole: Drawn) -> dict[Place, Score]:
    """Return the parts of the reference's draw that a draw may be, by what both meet.

    What a mask meets first says most.
    """
    if len(drawn.size) != len(whole.size) or _complementary(drawn.probability, whole.probability):
        return {}
    found: dict[Place, Score] = {}
    for number, part in enumerate(drawn.meets):
        scores: dict[Shape, int] = {}
        for start, score in (each for held in whole.meets for each in _found(part, held)):
            at = tuple(0 if n == 1 else s for s, n in zip(start, whole.size, strict=True))
            scores[at] = max(score, scores.get(at, 0))
        for at, score in scores.items():
            place = Place(whole.stream, at, drawn.size, whole.size)
            first, others = found.get(place, (0, 0))
            found[place] = (first, others + score) if number else (score, others)
    return {place: score for place, score in found.items() if place.is_inside}


def _complementary(first: str, second: str) -> bool:
    """Return True if one mask may be meant to be false where the other one is true."""
    return first != second and Fraction(first) + Fraction(second) == 1


def _found(part: Floats, held: Floats) -> Iterator[tuple[Shape, int]]:
    """Yield where a tensor lies in another one, and 2; with a factor that is not 1, and 1.

    Ranks hold equal stretches, but for the last.
    """
    sizes = list(zip(part.shape[1:], held.shape[1:], strict=True))
    if any(n > w or not n for n, w in sizes):
        return
    largest = np.unravel_index(np.abs(part).argmax(), part.shape)
    for start in product(*(sorted({*range(0, w - n + 1, n), w - n}) for n, w in sizes)):
        there = held[
            (slice(None), *(slice(s, s + n) for s, (n, _) in zip(start, sizes, strict=True)))
        ]
        with np.errstate(all="ignore"):
            factor = part[largest] / there[largest]
            scaled = there * factor
        if np.isfinite(factor) and factor and np.isclose(part, scaled, rtol=ROUNDED, atol=0).all():
            yield start, 2 if abs(factor - 1) < ROUNDED else 1


# --- the plan


def _with(plan: Plan, places: _Places, found: Mapping[tuple[str, int], Place]) -> Plan:
    """Return a plan whose own draws have places."""
    shapes = {tensor.name: tensor.shape for tensor in plan.tensors}
    operators = (
        _placed(o, places, found if OWN in o.attributes else {}, shapes[o.outputs[0]])
        if operator_kind(o.kind).random
        else o
        for o in plan.operators
    )
    return msgspec.structs.replace(plan, operators=tuple(operators))


def _placed(
    operator: Operator, places: _Places, found: Mapping[tuple[str, int], Place], size: Shape
) -> Operator:
    """Return a draw with its places, at all coordinates at which it runs."""
    coordinates = places.coordinates
    streams = _by_code(operator.attributes["stream"], coordinates)
    runs = np.flatnonzero(coordinates.mask(operator.where).reshape(-1)).tolist()
    at = {code: found.get((operator.id, code)) for code in runs}
    if not any(at.values()):
        # It may not have a name by which others have their places.
        own = {s: f"{OWN} {s}" if s in places.given_away else s for s in streams}
        stream = _table([own[s] for s in streams], coordinates)
        kept = {k: v for k, v in operator.attributes.items() if k != OWN}
        return msgspec.structs.replace(operator, attributes={**kept, "stream": stream})
    nowhere = (0,) * len(size)
    by_code = [
        at.get(code) or Place(f"{OWN} {streams[code]}", nowhere, size, size)
        for code in range(len(streams))
    ]
    changed: dict[str, Any] = {
        "stream": _table([place.stream for place in by_code], coordinates),
        OWN: BY_ORDER if any(place.by_order for place in by_code) else True,
    }
    if any((place.start, place.whole) != (nowhere, size) for place in by_code):
        changed["start"] = _table([place.start for place in by_code], coordinates)
        changed["whole"] = _table([place.whole for place in by_code], coordinates)
    if any(place.offset for place in by_code):
        changed["offset"] = _table([place.offset for place in by_code], coordinates)
    return msgspec.structs.replace(operator, attributes={**operator.attributes, **changed})


def _by_code(attribute: Attribute, coordinates: Coordinates) -> list[Any]:
    """Return an attribute at every coordinate code."""
    if not isinstance(attribute, Table):
        return [attribute] * (coordinates.ranks * coordinates.microbatches)
    positions, values = coordinates.table(attribute)
    return [values[position] for position in positions.reshape(-1)]


def _table(values: Sequence[Any], coordinates: Coordinates) -> Any:
    """Return an attribute from its value at every coordinate code."""
    same = all(value == values[0] for value in values)
    return values[0] if same else Table(tuple(coordinates.extents), tuple(values))
