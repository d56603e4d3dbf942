"""Thresholds that the two sides do not share: whether a number between them was met.

x > 100 and x > 110 decide alike for every number that is not between 100 and 110. Where one side
compares with a number with which the other does not, what is compared must have been between it and
the nearest ones of the other side, below and above, in some trial: else nothing tells whether the
sides differ there. Comparisons of integers change between two of them: n <= 4 and n < 5 are one
threshold, 4.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from pitcheck.algebra.value import Value

_MIRRORED: dict[str, str] = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
_BETWEEN: dict[str, float] = {
    "le": 0.5,
    "gt": 0.5,
    "lt": -0.5,
    "ge": -0.5,
    "minimum": 0.5,
    "maximum": -0.5,
}
"""Where the outcome changes, for integers, from the number that is compared with."""

COARSE = tuple(2.0**step for step in range(-14, 15))
"""By how much inputs are scaled to find on which scale a threshold lies."""
FINE = 8
ROUNDS = 6
"""How often the scale is narrowed down, to one of ``FINE`` steps each time."""

Pair = tuple[str, float, float]
"""(kind of the numbers, two thresholds, the lower one first)."""


@dataclass(frozen=True)
class Guard:
    """A comparison with one number: at which ``site``, of values of which ``kind``, where it
    changes its outcome, and what is compared, array (trials, ...).
    """

    site: str
    kind: str
    number: float
    threshold: float
    compared: Any


def guards(site: str, what: str, a: Value, b: Value) -> Iterable[Guard]:
    """The comparison or extremum ``what`` of two values as a guard, where one of them is one number
    in all of several trials.
    """
    for value, other, name in ((a, b, what), (b, a, _MIRRORED.get(what, what))):
        number = _one_number(other)
        if (
            number is not None
            and value.kind in ("field", "int")
            and value.data.shape[1] > 1
            and name not in ("eq", "ne")
        ):
            moved = _BETWEEN[name] if value.kind == "int" else 0.0
            yield Guard(site, value.kind, number, number + moved, value.data[0])


def _one_number(value: Value) -> float | None:
    """The number that a value is in every element, whatever is drawn."""
    data = value.data[0]
    if data.shape[0] != 1 or not data.size or value.kind == "bool":
        return None
    first = data.reshape(-1)[0]
    return float(first) if np.isfinite(first) and bool((data == first).all()) else None


@dataclass
class Thresholds:
    """The thresholds of either side, and between which of them something was seen."""

    names: dict[tuple[str, str], dict[float, str]] = field(default_factory=dict)
    """By side and kind of the numbers: every threshold, with the comparison's number and step."""
    met: set[Pair] = field(default_factory=set)
    bounded: bool = False
    """Whether trials had as many elements alike as there are, so that no count goes beyond those
    seen.
    """
    _seen: dict[tuple[str, float], tuple[float, float]] = field(default_factory=dict)
    """By kind and threshold the least and the greatest number that was compared with it."""

    def take(self, seen: Sequence[Guard]) -> None:
        """Note the comparisons of some trials."""
        for guard in seen:
            side, _, step = guard.site.partition(" ")
            self.names.setdefault((side, guard.kind), {}).setdefault(
                guard.threshold, f"{guard.number:g} ({step})"
            )
            if guard.kind == "int" and guard.compared.size:
                low, high = self._seen.get((guard.kind, guard.threshold), (inf, -inf))
                self._seen[guard.kind, guard.threshold] = (
                    min(low, int(guard.compared.min())),
                    max(high, int(guard.compared.max())),
                )
        for pair in self.missing():
            kind, low, high = pair
            at = (
                guard.compared
                for guard in seen
                if guard.kind == kind and guard.threshold in (low, high)
            )
            if any(bool(((low < compared) & (compared < high)).any()) for compared in at):
                self.met.add(pair)

    def missing(self) -> list[Pair]:
        """The pairs between which nothing was seen."""
        found: list[Pair] = []
        for kind in ("field", "int"):
            sides = [self.names.get((side, kind), {}) for side in ("reference", "parallel")]
            for own, other in (sides, sides[::-1]):
                for number in own.keys() - other.keys():
                    found += [
                        (kind, min(number, n), max(number, n)) for n in _nearest(number, other)
                    ]
        return sorted({pair for pair in found if pair not in self.met and not self._beyond(pair)})

    def _beyond(self, pair: Pair) -> bool:
        """Whether no integer comes between a pair: all that are compared lie on one side of it, in
        trials that had the greatest counts there are.
        """
        kind, low, high = pair
        ranges = [self._seen[kind, n] for n in (low, high) if (kind, n) in self._seen]
        return (
            self.bounded
            and kind == "int"
            and (all(top < low for _, top in ranges) or all(bottom > high for bottom, _ in ranges))
        )

    def said(self) -> str:
        """A sentence about a pair between which nothing was seen, or ""."""
        for kind, *numbers in self.missing():
            names = [
                " and ".join(
                    f"{side} {own[n]}"
                    for (side, of), own in sorted(self.names.items())
                    if of == kind and n in own
                )
                for n in numbers
            ]
            return (
                f"a number between two thresholds that decide differently was never met: "
                f"{' and '.join(names)}"
            )
        return ""

    def search(self, tried: Callable[[Sequence[float]], Sequence[Guard]]) -> None:
        """Look for scales of the inputs at which something lies between; ``tried`` tries scales, in
        ascending order, and gives the comparisons seen.
        """
        for pair in self.missing():
            scales: Sequence[float] = COARSE
            for _ in range(ROUNDS):
                if pair in self.met or len(scales) < 2:
                    break
                scales = _bracket(scales, tried(scales), pair)


def _nearest(number: float, others: Iterable[float]) -> list[float]:
    below, above = [n for n in others if n < number], [n for n in others if n > number]
    return [*sorted(below)[-1:], *sorted(above)[:1]]


def _bracket(scales: Sequence[float], seen: Sequence[Guard], pair: Pair) -> Sequence[float]:
    """Finer scales between two of ``scales``, at one of which a compared element is below and at
    the other above the pair; none where there are no such.
    """
    kind, low, high = pair
    for guard in seen:
        if (
            guard.kind != kind
            or guard.threshold not in (low, high)
            or len(guard.compared) != len(scales)
        ):
            continue
        compared = guard.compared.reshape(len(scales), -1)
        under, over = compared <= low, compared >= high
        crossing = ((under[:-1] & over[1:]) | (over[:-1] & under[1:])).any(axis=1)
        if crossing.any():
            first = int(crossing.argmax())
            return tuple(np.geomspace(scales[first], scales[first + 1], FINE + 1).tolist())
    return ()
