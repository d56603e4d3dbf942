"""The decisions of integers that several choices make together: tried, and not proven.

That 43 of 64 tokens choose one expert, or that five of them share a slot, happens in few draws or
in none. Where results depend on that, a report calls the bound of the stage an estimate. Where one
side alone depends on it, and all draws had the same outcome, the stage is left open: nothing was
tried. ``docs/mathematics.md`` has the reasons.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shaped_stage import shape_reduced
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> Together.of(shape_reduced(Problem.of(plan, plan).whole_stage())) is None
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.backend import to_host
from pitcheck.algebra.keyed import key_of, mix
from pitcheck.algebra.residues.free_outcomes import is_mask
from pitcheck.algebra.structure import aligned
from pitcheck.algebra.value import Value
from pitcheck.errors import PitcheckError
from pitcheck.prove.integers.cases import with_sources
from pitcheck.prove.integers.cone import SIDES, Cone, discrete_cone
from pitcheck.prove.integers.followed import Followed, Shown
from pitcheck.prove.integers.shared import Shared, shared
from pitcheck.prove.integers.sourced import (
    COMPUTED,
    MANY,
    SHIFT,
    Codes,
    Event,
    SourcedAlgebra,
    element_of,
    merged,
)
from pitcheck.prove.integers.tested import operands
from pitcheck.prove.integers.unvaried import drawn_of
from pitcheck.stage.evaluate import Evaluated
from pitcheck.stage.run_batch import step_at
from pitcheck.stage.shaped_stage import ShapedStage

MOST_DRAWS = 48
"""The draws whose decisions are compared between the sides."""

Bools = NDArray[np.bool_]
Data = NDArray[Any]
"""Numbers of shape (draws or 1, instances or 1, *shape)."""
Words = NDArray[np.uint64]
NOTHING: Words = np.zeros(0, dtype=np.uint64)
PRODUCTS = frozenset({"joint", "logical_and", "logical_or"})
"""The decisions that are products of their operands: they matter where both are not 0."""


@dataclass
class Together:
    """The discrete part of a stage, from what is drawn and what real numbers decide, in redraws."""

    cone: Cone
    _trials: list[int] = field(default_factory=list)
    _seen: list[tuple[dict[int, Data], dict[int, Data]]] = field(default_factory=list)
    _masks: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))
    """The outcomes of either side that are entries of tables: all joint ones are proven."""

    @classmethod
    def of(cls, shaped: ShapedStage) -> Together | None:
        """Return it for a stage; None if nothing is computed from integers and booleans."""
        cone = discrete_cone(shaped, decided=True)
        used = cone is not None and any(side.batch.steps or side.sinks for side in cone.sides)
        return cls(cone) if cone is not None and used else None

    @property
    def looked_at(self) -> tuple[set[int], set[int]]:
        """The values of either side that redraws are asked for."""
        first, second = ({*side.sinks, *side.decided} for side in self.cone.sides)
        return first, second

    def take(self, evaluated: Evaluated, trials: Sequence[int], good: Bools) -> None:
        """Take in what the ``good`` redraws of an evaluation decided."""
        xp = evaluated.algebra.xp
        found: list[dict[int, Data]] = []
        for side, values, masks in zip(
            self.cone.sides, (evaluated.reference, evaluated.parallel), self._masks, strict=True
        ):
            masks.update(v for v in (*side.sinks, *side.decided) if is_mask(values[v]))
            data = {v: to_host(xp, values[v].data)[0] for v in side.decided}
            # A table of outcomes holds residues. Both sides have the same for one outcome.
            found.append(
                {v: _of_draws(d % 2 == 1 if v in masks else d, good) for v, d in data.items()}
            )
        self._trials += [trial for trial, counts in zip(trials, good, strict=True) if counts]
        self._seen.append((found[0], found[1]))

    def untold(self, seed: int) -> tuple[str, bool]:
        """Return what several choices decide together and draws do not settle, or "", in words.

        ``seed`` is that of the redraws. The second value is True if one side alone makes such a
        decision of drawn integers, and no draw showed another outcome: then nothing was tried.
        """
        try:
            drawn, first = with_sources(self.cone)
            static = SourcedAlgebra()
            static.events = []
            self.cone.run(static, drawn, self._coded(first))
            of_reals = SourcedAlgebra()
            of_reals.events = []
            bare = {value: replace(known, special=None) for value, known in drawn.items()}
            self.cone.run(of_reals, bare, self._coded(first))
            algebra = SourcedAlgebra(self._trials[:MOST_DRAWS], seed)
            algebra.events = []
            seen = self._values(0), self._values(1)
            values = self.cone.run(algebra, drawn_of(self.cone, algebra), seen)
        except PitcheckError:
            said = "what integers and booleans make together cannot be evaluated in the draws"
            return said, False
        alike = shared(self.cone, values)
        known = [_products(algebra.events, name, seed) for name in SIDES]
        events = zip(static.events, of_reals.events, algebra.events, strict=True)
        for own, decided, in_draws in (each for each in events if each[0].what in PRODUCTS):
            others = known[own.site.startswith(SIDES[0])]
            same = np.isin(_words(in_draws, seed), others)
            others_decide = same | self._shared(own, alike, same) | _depends(decided)
            if self._untried(own, in_draws, others_decide):
                return self._named(own), True
        return self._followed(values, seed), False

    def _untried(self, own: Event, in_draws: Event, same: Bools) -> bool:
        """Return True if one side alone makes a product, and no draw shows that it is not 0.

        ``same``: the elements of which nothing is asked. Other decisions are looked at one by one,
        with the ranges of integers (:mod:`pitcheck.prove.integers.tested`).
        """
        where = _several(own) & ~same
        return bool(where.any()) and not (where & _nonzero(in_draws)).any()

    def _shared(self, own: Event, alike: Sequence[Shared], like: Bools) -> Bools:
        """Return in which instances both sides make a decision by the same steps.

        The shape is (instances, 1, ...), with the dimensions of ``like``.
        """
        count, ones = len(like), (1,) * (like.ndim - 1)
        number = not own.site.startswith(SIDES[0])
        step = step_at(own.site, self.cone.sides[number].name)
        found = None if step is None else alike[number].steps.get(step)
        if found is None or len(found) not in (1, count):
            return np.zeros((count, *ones), dtype=np.bool_)
        rows = found if count > 1 else found.all(keepdims=True)
        return np.broadcast_to(rows.reshape(-1, *ones), (count, *ones))

    def _followed(self, values: tuple[Mapping[int, Value], Mapping[int, Value]], seed: int) -> str:
        """Return what is compared although draws do not show it, or ""."""
        drawn = {value: values[0][value].data[0] for value in self.cone.drawn}
        whole = self._whole(0), self._whole(1)
        lacking = tuple(
            {v: _lacking(_columns(data)).reshape(data.shape[1:]) for v, data in side.items()}
            for side in whole
        )
        strictly = shared(self.cone, values, as_seen=False)
        draws = min(len(self._trials), MOST_DRAWS) if self.cone.drawn else len(self._trials)
        shown = Shown(drawn, whole, (lacking[0], lacking[1]), strictly, draws)
        try:
            return Followed(self.cone, self._masks, shown, seed).untold()
        except PitcheckError:
            return "what choices decide cannot be followed"

    def _named(self, own: Event) -> str:
        side = next(s for s in self.cone.sides if own.site.startswith(s.name))
        return f"{side.operator(own.site)}, which multiplies them"

    def _whole(self, number: int) -> dict[int, Data]:
        """Return what a side decided in all redraws."""
        return {
            value: np.concatenate([each[number][value] for each in self._seen])
            for value in self.cone.sides[number].decided
        }

    def _coded(self, first: int) -> tuple[dict[int, Value], dict[int, Value]]:
        """Return the values of one redraw, with elements numbered from ``first`` on."""
        found: tuple[dict[int, Value], dict[int, Value]] = {}, {}
        for number in (0, 1):
            for value, data in self._whole(number).items():
                codes = np.arange(first, first + data[0].size, dtype=np.int64) << SHIFT
                special = codes.reshape(data.shape[1:])[None, None]
                kind = self._kind(number, value)
                found[number][value] = Value(kind, data[None, :1], special=special)
                first += data[0].size
        return found

    def _values(self, number: int) -> dict[int, Value]:
        return {
            v: Value(self._kind(number, v), data[None, :MOST_DRAWS])
            for v, data in self._whole(number).items()
        }

    def _kind(self, number: int, value: int) -> Any:
        return self.cone.sides[number].batch.graph.values[value].kind


def _products(events: Sequence[Event], side: str, seed: int) -> Words:
    """Return the words of the factors of all products of a side."""
    found = [
        _words(event, seed).reshape(-1)
        for event in events
        if event.site.startswith(side) and event.what in PRODUCTS
    ]
    return np.unique(np.concatenate(found)) if found else NOTHING


def _words(event: Event, seed: int) -> Words:
    """Return a word for both factors of each element in all draws, shape (instances, *shape).

    Their order does not count, nor if a condition is True or 1. ``seed`` keys the words.
    """
    first, second = (_word(operand, seed) for operand in operands(event))
    return first + second


def _word(operand: Data, seed: int) -> Words:
    """Return a word for each element in all draws, from (draws or 1, instances or 1, *shape)."""
    found: Words = np.array([key_of(seed, "factor")], dtype=np.uint64)
    for draw in range(MOST_DRAWS):
        word = operand[min(draw, len(operand) - 1)].astype(np.float64).view(np.uint64)
        found = mix(np, found ^ mix(np, word + found))
    return found


def _codes(event: Event) -> tuple[Codes, Codes] | None:
    """Return the codes of both operands, 0 for fixed ones; None if both are fixed."""
    rank = max(event.first.rank, event.second.rank)
    found = [
        np.zeros((1,) * (rank + 3), dtype=np.int64)
        if v.special is None
        else aligned(v.special, rank)
        for v in (event.first, event.second)
    ]
    return (found[0], found[1]) if any(code.any() for code in found) else None


def _several(event: Event) -> Bools:
    """Return which elements of a decision several choices make, shape (instances, *shape)."""
    x, y = operands(event)
    shape = np.broadcast_shapes(x.shape[1:], y.shape[1:])
    codes = _codes(event)
    if codes is None or event.what == "zero":
        return np.zeros(shape, dtype=np.bool_)
    if event.what == "order":
        elements = np.unique(element_of(codes[0]))
        several = len(elements[elements > 0]) > 1 or bool((elements == MANY).any())
        return np.full(shape, several, dtype=np.bool_)
    both = merged(*codes)
    where = element_of(both) == MANY
    if event.what in PRODUCTS:
        where = where & (element_of(codes[0]) != 0) & (element_of(codes[1]) != 0)
    else:
        where = where & (both & COMPUTED != 0)
    result: Bools = np.broadcast_to(where[0, 0], shape)
    return result


def _depends(event: Event) -> Bools:
    """Return which elements of a decision any choice makes, shape (instances, *shape)."""
    x, y = operands(event)
    shape = np.broadcast_shapes(x.shape[1:], y.shape[1:])
    codes = _codes(event)
    where = np.zeros(1, dtype=np.bool_) if codes is None else merged(*codes)[0, 0] != 0
    result: Bools = np.broadcast_to(where, shape)
    return result


def _nonzero(event: Event) -> Bools:
    """Return where both operands were not 0 in some draw, shape (instances, *shape)."""
    x, y = operands(event)
    if event.what == "logical_or":
        x, y = np.logical_not(x), np.logical_not(y)
    result: Bools = ((x != 0) & (y != 0)).any(axis=0)
    return result


def _lacking(data: Data) -> Bools:
    """Return which columns of (draws, elements) lack a number that another one has."""
    ordered = np.sort(data, axis=0)
    different = 1 + (ordered[1:] != ordered[:-1]).sum(axis=0)
    result: Bools = different < len(np.unique(data))
    return result


def _columns(data: Data) -> Data:
    """Return numbers of shape (draws, ...) as (draws, elements)."""
    return data.reshape(len(data), -1)


def _of_draws(data: Any, good: Bools) -> Data:
    """Return the numbers of good draws, also if they are the same in all."""
    whole: Data = np.broadcast_to(data, (len(good), *data.shape[1:]))
    return whole[good]
