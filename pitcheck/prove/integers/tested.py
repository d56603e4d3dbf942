"""Outcomes of decisions by integers that several drawn elements make, as draws show them.

What a sum or a count decides cannot be evaluated at all values. So each such decision must have had
both outcomes in the draws that were compared. Where the sides do not share a decision, they must
have been seen to decide differently, or it must be known that they never do.

>>> _implied(np.array([1, -1, 4]), np.array([3, -1, 9]))
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.discrete import COMPARISONS
from pitcheck.algebra.structure import aligned
from pitcheck.algebra.value import Value
from pitcheck.errors import PitcheckError
from pitcheck.prove.integers.cone import Cone
from pitcheck.prove.integers.intervals import may_be, possible_changes, possible_outcomes
from pitcheck.prove.integers.sourced import (
    COMPUTED,
    FOREIGN,
    MANY,
    Codes,
    Event,
    SourcedAlgebra,
    codes_of,
    element_of,
    merged,
)
from pitcheck.prove.integers.unvaried import Found, drawn_of, still

MOST_COLUMNS = 1 << 12
"""The elements of decisions that are compared between the sides at most."""

Bools = NDArray[np.bool_]
Outcomes = NDArray[np.int8]
OUTCOMES = {
    "maximum": ("the second operand exceeds the first", "the first operand exceeds the second"),
    "minimum": ("the first operand exceeds the second", "the second operand exceeds the first"),
    "floor_divide": ("another quotient", "a first quotient"),
    "zero": ("", "0"),
    "joint": ("", "both factors are not 0, or the condition holds and decides something"),
}
"""The outcomes of a decision in words, false and true; those of others are false and true."""


EXTREMA = {"maximum": ("gt", "ge"), "minimum": ("lt", "le")}
"""The comparisons that an extremum may be: of equal operands it has either."""
UNITS = 1 << 20
"""The units of 1 in which numbers that are not whole are compared."""
FARTHEST = 2.0**40
"""The size beyond which such numbers are taken for one."""
ALIKE = {
    "floor_divide": "a quotient of computed integers",
    "order": "an order of computed integers",
    "lookup": "a table that computed integers index",
}
"""The decisions of more than two outcomes, of which the sides must have the same, in words."""


@dataclass
class _Watched:
    """A decision of several elements: which event it is, and which elements count.

    ``where`` has shape (instances, *shape), as have the outcomes; ``true`` and ``false`` are by
    instance.
    """

    number: int
    event: Event
    where: Bools
    true: Bools
    false: Bools
    required: bool
    """False if no computed integer decides. Then it only stands beside those of the other side."""
    first: Any = None
    """The first quotients, shape (1, instances, *shape)."""
    distances: list[NDArray[np.int64]] = field(default_factory=list)
    """The distances between operands, shapes (draws, elements)."""

    @property
    def margins(self) -> NDArray[np.int64]:
        """Return the distances from where it changes, shape (draws, elements or twice as many)."""
        distance = np.concatenate(self.distances)
        if self.event.first.kind == "field":
            whole = (distance % UNITS == 0).all(axis=0)
            distance = np.where(whole, distance // UNITS, distance)
        what = self.event.what
        return np.concatenate([_margin(w, distance) for w in EXTREMA.get(what, (what,))], axis=1)

    @property
    def side(self) -> str:
        return self.event.site.partition(" ")[0]


@dataclass
class Tested:
    """The decisions of a stage of which draws must show all outcomes."""

    cone: Cone
    watched: list[_Watched]
    count: int
    """The decisions of all steps."""
    parts: Found
    """The parts of computed integers that are to be seen to change."""
    _left: Found = field(init=False)
    """Those that were not yet."""
    _firsts: tuple[dict[int, Any], dict[int, Any]] = field(init=False)
    """The contents of such parts in the first draw, by value of either side."""
    _possible: list[tuple[Bools, Bools]] | None = None
    _ranged: bool = False

    def __post_init__(self) -> None:
        self._left, self._firsts = self.parts, ({}, {})

    @classmethod
    def of(
        cls,
        cone: Cone,
        drawn: Mapping[int, Value],
        untried: Sequence[tuple[int, int]],
        unvaried: Found,
    ) -> Tested | None:
        """Return the decisions to watch; None if there are none.

        ``untried`` are ranges of drawn elements of which not all values were evaluated, and
        ``unvaried`` parts that were the same in some draws.
        """
        algebra = SourcedAlgebra()
        algebra.events = []
        values = cone.run(algebra, drawn)
        watched = []
        for number, event in enumerate(algebra.events):
            for where, required in zip(_counts(event, untried), (True, False), strict=True):
                if where.any():
                    none = np.zeros(len(where), dtype=np.bool_)
                    watched.append(_Watched(number, event, where, none, none.copy(), required))
        first, second = (
            {
                value: left
                for value, where in parts.items()
                if (left := where & _in_draws_alone(side[value], untried)).any()
            }
            for side, parts in zip(values, unvaried, strict=True)
        )
        if not (first or second or any(w.required for w in watched)):
            return None
        return cls(cone, watched, len(algebra.events), (first, second))

    def anew(self) -> Tested:
        """Return the same decisions, of which nothing has been seen.

        Each attempt at a stage has draws of its own, and needs to see everything in these.
        """
        none = [np.zeros_like(own.true) for own in self.watched]
        watched = [
            replace(own, true=unseen, false=unseen.copy(), first=None, distances=[])
            for own, unseen in zip(self.watched, none, strict=True)
        ]
        return replace(self, watched=watched)

    def observe(self, trials: Sequence[int], seed: int) -> None:
        """Take in what some trials of residues drew. ``seed`` is theirs."""
        algebra = SourcedAlgebra(trials, seed)
        if not algebra.trials:
            return
        algebra.events = []
        try:
            values = self.cone.run(algebra, drawn_of(self.cone, algebra))
        except PitcheckError:
            return  # nothing is seen then, and what needs it stays open
        self._left = (self._still(0, values[0]), self._still(1, values[1]))
        for own in self.watched:
            self._take(own, algebra.events[own.number], len(trials))

    def _still(self, side: int, values: Mapping[int, Value]) -> dict[int, Bools]:
        """Return the parts of a side that did not change yet, once more draws are taken in."""
        known, left = self._firsts[side], self._left[side]
        for value in left:
            known.setdefault(value, values[value].data[0, :1])
        return still(left, values, known)

    def _take(self, own: _Watched, event: Event, draws: int) -> None:
        """Take in an event of some draws."""
        x, y = operands(event)
        if event.what in ("order", "lookup"):
            true = false = np.ones((1, *own.where.shape), dtype=np.bool_)
        elif event.what == "floor_divide":
            quotient = np.floor_divide(x, y)
            own.first = quotient[:1] if own.first is None else own.first
            true, false = quotient == own.first, quotient != own.first
        elif event.what in ("maximum", "minimum"):
            true, false = (x > y, x < y) if event.what == "maximum" else (x < y, x > y)
        elif event.what == "joint":
            # A product of integers decides nothing where it is 0.
            true, false = (x != 0) & (y != 0), np.ones((1, *own.where.shape), dtype=np.bool_)
        elif event.what == "zero":
            true, false = x == y, np.ones((1, *own.where.shape), dtype=np.bool_)
        elif event.what in ("logical_and", "logical_or"):
            true = x & y if event.what == "logical_and" else x | y
            false = ~true
        else:
            true = getattr(np, COMPARISONS[event.what])(x, y)  # type: ignore[index]
            false = ~true
        own.true |= _anywhere(true, own.where)
        own.false |= _anywhere(false, own.where)
        if event.what in (*COMPARISONS, *EXTREMA, *ALIKE, "zero"):
            x, y = (_whole(operand, event.first.kind) for operand in (x, y))
            apart = np.broadcast_to(_distance(event.what, x, y), (draws, *own.where.shape))
            own.distances.append(apart[:, own.where])

    def lacking(self) -> str:
        """Return an outcome that no draw has shown, in words, or ""."""
        for own in (watched for watched in self.watched if watched.required):
            if own.event.what == "zero" and not self._divides_alone(own):
                continue
            names = OUTCOMES.get(own.event.what, ("false", "true"))
            for seen, name in ((own.true, names[1]), (own.false, names[0])):
                here = own.where.reshape(len(own.where), -1).any(axis=1)
                unseen = here & ~seen
                if unseen.any() and (unseen & self._may(own, seen is own.true)).any():
                    return (
                        f"a decision by computed integers never had both outcomes: "
                        f"{self._named(own)} ({own.event.what}) was never: {name}"
                    )
        return self._together() or self._unvaried()

    def _unvaried(self) -> str:
        """Return a part of computed integers that was the same in all draws, or ""."""
        if not any(self._left):
            return ""
        known = possible_changes(self.cone)
        for number, (side, left) in enumerate(zip(self.cone.sides, self._left, strict=True)):
            for value, where in left.items():
                may = None if known is None else known[number].get(value)
                if may is None or may_be(may, where).any():
                    return (
                        f"integers may change {side.described(value)}, which was the same in all "
                        f"draws"
                    )
        return ""

    def _divides_alone(self, own: _Watched) -> bool:
        """Return True if the parallel plan divides by what the reference does not divide by."""
        if own.side != "parallel" or not own.distances:
            return own.side == "parallel"
        given = {
            column.tobytes(): column
            for each in self.watched
            if each.event.what == "zero" and each.side != "parallel" and each.distances
            for column in each.margins.T
        }
        return any(
            column.tobytes() not in given
            and not any(column.any() and _proportional(column, r) for r in given.values())
            for column in own.margins.T
        )

    def _may(self, own: _Watched, held: bool) -> Bools:
        """Return in which instances an outcome is not excluded by the ranges of the operands."""
        if not self._ranged:
            self._possible = possible_outcomes(self.cone, self.count)
            self._ranged = True
        if self._possible is None:
            return np.ones(len(own.where), dtype=np.bool_)
        return may_be(self._possible[own.number][0 if held else 1], own.where)

    def _named(self, own: _Watched) -> str:
        side = next(s for s in self.cone.sides if own.event.site.startswith(s.name))
        return side.operator(own.event.site)

    def _together(self) -> str:
        """Return two decisions that the sides do not share and no draw told apart, or ""."""
        for what, name in ALIKE.items():
            if lacking := self._alone(what, name):
                return lacking
        sides: list[dict[bytes, tuple[_Watched, NDArray[np.int64]]]] = [{}, {}]
        for own in self.watched:
            if own.event.what in (*ALIKE, "zero"):
                continue
            if own.distances and own.where.sum() <= MOST_COLUMNS:
                columns = own.margins
                for column in _normal(columns, own.event.what).T:
                    if all(_signature(own, column)):
                        continue  # such elements never differ
                    key = bytes([own.event.what in ("eq", "ne")]) + column.tobytes()
                    sides[own.side == "parallel"].setdefault(key, (own, column))
        alone = [
            {k: found for k, found in one.items() if k not in other}
            for one, other in (sides, sides[::-1])
        ]
        for one, other in ((alone[1], sides[0]), (alone[0], sides[1])):
            signed: dict[bytes, list[tuple[_Watched, NDArray[np.int64]]]] = {}
            for found in other.values():
                signed.setdefault(_signature(*found), []).append(found)
            # The choice of an extremum shows already which operand is beyond the other.
            compared = [found for found in one.values() if found[0].event.what not in EXTREMA]
            for own, column in compared:
                for beside, against in signed.get(_signature(own, column), ()):
                    if not _same_outcome(own, column, beside, against):
                        return (
                            f"two decisions by computed integers were never seen to differ, and "
                            f"are not known to be one: {self._named(own)} and "
                            f"{self._named(beside)}"
                        )
        return ""

    def _alone(self, what: str, name: str) -> str:
        """Return a division, order or table of integers that the other side lacks, or ""."""
        sides: list[dict[bytes, _Watched]] = [{}, {}]
        for own in self.watched:
            if own.event.what == what and own.distances:
                for column in own.margins.T:
                    if (column != column[0]).any():
                        sides[own.side == "parallel"].setdefault(column.tobytes(), own)
        for one, other in (sides, sides[::-1]):
            for key in one.keys() - other.keys():
                return (
                    f"one side alone has {name}, which may change where no draw was: "
                    f"{self._named(one[key])}"
                )
        return ""


def _counts(event: Event, untried: Sequence[tuple[int, int]]) -> tuple[Bools, Bools]:
    """Return the elements of a decision that must be seen, and those that stand beside others.

    Both have shape (instances, *shape).
    """
    x, y = operands(event)
    shape = np.broadcast_shapes(x.shape[1:], y.shape[1:])
    none = np.zeros(shape, dtype=np.bool_)
    rank = max(event.first.rank, event.second.rank)
    codes = [aligned(v.special, rank) for v in (event.first, event.second) if v.special is not None]
    if not codes:
        return none, none
    both = merged(codes[0], codes[-1])
    element = element_of(both)
    counts: Bools = _left_to_draws(element, untried)
    counts = (counts | ((event.what == "order") & (element > 0))) & (element != FOREIGN)
    if event.what == "joint":
        if len(codes) < len((event.first, event.second)):
            return none, none
        alone = [element_of(each) == 0 for each in codes]
        return np.broadcast_to((counts & ~alone[0] & ~alone[1])[0, 0], shape), none
    required = counts & ((event.what == "floor_divide") | (both & COMPUTED != 0))
    beside = counts & ~required & (event.what in (*COMPARISONS, *EXTREMA))
    first, second = (np.broadcast_to(each[0, 0], shape) for each in (required, beside))
    return first, second


def _in_draws_alone(value: Value, untried: Sequence[tuple[int, int]]) -> Bools:
    """Return the elements of a value that only draws show, shape (instances, *shape)."""
    codes = codes_of(value)
    if codes is None:
        return np.zeros(value.data.shape[2:], dtype=np.bool_)
    return _left_to_draws(element_of(codes[0, 0]), untried)


def _left_to_draws(element: Codes, untried: Sequence[tuple[int, int]]) -> Bools:
    """Return where several drawn elements make one, or one of which not all values were tried."""
    found: Bools = element == MANY
    for low, high in untried:
        found = found | ((element >= low) & (element < high))
    return found


def operands(event: Event) -> tuple[Any, Any]:
    """Return both operands, shapes (draws or 1, instances or 1, *shape), aligned."""
    rank = max(event.first.rank, event.second.rank)
    x, y = (aligned(v.data, rank)[0] for v in (event.first, event.second))
    return x, y


def _anywhere(outcome: Any, where: Bools) -> Bools:
    """Return in which instances an outcome was seen at an element that counts."""
    seen = np.broadcast_to(outcome.any(axis=0), where.shape)
    result: Bools = np.logical_and(seen, where).reshape(len(where), -1).any(axis=1)
    return result


def _whole(numbers: Any, kind: str) -> Any:
    """Return numbers as integers, of the same shape: those of floats in units of 1 / ``UNITS``."""
    if kind != "field":
        return np.asarray(numbers).astype(np.int64)
    known = np.clip(np.nan_to_num(numbers), -FARTHEST, FARTHEST)
    return np.rint(known * UNITS).astype(np.int64)


def _distance(what: str, x: Any, y: Any) -> Any:
    """Return the difference of operands, the quotients of a division, or what is ordered."""
    if what == "order":
        return x
    if what == "lookup":
        return x * UNITS + y
    return np.floor_divide(x, y) if what == "floor_divide" else x - y


def _margin(what: str, distance: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return integers that are not negative exactly if an order holds, else the distance."""
    if what in ("lt", "le"):
        distance = -distance
    return distance - 1 if what in ("lt", "gt") else distance


def _normal(columns: NDArray[np.int64], what: str) -> NDArray[np.int64]:
    """Return margins, shape (draws, elements), with one sign for a decision and its opposite."""
    if what in ("eq", "ne"):
        first = np.take_along_axis(columns, (columns != 0).argmax(axis=0)[None], axis=0)
        result: NDArray[np.int64] = columns * np.where(first < 0, -1, 1)
        return result
    # The opposite of m >= 0 is -m - 1 >= 0.
    return np.where(columns[:1] < 0, -columns - 1, columns)


def _signature(own: _Watched, column: NDArray[np.int64]) -> bytes:
    """Return the outcomes of a decision, with those of its opposite if that held first."""
    held = column == 0 if own.event.what in ("eq", "ne") else column >= 0
    return (held ^ bool(not held[0])).tobytes()


def _same_outcome(
    own: _Watched, column: NDArray[np.int64], beside: _Watched, against: NDArray[np.int64]
) -> bool:
    """Return True if two decisions have one outcome because one margin follows from the other."""
    equal = [watched.event.what in ("eq", "ne") for watched in (own, beside)]
    if any(equal):
        return all(equal) and _proportional(column, against)
    return _implied(column, against) or _implied(against, column)


def _proportional(a: NDArray[np.int64], b: NDArray[np.int64]) -> bool:
    """Return True if a and b are multiples of one column."""
    place = int((a != 0).argmax())
    return bool((a * b[place] == b * a[place]).all())


def _implied(a: NDArray[np.int64], b: NDArray[np.int64]) -> bool:
    """Return True if b = k·a + c with 0 <= c < k, so that b >= 0 exactly if a >= 0."""
    other = np.flatnonzero(a != a[0])
    if not len(other):
        return False
    place = int(other[0])
    over, under = int(b[place] - b[0]), int(a[place] - a[0])
    if under < 0:
        over, under = -over, -under
    if over <= 0 or not ((b - b[0]) * under == (a - a[0]) * over).all():
        return False
    shift = int(b[0]) * under - int(a[0]) * over
    return 0 <= shift < over
