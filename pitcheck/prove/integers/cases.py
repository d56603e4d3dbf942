"""Directed draws of integers: every outcome of what is computed from one of them.

A decision by one computed integer (31·i = 38254) may change at numbers that no draw meets. So
everything that is computed from one element alone is evaluated at all values that the element can
have. A value of each class of outcomes is then held by each element in some draw.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shaped_stage import shape_reduced
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> shaped = shape_reduced(Problem.of(plan, plan).whole_stage())
>>> with_cases(shaped).shaped is shaped
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.value import Value
from pitcheck.errors import PitcheckError
from pitcheck.prove.integers.classes import Table, representatives
from pitcheck.prove.integers.cone import Cone, discrete_cone
from pitcheck.prove.integers.sourced import (
    COMPUTED,
    FOREIGN,
    MANY,
    Codes,
    SourcedAlgebra,
    codes_of,
    element_of,
    is_hard,
)
from pitcheck.prove.integers.tested import Tested
from pitcheck.prove.integers.unvaried import Found, with_unvaried
from pitcheck.stage.drawn_inputs import draw
from pitcheck.stage.inputs import Fresh
from pitcheck.stage.shaped_stage import ShapedStage

MOST_VALUES = 1 << 21
"""The values of an integer up to which all are evaluated."""
MOST_CELLS = 1 << 27
"""The elements that are evaluated for this, over all values of integers."""
MOST_KEPT = 1 << 24
"""The results that are kept at once, over all values of integers."""
MOST_FILLS = 6
"""The marked numbers that fill a whole tensor at most, beside the least and the greatest."""
AT_ONCE = 1 << 20
"""The elements of the largest tensor that is evaluated at once."""


@dataclass(frozen=True)
class _Drawn:
    """A drawn tensor: its elements have the numbers ``first``, ``first`` + 1, ..."""

    value: int
    fresh: Fresh
    first: int

    @property
    def size(self) -> int:
        return prod(self.fresh.shape)

    @property
    def bounds(self) -> tuple[int, int]:
        """Return the range of its elements, half-open."""
        return self.fresh.bounds or (0, 2)


@dataclass(frozen=True)
class _Sink:
    """The elements of a sink that depend on one drawn element each.

    ``elements`` are the numbers of the drawn elements, shape (n,); ``places`` where they lie in the
    sink of side ``side``, shape (n,); ``hard`` if a computed integer decides there, shape (n,).
    ``divides``: True if it is divided by, which decides if it is 0.
    """

    side: int
    value: int
    elements: Codes
    places: Codes
    hard: NDArray[np.bool_]
    divides: bool = False


@dataclass(frozen=True)
class Cases:
    """The directed draws of a stage, and what its draws must show.

    ``open`` says why computed integers are left open, or is "".
    """

    shaped: ShapedStage
    tested: Tested | None = None
    open: str = ""


def with_cases(shaped: ShapedStage, divided: Mapping[str, bool] | None = None) -> Cases:
    """Return a stage with directed draws, if computed integers decide anything there.

    ``divided`` are the sites of steps that divide by what integers make: True if it may be 0.
    """
    cone = discrete_cone(shaped, divided)
    if cone is None:
        return Cases(shaped)
    drawn, _ = _numbered(cone)
    sources = _sources(cone, drawn)
    if sources is None:
        return Cases(shaped, None, f"nothing can be computed from {drawn[0].fresh.key} alone")
    cone, sources, parts = with_unvaried(cone, sources)
    cone = _with_ends(cone, sources)
    hard = tuple(
        {
            value
            for value in side.sinks
            if _hard(found[value]) or (value in side.divisors and _computed(found[value]))
        }
        for side, found in zip(cone.sides, sources, strict=True)
    )
    sinks = _sinks(cone, sources)
    fitting, cost = _fitting(sources, sinks, drawn)
    kept = tuple(
        hard[n]
        | {s.value for s in fitting if s.side == n}
        | {value for value in cone.sides[n].sinks if _several(sources[n][value])}
        for n in (0, 1)
    )
    cone = cone.leading_to((kept[0], kept[1]))
    cases: dict[int, NDArray[np.int64]] = {}
    rare: dict[int, tuple[int, ...]] = {}
    left_open = ""
    enumerated = [
        own
        for own in drawn
        if cost * (own.bounds[1] - own.bounds[0]) <= MOST_CELLS
        and own.bounds[1] - own.bounds[0] <= MOST_VALUES
    ]
    for own in enumerated if fitting else ():
        chosen = _representatives(cone, drawn, own, fitting)
        if chosen is None:
            left_open = left_open or (
                f"{own.fresh.key} decides in more ways than can be tried: what "
                f"{_names(cone, fitting, own)} make of it"
            )
        elif chosen:
            cases[own.value] = _filled(own, chosen)
            rare[own.value] = tuple(np.unique(np.concatenate(list(chosen.values()))).tolist())
    left = [own for own in drawn if own not in enumerated] if any(hard) else []
    untried = [(own.first, own.first + own.size) for own in left]
    one_lane = _numbers(cone, drawn, np.zeros(1, dtype=np.int64))
    tested = Tested.of(cone, one_lane, untried, parts)
    if tested is not None:
        reaching = _reaching(cone, drawn, tested.parts, cost)
        for own in drawn:
            fills = [*_fills(own), *_filled_with(own, own.bounds[0] + reaching)]
            cases[own.value] = np.concatenate(
                [*fills, *([cases[own.value]] if own.value in cases else ())]
            )
    fresh = {
        value: replace(one, cases=tuple(cases[value]), rare=rare.get(value, ()))
        if value in cases
        else one
        for value, one in shaped.fresh.items()
    }
    directed = replace(shaped, fresh=fresh)
    if tested is not None:
        tested.cone = replace(cone, shaped=directed)  # what it looks at are the draws of the stage
    return Cases(directed, tested, left_open)


def _numbered(cone: Cone) -> tuple[list[_Drawn], int]:
    """Return the drawn tensors, whose elements are numbered from 1, and the next number."""
    drawn, first = [], 1
    for value in cone.drawn:
        drawn.append(_Drawn(value, cone.shaped.fresh[value], first))
        first += prod(cone.shaped.fresh[value].shape)
    return drawn, first


def with_sources(cone: Cone) -> tuple[dict[int, Value], int]:
    """Return the drawn tensors with the sources of their elements, and the next free number."""
    drawn, first = _numbered(cone)
    return _numbers(cone, drawn, np.zeros(1, dtype=np.int64)), first


def _sources(
    cone: Cone, drawn: Sequence[_Drawn]
) -> tuple[dict[int, Value], dict[int, Value]] | None:
    """Return all values of both sides with the sources of their elements.

    The numbers are the least, the greatest or those in between. Return None if an operator refuses
    all of these.
    """
    algebra = SourcedAlgebra()
    algebra.marked = _marked(drawn)
    most = max(own.bounds[1] - own.bounds[0] for own in drawn)
    for lane in (0, most - 1, most // 2):
        with suppress(PitcheckError):
            return cone.run(algebra, _numbers(cone, drawn, np.array([lane], dtype=np.int64)))
    return None


def _marked(drawn: Sequence[_Drawn]) -> frozenset[int]:
    """Return the integers with which a comparison has all its outcomes in ordinary draws."""
    found = {m + more for own in drawn for m in own.fresh.marks for more in (-1, 0, 1)}
    return frozenset(found | {-1, 0, 1})


def _numbers(cone: Cone, drawn: Sequence[_Drawn], lanes: NDArray[np.int64]) -> dict[int, Value]:
    """Return the drawn tensors, filled with the numbers ``lanes`` of their values one by one.

    With one lane alone elements have their sources.
    """
    algebra = SourcedAlgebra()
    found = {
        value: draw(algebra, fresh)
        for value, fresh in cone.shaped.fresh.items()
        if fresh.numbers or (fresh.kind != "field" and fresh.unread)
    }
    for own in drawn:
        low, high = own.bounds
        numbers = np.minimum(low + lanes, high - 1).reshape(1, -1, 1, *(1,) * len(own.fresh.shape))
        filled = np.broadcast_to(numbers, (1, len(lanes), 1, *own.fresh.shape))
        data = filled != 0 if own.fresh.kind == "bool" else filled
        if len(lanes) == 1:
            found[own.value] = algebra.drawn(data, own.fresh.kind, own.first)
        else:
            found[own.value] = Value(own.fresh.kind, data)
    return found


def _hard(value: Value) -> bool:
    """Return True if a computed integer decides some element of a value."""
    codes = codes_of(value)
    return codes is not None and bool((is_hard(codes) & (element_of(codes) != FOREIGN)).any())


def _computed(value: Value) -> bool:
    """Return True if arithmetic made some element of a value from one drawn element."""
    codes = codes_of(value)
    if codes is None:
        return False
    element = element_of(codes)
    return bool(((codes & COMPUTED != 0) & (element > 0) & (element < MANY)).any())


def _with_ends(cone: Cone, sources: tuple[Mapping[int, Value], Mapping[int, Value]]) -> Cone:
    """Return the cone with the values of one element each of which others are made.

    A sum hides what decides one of its terms. If computed integers decide any, those of both sides
    are told apart, also where only a drawn integer decides.
    """
    ends: list[list[int]] = []
    for side, values in zip(cone.sides, sources, strict=True):
        found: dict[int, None] = {}
        for step in side.batch.steps:
            outputs = [values[o] for o in step.outputs if o is not None]
            if any(_several(value) for value in outputs):
                found.update((argument.value, None) for argument in step.looked_into)
        ends.append([v for v in found if v not in side.given and codes_of(values[v]) is not None])
    if not any(_hard(values[v]) for values, own in zip(sources, ends, strict=True) for v in own):
        return cone
    sides = [side.with_sinks(own) for side, own in zip(cone.sides, ends, strict=True)]
    return replace(cone, sides=(sides[0], sides[1]))


def _several(value: Value) -> bool:
    """Return True if some element depends on several drawn ones."""
    codes = codes_of(value)
    return codes is not None and bool((element_of(codes) == MANY).any())


def _sinks(cone: Cone, sources: tuple[Mapping[int, Value], Mapping[int, Value]]) -> list[_Sink]:
    """Return the sinks that depend on the drawn elements by which computed integers decide."""
    found = []
    for number, (side, values) in enumerate(zip(cone.sides, sources, strict=True)):
        for value in side.sinks:
            codes = codes_of(values[value])
            if codes is not None:
                flat = codes.reshape(-1)
                element = element_of(flat)
                places = np.flatnonzero((element > 0) & (element < MANY))
                hard_ones = is_hard(flat[places])
                found.append(_Sink(number, value, element[places], places, hard_ones))
                if value in side.divisors:
                    made = flat[places] & COMPUTED != 0
                    found.append(_Sink(number, value, element[places], places, made, divides=True))
    every = [s.elements[s.hard] for s in found]
    hard = np.unique(np.concatenate(every)) if every else np.zeros(0, dtype=np.int64)
    kept = []
    for sink in found:
        near = np.isin(sink.elements, hard)
        if near.any():
            kept.append(
                replace(
                    sink,
                    elements=sink.elements[near],
                    places=sink.places[near],
                    hard=sink.hard[near],
                )
            )
    return kept


def _fitting(
    sources: tuple[Mapping[int, Value], Mapping[int, Value]],
    sinks: Sequence[_Sink],
    drawn: Sequence[_Drawn],
) -> tuple[list[_Sink], int]:
    """Return the sinks whose results can be kept: those that are hard, and others while they fit.

    Returns:
        The sinks; the elements that are evaluated for one value of an integer.
    """
    most = max((own.bounds[1] - own.bounds[0] for own in drawn), default=1)
    found, kept = [], 0
    for sink in sorted(sinks, key=lambda s: (not s.hard.any(), len(s.places))):
        if sink.hard.any() or (kept + len(sink.places)) * most <= MOST_KEPT:
            found.append(sink)
            kept += len(sink.places)
    cells = sum(value.data.size for side in sources for value in side.values())
    return found, max(cells, kept * (MOST_CELLS // MOST_KEPT))


def _representatives(
    cone: Cone, drawn: Sequence[_Drawn], own: _Drawn, sinks: Sequence[_Sink]
) -> dict[int, NDArray[np.int64]] | None:
    """Return by drawn element the values that it must have; None if they are too many."""
    low, high = own.bounds
    inside = [
        replace(s, elements=s.elements[here], places=s.places[here], hard=s.hard[here])
        for s in sinks
        if (here := (s.elements >= own.first) & (s.elements < own.first + own.size)).any()
    ]
    if not any(s.hard.any() for s in inside):
        return {}
    results = _results(cone, drawn, high - low, inside)
    tables: dict[int, dict[tuple[object, ...], Table]] = {}
    for sink, found in zip(inside, results, strict=True):
        named = cone.sides[sink.side].sinks[sink.value]
        for column, element in enumerate(sink.elements.tolist()):
            table = Table(sink.side, found[:, column], named, bool(sink.hard[column]))
            key = (table.side, table.key, table.named, table.hard)
            tables.setdefault(element, {}).setdefault(key, table)
    values = np.arange(low, high, dtype=np.int64)
    known: dict[frozenset[tuple[object, ...]], NDArray[np.int64] | None] = {}
    chosen = {}
    for element, of_element in tables.items():
        keys = frozenset(of_element)
        if keys not in known:
            known[keys] = representatives(
                values, list(of_element.values()), frozenset(own.fresh.marks)
            )
        found_ones = known[keys]
        if found_ones is None:
            return None
        chosen[element] = found_ones
    alike = len(known) == 1 and len(chosen) == own.size
    if alike:
        # Each shard meets each marked value anyway, and all elements are used in one way.
        chosen = {e: c[~np.isin(c, own.fresh.marks)] for e, c in chosen.items()}
    return {element: found for element, found in chosen.items() if len(found)}


def _results(
    cone: Cone, drawn: Sequence[_Drawn], count: int, sinks: Sequence[_Sink]
) -> list[NDArray[Any]]:
    """Return what sinks hold for each of ``count`` values, one array (count, places) for each."""
    largest = max(
        (prod(value) for side in cone.shaped.shapes for value in side.values()), default=1
    )
    step = max(2, AT_ONCE // max(largest, 1))
    parts: list[list[NDArray[Any]]] = [[] for _ in sinks]
    for start in range(0, count, step):
        lanes = np.arange(start, max(start + 2, min(start + step, count)), dtype=np.int64)
        found = cone.run(SourcedAlgebra(), _numbers(cone, drawn, lanes))
        for part, sink in zip(parts, sinks, strict=True):
            data = found[sink.side][sink.value].data[0]
            flat = data.reshape(len(data), -1)[:, sink.places]
            flat = flat == 0 if sink.divides else flat
            part.append(np.broadcast_to(flat, (len(lanes), flat.shape[1])))
    return [np.concatenate(part)[:count] for part in parts]


def _filled(own: _Drawn, chosen: Mapping[int, NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return draws of a tensor in which each element has each of its values, (draws, *shape).

    Elements have them in random order, so that they differ along each axis. Those that have none
    are uniform. If each has one alone, some have it in a further draw, and the others in another:
    what all have may hide what some have (a row that is masked wholly has no softmax).
    """
    count = max(len(found) for found in chosen.values())
    generator = np.random.default_rng([count, own.first])  # other inputs have them elsewhere
    draws = 3 if count == 1 < len(chosen) else count
    result = generator.integers(*own.bounds, size=(draws, own.size))
    for start, (element, found) in zip(
        generator.permutation(len(chosen)), chosen.items(), strict=True
    ):
        place = element - own.first
        if draws == count:
            result[:, place] = found[(np.arange(count) + start) % len(found)]
        else:
            result[[0, 1 + start % 2], place] = found[0]
    return result.reshape(draws, *own.fresh.shape)


def _reaching(cone: Cone, drawn: Sequence[_Drawn], parts: Found, cost: int) -> NDArray[np.int64]:
    """Return numbers that change the parts of several elements if all elements are such a number.

    They are counted from the least number of each tensor. Parts that are too dear have none.
    """
    most = max(own.bounds[1] - own.bounds[0] for own in drawn)
    sinks = []
    for number, of_side in enumerate(parts):
        for value, where in of_side.items():
            places = np.flatnonzero(where)
            none = np.zeros(len(places), dtype=np.int64)
            sinks.append(_Sink(number, value, none, places, none != 0))
    kept = sum(len(sink.places) for sink in sinks)
    if not sinks or most > MOST_VALUES or most * max(cost, kept) > MOST_CELLS:
        return np.zeros(0, dtype=np.int64)
    changed = [(own != own[:1]).any(axis=1) for own in _results(cone, drawn, most, sinks)]
    return np.unique([int(own.argmax()) for own in changed if own.any()]).astype(np.int64)


def _fills(own: _Drawn) -> list[NDArray[np.int64]]:
    """Return draws of a tensor that hold one number each, shapes (1, *shape)."""
    low, high = own.bounds
    marks = own.fresh.marks[: MOST_FILLS // 2] + own.fresh.marks[-MOST_FILLS // 2 :]
    return _filled_with(own, np.array(sorted({low, high - 1, *marks})))


def _filled_with(own: _Drawn, numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return draws of a tensor each of which holds one of some numbers, shapes (1, *shape)."""
    within = np.minimum(numbers, own.bounds[1] - 1).tolist()
    return [np.full((1, *own.fresh.shape), number, dtype=np.int64) for number in within]


def _names(cone: Cone, sinks: Sequence[_Sink], own: _Drawn) -> str:
    """Return the first hard values of either side that depend on a tensor, in words."""
    inside = [
        s
        for s in sinks
        if (s.hard & (s.elements >= own.first) & (s.elements < own.first + own.size)).any()
    ]
    first = {s.side: cone.sides[s.side].described(s.value) for s in reversed(inside)}
    return " and ".join(first[side] for side in sorted(first))
