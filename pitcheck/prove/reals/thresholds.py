"""Thresholds that the two sides do not share, and the numbers that were met between them.

x > 100 and x > 110 have one outcome for every number that is not between 100 and 110. Let one side
compare with a number with which the other does not. Then in some trial the compared value must have
been between that number and the nearest ones of the other side, below and above. Else nothing tells
if the sides differ there. Comparisons of integers change between two of them: n <= 4 and n < 5 are
one threshold, 4.5.

>>> _nearest(4.0, [1.0, 3.0, 7.0, 9.0])
[3.0, 7.0]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from pitcheck.algebra.interface import MIRRORED
from pitcheck.algebra.value import Value

_BETWEEN: dict[str, float] = {
    "le": 0.5,
    "gt": 0.5,
    "lt": -0.5,
    "ge": -0.5,
    "minimum": 0.5,
    "maximum": -0.5,
}
"""The distance, for integers, from the number that is compared with to where the outcome changes.
"""

COARSE = tuple(2.0**step for step in range(-14, 15))
"""The factors by which inputs are scaled to find the scale of a threshold."""
FINE = 8
"""The steps into which a scale is divided each time."""
ROUNDS = 6
"""The number of times that the scale is narrowed down."""

Pair = tuple[str, float, float]
"""(kind of the numbers, lower threshold, upper threshold)."""


@dataclass(frozen=True)
class Guard:
    """A comparison with one number.

    ``site`` and ``kind``: the step and the kind of the values. ``threshold``: where it changes its
    outcome. ``compared``: the values, shape (trials, ...).
    """

    site: str
    kind: str
    number: float
    threshold: float
    compared: Any


def guards(site: str, what: str, a: Value, b: Value) -> Iterable[Guard]:
    """Yield the comparison or extremum ``what`` of two values as a guard.

    One of them must be one number in all of several trials.
    """
    for value, other, name in ((a, b, what), (b, a, MIRRORED.get(what, what))):
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
    """Return the number that a value is in every element, whatever is drawn; None if it varies."""
    data = value.data[0]
    if data.shape[0] != 1 or not data.size or value.kind == "bool":
        return None
    first = data.reshape(-1)[0]
    return float(first) if np.isfinite(first) and bool((data == first).all()) else None


@dataclass
class Thresholds:
    """The thresholds of either side, and between which of them something was seen."""

    names: dict[tuple[str, str], dict[float, str]] = field(default_factory=dict)
    """Every threshold with the comparison's number and step, by side and kind of the numbers."""
    met: set[Pair] = field(default_factory=set)
    """The pairs between which something was seen."""
    bounded: bool = False
    """True if trials had as many equal elements as there are, so that no count exceeds those seen.
    """
    _seen: dict[tuple[str, float], tuple[float, float]] = field(default_factory=dict)
    """The least and the greatest number that was compared with a threshold, by kind and threshold.
    """

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
        """Return the pairs between which nothing was seen."""
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
        """Return True if no integer comes between a pair.

        All that are compared lie on one side of it, in trials that had the greatest counts there
        are.
        """
        kind, low, high = pair
        ranges = [self._seen[kind, n] for n in (low, high) if (kind, n) in self._seen]
        return (
            self.bounded
            and kind == "int"
            and (all(top < low for _, top in ranges) or all(bottom > high for bottom, _ in ranges))
        )

    def said(self) -> str:
        """Return a sentence about a pair between which nothing was seen, or ""."""
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
        """Look for scales of the inputs at which something lies between.

        ``tried`` tries scales, in ascending order, and returns the comparisons seen.
        """
        for pair in self.missing():
            scales: Sequence[float] = COARSE
            for _ in range(ROUNDS):
                if pair in self.met or len(scales) < 2:
                    break
                scales = _bracket(scales, tried(scales), pair)


def _nearest(number: float, others: Iterable[float]) -> list[float]:
    """Return the nearest of others below and above a number."""
    below, above = [n for n in others if n < number], [n for n in others if n > number]
    return [*sorted(below)[-1:], *sorted(above)[:1]]


def _bracket(scales: Sequence[float], seen: Sequence[Guard], pair: Pair) -> Sequence[float]:
    """Return finer scales between two of ``scales`` that lie on both sides of the pair.

    At one of them a compared element is below the pair and at the other above it. Return none if
    there are no such scales.
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
