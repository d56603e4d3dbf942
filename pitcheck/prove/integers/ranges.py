"""Outcomes of decisions by integers that are impossible, because of the ranges of the operands.

>>> _possible("lt", (0, 3), (4, 9)), _possible("maximum", (1, 5), (1, 1))
((True, False), (True, False))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any

from pitcheck.algebra.bound.degrees import DegreeValue
from pitcheck.algebra.discrete import COMPARISONS
from pitcheck.algebra.interface import Comparison, Kind
from pitcheck.errors import PitcheckError
from pitcheck.prove.integers.cone import Cone
from pitcheck.prove.integers.sourced import Event
from pitcheck.prove.known_ranges import Range, RangedDegrees, decided
from pitcheck.stage.shaped_stage import ShapedStage

Key = tuple[str, str, int]
"""(site, sort of the decision, number among those there)."""


class _Ranges(RangedDegrees):
    """Ranges of all integers, with those of the operands of every decision in order."""

    def __init__(self, shaped: ShapedStage) -> None:
        super().__init__(shaped)
        self.noted: dict[Key, tuple[Range | None, Range | None]] = {}
        self._numbers: Counter[tuple[str, str]] = Counter()

    def ranged(self, value: DegreeValue, found: Range) -> DegreeValue:
        """Return a value with its range."""
        return self._ranged(value, found)

    def _note(self, what: str, a: DegreeValue, b: DegreeValue) -> None:
        key = (self.site, what)
        self.noted[*key, self._numbers[key]] = self.known(a), self.known(b)
        self._numbers[key] += 1

    def arange(self, like: DegreeValue, axis: int) -> DegreeValue:
        return self._ranged(super().arange(like, axis), (0, max(like.shape[axis] - 1, 0)))

    def sum(self, a: DegreeValue, axes: Sequence[int]) -> DegreeValue:
        found, count = self.known(a), prod(a.shape[axis] for axis in axes)
        value = super().sum(a, axes)
        return self._ranged(value, None if found is None else (found[0] * count, found[1] * count))

    def compare(self, comparison: Comparison, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        self._note(comparison, a, b)
        return super().compare(comparison, a, b)

    def maximum(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        self._note("maximum", a, b)
        return super().maximum(a, b)

    def minimum(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        self._note("minimum", a, b)
        return super().minimum(a, b)

    def logical_and(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        self._note("logical_and", a, b)
        return super().logical_and(a, b)

    def logical_or(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        self._note("logical_or", a, b)
        return super().logical_or(a, b)

    def floor_divide(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        self._note("floor_divide", a, b)
        return super().floor_divide(a, b)

    def remainder(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        self._note("floor_divide", a, b)
        return super().remainder(a, b)

    def cast(self, a: DegreeValue, kind: Kind) -> DegreeValue:
        if kind == "bool" and a.kind != "bool":
            self._note("ne", a, self.constant(0, a.kind))
        return super().cast(a, kind)

    def order(self, a: DegreeValue, axis: int, descending: bool) -> DegreeValue:
        self._note("order", a, a)
        value = super().order(a, axis, descending)
        self._ranges.pop(value.identity, None)
        return value

    # --- moved elements
    def flip(self, a: DegreeValue, axis: int) -> DegreeValue:
        return self._ranged(super().flip(a, axis), self.known(a))

    def take(self, a: DegreeValue, axis: int, indices: DegreeValue) -> DegreeValue:
        return self._ranged(super().take(a, axis, indices), self.known(a))

    def boxes(self, a: DegreeValue, places: Any, count: int) -> DegreeValue:
        return self._ranged(super().boxes(a, places, count), self.known(a))

    def reduce_max(self, a: DegreeValue, axis: int) -> DegreeValue:
        return self._ranged(super().reduce_max(a, axis), self.known(a))

    def reduce_min(self, a: DegreeValue, axis: int) -> DegreeValue:
        return self._ranged(super().reduce_min(a, axis), self.known(a))


def possible_outcomes(cone: Cone, events: Sequence[Event]) -> list[tuple[bool, bool]]:
    """Return for every decision if it may hold, and if it may not hold.

    ``events`` are the decisions of the same steps, in order. An extremum holds if the first operand
    is beyond the second, a quotient if it is any number.
    """
    either = [(True, True)] * len(events)
    algebra = _Ranges(cone.shaped)
    drawn = {}
    for value, fresh in cone.shaped.fresh.items():
        if fresh.kind != "field" or fresh.numbers:
            drawn[value] = algebra.fresh(fresh.key, fresh.shape, 1, fresh.domain, fresh.kind)
            if fresh.kind == "bool" or fresh.bounds is not None:
                low, high = fresh.bounds or (0, 2)
                algebra.ranged(drawn[value], (0, 1) if fresh.unread else (low, high - 1))
    try:
        cone.run(algebra, drawn)
    except PitcheckError:
        return either
    numbers: Counter[tuple[str, str]] = Counter()
    keys = []
    for event in events:
        keys.append((event.site, event.what, numbers[event.site, event.what]))
        numbers[event.site, event.what] += 1
    if set(keys) != set(algebra.noted):
        return either
    return [
        _possible(key[1], first, second) if first is not None and second is not None else (True, True)
        for key in keys
        for first, second in (algebra.noted[key],)
    ]


def _possible(what: str, a: Range, b: Range) -> tuple[bool, bool]:
    """Return if a decision may hold, and if it may not hold, for operands in two ranges."""
    if what == "maximum":
        return a[1] > b[0], a[0] < b[1]
    if what == "minimum":
        return a[0] < b[1], a[1] > b[0]
    if what == "floor_divide":
        return True, not (b[0] == b[1] > 0 and a[0] // b[0] == a[1] // b[0])
    if what == "logical_and":
        return a[1] == b[1] == 1, a[0] == 0 or b[0] == 0
    if what == "logical_or":
        return a[1] == 1 or b[1] == 1, a[0] == b[0] == 0
    for name in COMPARISONS:
        if name == what:
            held = decided(name, a, b)
            return held is not False, held is not True
    return True, True
