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
PARTS = frozenset({"offset", "start", "whole"})
"""The attributes of a draw that say which numbers of a stream it takes."""
TRIALS = (0, 4)
"""The draws of the inputs in which values are looked up; the second has other integers."""
ROUNDED = 1e-6
"""The relative difference up to which two float64 values are taken for the same."""
MOST_LOOKED_AT = 256
"""The places that are looked at for one tensor; one of few different numbers is at too many."""

Shape = tuple[int, ...]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Place:
    """A part of the reference's draw of ``stream``; with an ``offset`` no number is one of it."""

    stream: str
    start: Shape
    size: Shape
    whole: Shape
    offset: int = 0

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
        for drawn in _draws(parallel, run.stage.parallel, run.evaluated.parallel, code):
            places.find(drawn)
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
        if not node.mask[code] or any(source.read is not None for source in sources):
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

    def find(self, drawn: Drawn) -> None:
        """Note the place of a draw, if there is one."""
        parts = (_part_of(drawn, whole) for whole in self.wanted)
        fitting = list(dict.fromkeys(part for part in parts if part is not None))
        if not fitting and self.differ:
            fitting = self._beside(drawn)
        if fitting:
            at = drawn.operator, drawn.code
            self.meant[at] = self.found[at] = self._chosen(drawn, fitting)
            if len(fitting) == 1:
                self.meant[at] = fitting[0]

    def _chosen(self, drawn: Drawn, fitting: Sequence[Place]) -> Place:
        """Return the place of a draw among those that hold what it meets.

        A state that has a place keeps it: used for other elements, its numbers are still the same.
        A part that another state has is not given away again: these numbers are other ones.
        """
        of_state = [(p, d) for p, d in self.owners if d.stream == drawn.stream]
        for place, _ in of_state:
            if replace(place, offset=0) in fitting:
                return place
        for place, before in of_state:
            if self._copies[before.code] == self._copies[drawn.code]:
                self.misuses.append(Misuse(drawn, before, fitting[0], same=True))
                return place
        for place in fitting:
            if not any(place.overlaps(other) for other, _ in self.owners):
                self.owners.append((place, drawn))
                return place
        first = fitting[0]
        before = next(d for p, d in self.owners if p.overlaps(first))
        self.misuses.append(Misuse(drawn, before, first, same=False))
        place = replace(first, offset=prod(first.whole) * (len(self.owners) + 1))
        self.owners.append((place, drawn))
        return place

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


def _part_of(drawn: Drawn, whole: Drawn) -> Place | None:
    """Return the part of the reference's draw that a draw is, by what both meet; None if none."""
    if len(drawn.size) != len(whole.size) or _complementary(drawn.probability, whole.probability):
        return None
    for part in drawn.meets:
        for held in whole.meets:
            start = _start(part, held)
            if start is None:
                continue
            start = tuple(0 if n == 1 else s for s, n in zip(start, whole.size, strict=True))
            ends = (s + n for s, n in zip(start, drawn.size, strict=True))
            if all(end <= size for end, size in zip(ends, whole.size, strict=True)):
                return Place(whole.stream, start, drawn.size, whole.size)
    return None


def _complementary(first: str, second: str) -> bool:
    """Return True if one mask may be meant to be false where the other one is true."""
    return first != second and Fraction(first) + Fraction(second) == 1


def _start(part: Floats, held: Floats) -> Shape | None:
    """Return where a tensor lies in another one; None if nowhere, or at two places."""
    if any(n > w for n, w in zip(part.shape, held.shape, strict=True)):
        return None
    at = tuple(map(int, np.unravel_index(np.abs(part[0]).argmax(), part.shape[1:])))
    room = zip(at, part.shape[1:], held.shape[1:], strict=True)
    window = held[0][tuple(slice(a, a + w - n + 1) for a, n, w in room)]
    found = np.argwhere(_near(window, part[0][at]))
    hits = [
        tuple(map(int, start))
        for start in found[:MOST_LOOKED_AT]
        if _near(held[(slice(None), *map(_stretch, start, part.shape[1:]))], part).all()
    ]
    return hits[0] if len(hits) == 1 and len(found) <= MOST_LOOKED_AT else None


def _stretch(start: int, size: int) -> slice:
    return slice(start, start + size)


def _near(held: Floats, wanted: Any) -> NDArray[np.bool_]:
    near: NDArray[np.bool_] = np.isclose(held, wanted, rtol=ROUNDED, atol=0.0, equal_nan=True)
    return near


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
        OWN: True,
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
