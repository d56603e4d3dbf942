"""A stage tried on real numbers: what its decisions make of inputs of many magnitudes.

Residues have an order of their own, in which nothing tells a threshold 3 from 4. The real numbers
tell: a stage that decides anything is also evaluated on float64, at inputs of many magnitudes,
close to the numbers that its steps name, small integers with ties, and of one sign. A difference
far beyond rounding refutes it. What none of these inputs made happen (a condition that never held,
a product of decisions that was always 0, an element that never came first) was not compared at all,
and is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.discrete import Choice
from pitcheck.algebra.interface import Comparison as Comparisons
from pitcheck.algebra.interface import Kind
from pitcheck.algebra.reals.noisy import DISTURBANCE, Noise
from pitcheck.algebra.structure import aligned
from pitcheck.algebra.value import LEADING, Value
from pitcheck.errors import PitcheckError
from pitcheck.ops.registry import BACKWARD
from pitcheck.prove.depending_choices import depending_on_order
from pitcheck.prove.routing import Routing
from pitcheck.prove.thresholds import COARSE, Guard, Thresholds, guards
from pitcheck.prove.trial_inputs import (
    FIRST_ALIKE,
    FIRST_RAISED,
    FIRST_SCALED,
    SORTS,
    WAYS,
    Points,
    Raising,
    TrialInputs,
    points_of,
)
from pitcheck.stage.evaluate import Comparison, compare_target, evaluate_stage
from pitcheck.stage.literals import numbers
from pitcheck.stage.stage import ShapedStage

Bools = NDArray[np.bool_]

TRIALS = 2 * len(SORTS)
CHEAP_TRIALS = 8 * len(SORTS)
"""Trials of a stage of few elements, which cost no more than the calls they need anyway."""
CHEAP_CELLS = 1 << 15
MORE_TRIALS = 16 * len(SORTS)
"""Trials of the second round, for what the first one left open; twice as many each time that
something still is.
"""
MOST_TRIALS = 48 * len(SORTS)
"""Trials of the second round altogether, however small the stage is."""
LEAST_TRIALS = 6
"""Trials of the first round, however large the stage is."""
AT_ONCE = 1 << 21
"""Input elements, over all trials, that are evaluated together."""
MOST_CELLS = 1 << 23
"""Input elements, over all trials, that the first round may cost."""
MORE_CELLS = 1 << 25
"""Those that the search for what it left open may."""
MOST_RAISED = 1 << 12
"""Trials in which places are raised, however few elements a stage has."""
BIASED = WAYS
"""Trials of lines that are alike, of a stage that routes tokens; so many more each time that
experts are not yet empty and flooded.
"""
MOST_BIASED = 6 * WAYS
MOST_PAIRS = 64
MOST_INSTANCES = 16
"""Up to so many pairs of an instance and a place, and whatever their number in up to so many
instances, each must have come first.
"""
LEAST_FIRST = 2
"""Places of an instance that must have come first where not all of them must."""
SAME = 1e-9
"""Relative difference, to the largest element of a trial and row, that counts as rounding without a
closer look.
"""
CLEAR = 1e4
"""How many times larger than what disturbing every operation does to either side a difference must
be.
"""
SHAKEN = 2.0**-40
"""By how much inputs are moved where derivatives are taken: what they are at a kink itself is a
convention, and no difference.
"""
DISTURBED = 12
"""Disturbed runs: a decision between two results that are equal but for rounding stays the same in
all of them once in 2^12.
"""
DUE = 8.0
"""In how many trials two things would meet at one element, if independent, before it is believed
that they exclude each other.
"""
FILL = 1e4
"""Numbers that a plan names, at least so large, are taken for what masks fill in."""
BESIDE_FILL = 2.0**-10
"""Results smaller than this part of such a number are not measured by it, nor by what else is as
large.
"""
MOST_LOOKS = 8
"""Trials of which differences are looked at more closely."""


@dataclass
class Meeting:
    """Of two things that count only together, in how many ``trials`` either did, per element, and
    both did, over all elements of every instance.

    Both factors of a product have to differ from 0; a condition matters where what it chooses
    between differs.
    """

    trials: int
    first: Any
    second: Any
    together: Any

    def plus(self, other: Meeting) -> Meeting:
        """Both counts added."""
        return Meeting(
            self.trials + other.trials,
            self.first + other.first,
            self.second + other.second,
            self.together + other.together,
        )

    @property
    def missed(self) -> bool:
        """Whether in some instance either was seen, but not both, for want of trials: where many
        were due, one excludes the other (x > 0 and x < 0).

        Elements of one instance may all go together, so that it is the trials that are counted.
        """
        due = (
            (self.first * (self.second / self.trials))
            .reshape(len(self.together), -1)
            .max(axis=1, initial=0.0)
        )
        return bool(((self.together == 0) & (due > 0) & (due < DUE)).any())


class TrialAlgebra(TrialInputs):
    """Trial inputs, with a record of what happened at every choice between two values and at every
    product.
    """

    def __init__(
        self,
        seed: int,
        trials: Sequence[int],
        points: Points,
        raising: Raising | None = None,
        factors: Sequence[float] = (),
    ) -> None:
        super().__init__(seed, trials, points, raising, factors)
        self.guards: list[Guard] = []
        """Comparisons with one number, and what was compared."""
        self.conditions: dict[str, tuple[Bools, Bools]] = {}
        """Per use of a bool value in which instances it was true, and false, anywhere."""
        self.meetings: dict[str, Meeting] = {}
        """Per product, minimum, maximum or choice behind a decision how often both sides of it
        counted, and how often together.
        """

    def shift(self, a: Value, axis: int) -> Value:
        """The maximum; it cancels, so that nothing is decided by it."""
        decisions, choices, counts = len(self.decisions), len(self.choices), dict(self._counts)
        result = super().shift(a, axis)
        del self.decisions[decisions:], self.choices[choices:]
        self._counts = counts
        return result

    def condition(self, mark: str, condition: Value) -> None:
        data = condition.data.reshape(*condition.data.shape[1:LEADING], -1)
        self.conditions[self._numbered(mark)] = (data.any(axis=(0, 2)), (~data).any(axis=(0, 2)))

    def _meeting(self, mark: str, a: Any, b: Any, both: Any) -> None:
        """Count bool arrays of shape (1, trials or 1, instances or 1, *shape)."""
        site = self._numbered(mark)
        if self.decisions:
            trials = len(self.trials)
            counts = [x.sum(axis=1)[0] * (trials if x.shape[1] == 1 else 1) for x in (a, b)]
            together = both.reshape(*both.shape[1:LEADING], -1).sum(axis=(0, 2))
            shape = np.broadcast_shapes(
                counts[0].shape, counts[1].shape, (len(together), *(1,) * (counts[0].ndim - 1))
            )
            self.meetings[site] = Meeting(
                trials,
                np.broadcast_to(counts[0], shape),
                np.broadcast_to(counts[1], shape),
                np.broadcast_to(together, shape[:1]),
            )

    def _product(self, mark: str, a: Value, b: Value, result: Value) -> Value:
        rank = result.rank
        self._meeting(
            mark, aligned(a.data, rank) != 0, aligned(b.data, rank) != 0, result.data != 0
        )
        return result

    def where(self, condition: Value, a: Value, b: Value) -> Value:
        self.condition("?", condition)
        rank = max(condition.rank, a.rank, b.rank)
        holds, differ = (
            aligned(condition.data, rank),
            aligned(a.data, rank) != aligned(b.data, rank),
        )
        self._meeting("&", holds, differ, holds & differ)
        return super().where(condition, a, b)

    def cast(self, a: Value, kind: Kind) -> Value:
        if a.kind == "bool" and kind != "bool":
            self.condition("!", a)
        return super().cast(a, kind)

    def multiply(self, a: Value, b: Value) -> Value:
        return self._product("*", a, b, super().multiply(a, b))

    def compare(self, comparison: Comparisons, a: Value, b: Value) -> Value:
        self._guarded(comparison, a, b)
        return super().compare(comparison, a, b)

    def _guarded(self, what: str, a: Value, b: Value) -> None:
        if len(self.trials) > 1:
            self.guards.extend(guards(self.site, what, a, b))

    def maximum(self, a: Value, b: Value) -> Value:
        self._guarded("maximum", a, b)
        return self._product("<", a, b, super().maximum(a, b))

    def minimum(self, a: Value, b: Value) -> Value:
        self._guarded("minimum", a, b)
        return self._product("<", a, b, super().minimum(a, b))


class _Disturbed(Noise, TrialInputs):
    """The same inputs, every result disturbed; another disturbance for every ``number``. With
    ``shaken`` inputs are moved by ``SHAKEN``, too.
    """

    def __init__(self, plain: TrialAlgebra, trial: int, number: int, shaken: bool) -> None:
        super().__init__(plain.seed, [trial], plain.points, plain.raising, plain.factors)
        self.generator = np.random.default_rng([plain.seed, trial, number])
        self.shaken = shaken

    def fresh(
        self, key: str, shape: Sequence[int], instances: int = 1, domain: Any = "any"
    ) -> Value:
        """The fresh values of the plain algebra, or others right beside them."""
        value = super().fresh(key, shape, instances, domain)
        if not self.shaken:
            return value
        by = SHAKEN * self.generator.uniform(
            0.5 if domain == "square" else -1.0, 1.0, value.data.shape
        )
        return Value("field", value.data + by * np.maximum(1.0, np.abs(value.data)))


class _Ranged(TrialInputs):
    """The same inputs, with a note of whether finite numbers gave one that is too large or too
    small for float64. A quotient by 0 does not count.
    """

    left = False

    def _noted(self, result: Value, *operands: Value) -> Value:
        finite = all(bool(np.isfinite(a.data).all()) for a in operands)
        self.left = self.left or (
            bool(np.isinf(result.data).any())
            and (finite or not any(np.isinf(a.data).any() for a in operands))
        )
        return result

    def exp(self, a: Value) -> Value:
        """exp(x) is never 0 but of minus infinity."""
        result = self._noted(super().exp(a), a)
        self.left = self.left or bool(((result.data == 0) & (a.data != -np.inf)).any())
        return result

    def multiply(self, a: Value, b: Value) -> Value:
        result = super().multiply(a, b)
        if a.kind != "field":
            return result
        rank = result.rank
        vanished = (result.data == 0) & (aligned(a.data, rank) != 0) & (aligned(b.data, rank) != 0)
        self.left = self.left or bool(vanished.any())
        return self._noted(result, a, b)

    def divide(self, a: Value, b: Value) -> Value:
        result = super().divide(a, b)
        self.left = self.left or bool(
            (
                (result.data == 0)
                & (aligned(a.data, result.rank) != 0)
                & np.isfinite(aligned(b.data, result.rank))
            ).any()
        )
        return result if bool((b.data == 0).any()) else self._noted(result, a, b)

    def power(self, a: Value, exponent: int) -> Value:
        result = super().power(a, exponent)
        self.left = self.left or bool(((result.data == 0) & (a.data != 0)).any())
        return result if exponent < 0 else self._noted(result, a)

    def add(self, a: Value, b: Value) -> Value:
        return self._noted(super().add(a, b), a, b) if a.kind == "field" else super().add(a, b)

    def subtract(self, a: Value, b: Value) -> Value:
        return (
            self._noted(super().subtract(a, b), a, b)
            if a.kind == "field"
            else super().subtract(a, b)
        )

    def sum(self, a: Value, axes: Sequence[int]) -> Value:
        return self._noted(super().sum(a, axes), a) if a.kind == "field" else super().sum(a, axes)

    def matmul(self, a: Value, b: Value) -> Value:
        return self._noted(super().matmul(a, b), a, b)


class RealTrials:
    """What was tried on real numbers of one stage, at most ``at_once`` trials together."""

    def __init__(
        self, shaped: ShapedStage, seed: int, at_once: int, routing: Routing | None = None
    ) -> None:
        self.shaped = shaped
        self._routing = routing
        self._biased = 0
        self.seed = seed
        self.at_once = at_once
        self.domains = False
        """Whether a NaN on one side alone counts in all trials: where one side alone may have no
        value.
        """
        named = numbers(shaped.stage.reference) | numbers(shaped.stage.parallel)
        self.points = points_of(named)
        self._limits = sorted({abs(n) * BESIDE_FILL for n in named if abs(n) >= FILL}, reverse=True)
        self.choices: dict[str, Bools] = {}
        self._conditions: dict[str, tuple[Bools, Bools]] = {}
        self._meetings: dict[str, Meeting] = {}
        self._thresholds = Thresholds(
            bounded=routing is None and any(fresh.loads for fresh in shaped.fresh.values())
        )
        self._looks = MOST_LOOKS
        self._derives = any(
            step.kind.endswith(BACKWARD)
            for batch in (shaped.stage.reference, shaped.stage.parallel)
            for step in batch.steps
        )
        self._cells = max(
            1,
            sum(prod(f.shape) for f in shaped.fresh.values())
            + sum(d.cells for d in shaped.derived.values()),
        )

    def difference(self) -> Comparison | None:
        """A target that differs in the first round. Raises StepError where ordinary numbers cannot
        be computed with.
        """
        cheap = min(CHEAP_TRIALS, CHEAP_CELLS // self._cells)
        return self._try(
            [*range(self._affordable(max(TRIALS, cheap), LEAST_TRIALS)), *self._alike()],
            self._experts(),
        )

    def unseen(self) -> tuple[str, Comparison | None]:
        """(what no trial made happen, or ""; a difference found while looking for it)."""
        done, chunk, found = 0, MORE_TRIALS, self._straddled()
        affordable = self._affordable(MOST_TRIALS, 0)
        while (left := self._open()) and found is None and done < affordable:
            stop = min(affordable, done + chunk)
            found = self._try(range(CHEAP_TRIALS + done, CHEAP_TRIALS + stop))
            done, chunk = stop, 2 * chunk
        return left or self._thresholds.said(), found

    def _straddled(self) -> Comparison | None:
        """Look for inputs between thresholds that the sides do not share; a difference found
        meanwhile.
        """
        found: list[Comparison] = []

        def tried(factors: Sequence[float]) -> Sequence[Guard]:
            algebra = TrialAlgebra(
                self.seed,
                range(FIRST_SCALED, FIRST_SCALED + len(factors)),
                self.points,
                None,
                factors,
            )
            different = self._together(algebra)
            if different is not None:
                found.append(different)
            return algebra.guards

        if self._affordable(MOST_TRIALS, 0) >= len(COARSE):
            self._thresholds.search(tried)
        return found[0] if found else None

    def cover(self, chosen: Mapping[str, Bools]) -> tuple[str, Comparison | None]:
        """Raise elements until each of every axis that is ordered came first; (a site where one
        never did, or ""; a difference found meanwhile).

        ``chosen`` are places seen elsewhere, per site, shape (instances, places).
        """
        tried: dict[Raising, int] = {}
        shapes = [fresh.shape for fresh in self.shaped.fresh.values()]
        found = None
        while (site := uncovered(chosen, self.choices)) and found is None:
            raising = Raising.among(shapes, chosen[site].shape[1], len(chosen[site]))
            done, left = (
                tried.get(raising, 0),
                self._affordable(MOST_RAISED, 0) - sum(tried.values()),
            )
            stop = min(
                done + max(_first_raised(shapes, raising), done),
                _most_raised(shapes, raising),
                done + left,
            )
            if stop <= done:
                break
            found = self._try(range(FIRST_RAISED + done, FIRST_RAISED + stop), raising)
            tried[raising] = stop
        return site, found

    def bias(self) -> Comparison | None:
        """Make lines alike until tokens leave some experts empty and flood another; a difference
        found meanwhile.
        """
        found = None
        while (
            self._routing is not None
            and not self._routing.biased
            and found is None
            and self._biased < MOST_BIASED
        ):
            found = self._try(self._alike(), self._experts())
        return found

    def _alike(self) -> range:
        """The next trials of lines that are alike; none where no tokens are routed."""
        start = FIRST_ALIKE + self._biased
        self._biased += BIASED if self._routing is not None else 0
        return range(start, FIRST_ALIKE + self._biased)

    def _experts(self) -> Raising:
        return Raising(0 if self._routing is None else self._routing.places())

    def _affordable(self, trials: int, least: int) -> int:
        return max(least, min(trials, (MOST_CELLS if least else MORE_CELLS) // self._cells))

    def _try(self, trials: Sequence[int], raising: Raising | None = None) -> Comparison | None:
        together = max(1, min(AT_ONCE // self._cells, self.at_once))
        for start in range(0, len(trials), together):
            found = self._evaluate(trials[start : start + together], raising)
            if found is not None:
                return found
        return None

    def _evaluate(self, trials: Sequence[int], raising: Raising | None) -> Comparison | None:
        """Evaluate trials together; those that an operator refuses are left out, but for the first
        of all.
        """
        try:
            return self._together(TrialAlgebra(self.seed, trials, self.points, raising))
        except PitcheckError:
            if len(trials) == 1 and trials[0] == 0:
                raise
            found = (self._evaluate([t], raising) for t in trials) if len(trials) > 1 else iter(())
            return next((f for f in found if f is not None), None)

    def _together(self, algebra: TrialAlgebra) -> Comparison | None:
        """Evaluate the trials of an algebra and take in what they show: a difference, if there is
        one. Raises StepError.
        """
        with np.errstate(all="ignore"):
            evaluated = evaluate_stage(self.shaped, algebra)
            comparisons = [
                compare_target(self.shaped, evaluated, n)
                for n in range(len(self.shaped.stage.targets))
            ]
        self._take(algebra, comparisons)
        if self._routing is not None:
            self._routing.take(evaluated, np.ones(len(algebra.trials), dtype=np.bool_))
        return self._different(algebra, comparisons)

    def _take(self, algebra: TrialAlgebra, comparisons: Sequence[Comparison]) -> None:
        self._thresholds.take(algebra.guards)
        for number, comparison in enumerate(comparisons):
            if comparison.expected.kind == "bool":
                algebra.site = f"target {number}"
                algebra.condition("?", comparison.expected)
        for site, first in seen_first(algebra.choices).items():
            self.choices[site] = self.choices.get(site, False) | first
        for site, (true, false) in algebra.conditions.items():
            before = self._conditions.get(site, (False, False))
            self._conditions[site] = (before[0] | true, before[1] | false)
        for site, meeting in algebra.meetings.items():
            self._meetings[site] = (
                self._meetings[site].plus(meeting) if site in self._meetings else meeting
            )

    def _open(self) -> str:
        """What was never seen of what decisions between floating-point numbers lead to."""
        conditions = [
            site
            for site, (true, false) in self._conditions.items()
            if not (true.all() and false.all())
        ]
        meetings = [site for site, meeting in self._meetings.items() if meeting.missed]
        if not conditions and not meetings:
            return ""
        depending = depending_on_order(self.shaped)
        names = [
            f"a condition never had both outcomes: {site}"
            for site in conditions
            if site in depending
        ]
        names += [
            f"what decisions lead to never came about: {site}"
            for site in meetings
            if site in depending
        ]
        return names[0] if names else ""

    def _different(
        self, algebra: TrialAlgebra, comparisons: Sequence[Comparison]
    ) -> Comparison | None:
        for number, comparison in enumerate(comparisons):
            apart = _apart(
                comparison,
                np.array([self.domains or trial == 0 for trial in algebra.trials]),
                self._limits,
            )
            for index in np.flatnonzero(apart.reshape(len(apart), -1).any(axis=1)).tolist():
                if self._looks == 0:
                    return None
                self._looks -= 1
                if self._clear(algebra, comparison, number, index, apart[index]):
                    return comparison
        return None

    def _clear(
        self, algebra: TrialAlgebra, comparison: Comparison, number: int, index: int, apart: Bools
    ) -> bool:
        """Whether an element that is ``apart`` in a trial is so by far more than disturbing every
        operation moves it, on either side.
        """
        sides = [_of_trial(value, index) for value in (comparison.actual, comparison.expected)]
        moved: Any = 0.0
        with np.errstate(all="ignore"):
            apart = apart & ~(_alone(*sides) & self._overflows(algebra, index))
            if not apart.any():
                return False
            for disturbance in range(DISTURBED):
                try:
                    evaluated = evaluate_stage(
                        self.shaped,
                        _Disturbed(algebra, algebra.trials[index], disturbance, self._derives),
                    )
                    other = compare_target(self.shaped, evaluated, number)
                except PitcheckError:
                    return False
                for before, value in zip(sides, (other.actual, other.expected), strict=True):
                    moved = np.fmax(moved, _distance(before, _of_trial(value, 0)))
            distance = _distance(*sides)
            first, second = np.broadcast_arrays(*sides)
            scale = _scales(first, second, tuple(range(first.ndim)), self._limits)
            return bool((apart & (distance > CLEAR * np.maximum(moved, DISTURBANCE * scale))).any())

    def _overflows(self, algebra: TrialAlgebra, index: int) -> bool:
        """Whether in a trial something leaves the range of float64, so that a NaN may come from
        there.
        """
        ranged = _Ranged(algebra.seed, [algebra.trials[index]], algebra.points, algebra.raising)
        evaluate_stage(self.shaped, ranged)
        return ranged.left


def _first_raised(shapes: Sequence[tuple[int, ...]], raising: Raising) -> int:
    """How many trials are made first; twice as many each time that something still never came
    first.
    """
    own = [
        (shape, axis)
        for shape in shapes
        if len(shape) >= raising.rank
        for axis in raising.axes(shape)
        if 0 not in shape
    ]
    return max(
        (raising.apart(shape, axis)[0] * len(raising.axes(shape)) for shape, axis in own), default=1
    )


def _most_raised(shapes: Sequence[tuple[int, ...]], raising: Raising) -> int:
    """After how many trials every element has been raised and lowered."""
    return max(
        (
            raising.most(shape, axis) * len(raising.axes(shape))
            for shape in shapes
            if 0 not in shape
            for axis in raising.axes(shape)
        ),
        default=0,
    )


def seen_first(choices: Sequence[Choice], good: Any = True) -> dict[str, Bools]:
    """Per site which places came first in some of the ``good`` trials, shape (instances,
    places).
    """
    return {
        choice.site: choice.first[np.broadcast_to(good, len(choice.first))].any(axis=0)
        for choice in choices
    }


def uncovered(chosen: Mapping[str, Bools], more: Mapping[str, Bools]) -> str:
    """A site of ``chosen`` where some place never came first, there or in ``more``, or ""."""
    return next(
        (site for site, first in chosen.items() if not _covered(first | more.get(site, False))), ""
    )


def _covered(first: Bools) -> bool:
    """Whether every place came first in every instance, shape (instances, places).

    Of many places in many instances each must have come first in some instance, and in every
    instance ``LEAST_FIRST`` of them: all instances run the same operator, with the same attributes,
    and what is particular to one of them is not particular to one of its places.
    """
    if first.size <= MOST_PAIRS or len(first) <= MOST_INSTANCES:
        return bool(first.all())
    return bool(
        first.any(axis=0).all() and (first.sum(axis=1) >= min(LEAST_FIRST, first.shape[1])).all()
    )


def _of_trial(value: Value, index: int) -> Any:
    """Shape (rows, *shape)."""
    data = value.data[0]
    return data[index if len(data) > 1 else 0]


def _distance(a: Any, b: Any) -> Any:
    """How far two arrays are apart, element by element: of NaN and a number infinitely far, of
    discrete values 0 or 1.
    """
    if a.dtype.kind != "f":
        return (a != b).astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isnan(a) | np.isnan(b), np.inf, np.abs(a - b)))


def _scales(a: Any, b: Any, axes: tuple[int, ...], limits: Sequence[float]) -> Any:
    """The largest number over ``axes`` beside every element of either array, NaN and infinity left
    out; below each of ``limits`` the largest of those below it, as what a mask fills in says
    nothing of the rounding of what it leaves. ``limits`` are in descending order. 0 for discrete
    values.
    """
    if a.dtype.kind != "f":
        return 0.0
    finite = np.isfinite(a) & np.isfinite(b)
    size = np.maximum(np.abs(a), np.abs(b))
    scale = np.max(size, axis=axes, where=finite, initial=0.0, keepdims=True)
    for limit in limits:
        below = finite & (size < limit)
        scale = np.where(
            below, np.max(size, axis=axes, where=below, initial=0.0, keepdims=True), scale
        )
    return scale


def _alone(a: Any, b: Any) -> Bools:
    """Where one side is NaN and the other a number."""
    found: Bools = (
        np.isnan(a) != np.isnan(b) if a.dtype.kind == "f" else np.zeros(a.shape, dtype=np.bool_)
    )
    return found


def _apart(comparison: Comparison, defined: Bools, limits: Sequence[float]) -> Bools:
    """Judged elements that differ by more than rounding usually does, shape (trials, rows, *shape).

    Infinite numbers are left to the residues, where they are values; a NaN on one side alone counts
    among the trials in which both sides should be ``defined``: beyond them what was cut at may have
    values that it never has in the plans.
    """
    a, b = np.broadcast_arrays(comparison.actual.data[0], comparison.expected.data[0])
    if comparison.expected.kind != "field":
        apart = a != b
    else:
        finite = np.isfinite(a) & np.isfinite(b)
        with np.errstate(all="ignore"):
            scale = _scales(a, b, tuple(range(2, a.ndim)), limits)
            apart = finite & (np.abs(a - b) > SAME * scale)
        apart |= (
            _alone(a, b)
            & (np.isfinite(a) | np.isfinite(b))
            & defined[: len(a)].reshape(-1, *(1,) * (a.ndim - 1))
        )
    result: Bools = apart & comparison.judged[:1]
    return result
