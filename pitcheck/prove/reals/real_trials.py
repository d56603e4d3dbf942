"""A stage tried on real numbers: what its decisions make of inputs of many magnitudes.

The order of residues says nothing of the order of real numbers: it does not tell a threshold 3 from
4. So a stage that decides anything is also evaluated on float64, at inputs of many magnitudes,
close to the numbers that its steps name, small integers with ties, and of one sign. A difference
far beyond rounding refutes it. What none of these inputs made happen was not compared at all, and
is named. Examples are a condition that never held, a product of decisions that was always 0, and an
element that never came first.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shaped_stage import shape_reduced
>>> plan = one_operator("relu", [(2, 3)], (2, 3))
>>> trials = RealTrials(shape_reduced(Problem.of(plan, plan).whole_stage()), seed=1, at_once=8)
>>> trials.difference() is None, trials.unseen()
(True, ('', None))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from pitcheck.algebra.discrete import Choice
from pitcheck.algebra.reals.noisy import DISTURBANCE
from pitcheck.errors import PitcheckError
from pitcheck.ops.registry import BACKWARD
from pitcheck.prove.reals.depending_choices import depending_on_order
from pitcheck.prove.reals.real_distance import (
    clearly_apart,
    distances,
    of_trial,
    scales,
    unlike,
)
from pitcheck.prove.reals.thresholds import COARSE, Guard, Thresholds
from pitcheck.prove.reals.trial_algebras import (
    Bools,
    DisturbedAlgebra,
    Meeting,
    RangedAlgebra,
    TrialAlgebra,
)
from pitcheck.prove.reals.trial_inputs import (
    FIRST_ALIKE,
    FIRST_EQUAL,
    FIRST_RAISED,
    FIRST_SCALED,
    SORTS,
    WAYS,
    Raising,
    equal_numbers,
    points_of,
)
from pitcheck.prove.routing import Routing
from pitcheck.stage.evaluate import Comparison, Evaluated, Keeping, compare_target, evaluate_stage
from pitcheck.stage.literals import names_infinity, numbers
from pitcheck.stage.shaped_stage import ShapedStage

TRIALS = 2 * len(SORTS)
"""The trials of the first round."""
CHEAP_TRIALS = 8 * len(SORTS)
"""The trials of a stage of few elements, which cost no more than the calls they need anyway."""
CHEAP_CELLS = 1 << 15
"""The input elements, over all trials, of a stage of few elements."""
MORE_TRIALS = 16 * len(SORTS)
"""The trials of the second round, for what the first one left open. They double each time that
something still is.
"""
MOST_TRIALS = 48 * len(SORTS)
"""The trials of the second round altogether, however small the stage is."""
LEAST_TRIALS = 6
"""The trials of the first round, however large the stage is."""
AT_ONCE = 1 << 21
"""The input elements, over all trials, that are evaluated together."""
MOST_CELLS = 1 << 23
"""The input elements, over all trials, that the first round may cost."""
MORE_CELLS = 1 << 25
"""The input elements, over all trials, that the search for what it left open may cost."""
MOST_RAISED = 1 << 12
"""The trials in which places are raised, however few elements a stage has."""
BIASED = WAYS
"""The trials with lines that are nearly equal, of a stage that routes tokens. There are as many
more each time that experts are not yet empty and flooded.
"""
MOST_BIASED = 6 * WAYS
"""The most of these trials."""
MOST_PAIRS = 64
"""The number of pairs of an instance and a place up to which each must have come first."""
MOST_INSTANCES = 16
"""The number of instances up to which the same holds, whatever the number of pairs."""
LEAST_FIRST = 2
"""The places of an instance that must have come first if not all of them must."""
CLEAR = 1e4
"""The factor by which a difference must exceed what disturbing every operation does to either side.
"""
DISTURBED = 12
"""The number of disturbed runs. A decision between two results that differ by rounding alone stays
the same in all of them once in 2^12.
"""
FILL = 1e4
"""The size from which on numbers that a plan names are taken for what masks fill in."""
BESIDE_FILL = 2.0**-10
"""The part of such a number below which results are not measured by it, nor by what else is as
large.
"""
MOST_LOOKS = 8
"""The trials of which differences are looked at more closely."""
MOST_OUT_OF_RANGE = 64
"""The trials in which a side is not finite because something leaves the range of float64, after
which no more are looked at.
"""


class RealTrials:
    """The trials of one stage on real numbers, at most ``at_once`` of them together."""

    def __init__(
        self, shaped: ShapedStage, seed: int, at_once: int, routing: Routing | None = None
    ) -> None:
        self.shaped = shaped
        self._routing = routing
        self._keep = _keeping(shaped, routing)
        self._biased = 0
        self.seed = seed
        self.at_once = at_once
        self.domains = False
        """True if it counts in all trials what is not finite on one side alone."""
        self._nan_demanded = names_infinity(shaped.stage.reference)
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
        self._out_of_range = MOST_OUT_OF_RANGE
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
        """Return a target that differs in the first round, or None.

        Raises:
            StepError: the stage cannot be computed with ordinary numbers.
        """
        cheap = min(CHEAP_TRIALS, CHEAP_CELLS // self._cells)
        return (
            self._try(
                [*range(self._affordable(max(TRIALS, cheap), LEAST_TRIALS)), *self._alike()],
                self._experts(),
            )
            or self._where_all_are_equal()
        )

    def _where_all_are_equal(self) -> Comparison | None:
        """Return a difference at inputs that are one number everywhere, or None.

        What such inputs decide is not taken for seen: where all is 0, nothing that is chosen
        differs.
        """
        for trial in range(FIRST_EQUAL, FIRST_EQUAL + len(equal_numbers(self.points))):
            algebra = TrialAlgebra(self.seed, [trial], self.points)
            try:
                found = self._different(algebra, self._compared(algebra)[1])
            except PitcheckError:
                continue
            if found is not None:
                return found
        return None

    def unseen(self) -> tuple[str, Comparison | None]:
        """Look for what no trial has made happen.

        Returns:
            What still never happened, or ""; a difference found on the way.
        """
        done, chunk, found = 0, MORE_TRIALS, self._straddled()
        affordable = self._affordable(MOST_TRIALS, 0)
        while (left := self._open()) and found is None and done < affordable:
            stop = min(affordable, done + chunk)
            found = self._try(range(CHEAP_TRIALS + done, CHEAP_TRIALS + stop))
            done, chunk = stop, 2 * chunk
        return left or self._thresholds.said(), found

    def _straddled(self) -> Comparison | None:
        """Look for inputs between thresholds that the sides do not share.

        Return a difference found on the way.
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
        """Raise elements until each of every axis that is ordered came first.

        ``chosen`` are places seen elsewhere, per site, shape (instances, places).

        Returns:
            A site where a place never came first, or ""; a difference found on the way.
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
        """Make lines nearly equal until tokens leave some experts empty and flood another.

        Return a difference found on the way.
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
        """Return the next trials with lines that are nearly equal; none if no tokens are routed."""
        start = FIRST_ALIKE + self._biased
        self._biased += BIASED if self._routing is not None else 0
        return range(start, FIRST_ALIKE + self._biased)

    def _experts(self) -> Raising:
        """Return the raising of axes of as many places as there are experts."""
        return Raising(0 if self._routing is None else self._routing.places())

    def _affordable(self, trials: int, least: int) -> int:
        """Return how many of ``trials`` the elements of an input allow, at least ``least``."""
        return max(least, min(trials, (MOST_CELLS if least else MORE_CELLS) // self._cells))

    def _try(self, trials: Sequence[int], raising: Raising | None = None) -> Comparison | None:
        """Evaluate trials, as many together as fit, until one differs. Return the difference."""
        together = max(1, min(AT_ONCE // self._cells, self.at_once))
        for start in range(0, len(trials), together):
            found = self._evaluate(trials[start : start + together], raising)
            if found is not None:
                return found
        return None

    def _evaluate(self, trials: Sequence[int], raising: Raising | None) -> Comparison | None:
        """Evaluate trials together, without those that an operator refuses.

        It may not refuse the first of all. Return a difference, or None.
        """
        try:
            return self._together(TrialAlgebra(self.seed, trials, self.points, raising))
        except PitcheckError:
            if len(trials) == 1 and trials[0] == 0:
                raise
            found = (self._evaluate([t], raising) for t in trials) if len(trials) > 1 else iter(())
            return next((f for f in found if f is not None), None)

    def _together(self, algebra: TrialAlgebra) -> Comparison | None:
        """Evaluate the trials of an algebra and take in what they show.

        Return a difference, if there is one. Raises StepError.
        """
        evaluated, comparisons = self._compared(algebra)
        self._take(algebra, comparisons)
        if self._routing is not None:
            self._routing.take(evaluated, np.ones(len(algebra.trials), dtype=np.bool_))
        return self._different(algebra, comparisons)

    def _compared(self, algebra: TrialAlgebra) -> tuple[Evaluated, list[Comparison]]:
        """Evaluate the trials of an algebra and compare the targets. Raises StepError."""
        with np.errstate(all="ignore"):
            evaluated = evaluate_stage(self.shaped, algebra, keep=self._keep)
            return evaluated, [
                compare_target(self.shaped, evaluated, n)
                for n in range(len(self.shaped.stage.targets))
            ]

    def _take(self, algebra: TrialAlgebra, comparisons: Sequence[Comparison]) -> None:
        """Take in the choices, conditions and meetings of some trials."""
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
        """Return what decisions between floats lead to and no trial has shown, or ""."""
        conditions = [
            site
            for site, (true, false) in self._conditions.items()
            if not (true.all() and false.all())
        ]
        meetings = [site for site, meeting in self._meetings.items() if meeting.missed]
        if not conditions and not meetings:
            return ""
        depending = depending_on_order(self.shaped)
        said = {
            "a condition never had both outcomes": conditions,
            "what decisions lead to never came about": meetings,
        }
        names = (
            f"{what}: {self.shaped.stage.operator_at(site)}"
            for what, sites in said.items()
            for site in sites
            if site in depending
        )
        return next(names, "")

    def _different(
        self, algebra: TrialAlgebra, comparisons: Sequence[Comparison]
    ) -> Comparison | None:
        """Return a comparison that differs by more than rounding in some trial, or None."""
        for number, comparison in enumerate(comparisons):
            apart = clearly_apart(
                comparison,
                np.array([trial == 0 for trial in algebra.trials]),
                self._limits,
                nan_demanded=self._nan_demanded,
                domains=self.domains,
            )
            for index in np.flatnonzero(apart.reshape(len(apart), -1).any(axis=1)).tolist():
                if self._looks == 0 or self._out_of_range == 0:
                    return None
                inside = apart[index] & ~self._left_range(algebra, comparison, index)
                if not inside.any():
                    self._out_of_range -= 1
                    continue
                self._looks -= 1
                if self._clear(algebra, comparison, number, index, inside):
                    return comparison
        return None

    def _clear(
        self, algebra: TrialAlgebra, comparison: Comparison, number: int, index: int, apart: Bools
    ) -> bool:
        """Return True if an ``apart`` element of a trial differs by far more than rounding.

        Disturbing every operation moves neither side as far.
        """
        sides = [of_trial(value, index) for value in (comparison.actual, comparison.expected)]
        moved: Any = 0.0
        with np.errstate(all="ignore"):
            for disturbance in range(DISTURBED):
                try:
                    evaluated = evaluate_stage(
                        self.shaped,
                        DisturbedAlgebra(
                            algebra, algebra.trials[index], disturbance, self._derives
                        ),
                        keep=self._keep,
                    )
                    other = compare_target(self.shaped, evaluated, number)
                except PitcheckError:
                    return False
                for before, value in zip(sides, (other.actual, other.expected), strict=True):
                    moved = np.fmax(moved, distances(before, of_trial(value, 0)))
            distance = distances(*sides)
            first, second = np.broadcast_arrays(*sides)
            scale = scales(first, second, tuple(range(first.ndim)), self._limits)
            return bool((apart & (distance > CLEAR * np.maximum(moved, DISTURBANCE * scale))).any())

    def _left_range(self, algebra: TrialAlgebra, comparison: Comparison, index: int) -> Any:
        """Return where a side is not finite in a trial because of what float64 cannot hold.

        A NaN may come from there. So may an infinite number of the reference, or from a quotient
        by 0, which has no value.
        """
        actual, expected = (of_trial(v, index) for v in (comparison.actual, comparison.expected))
        found = unlike(actual, expected)
        if not found.any():
            return found
        ranged = RangedAlgebra(
            algebra.seed, [algebra.trials[index]], algebra.points, algebra.raising
        )
        with np.errstate(all="ignore"):
            evaluate_stage(self.shaped, ranged, keep=self._keep)
        return found & (ranged.left | (ranged.vanished & np.isinf(expected)))


def _keeping(shaped: ShapedStage, routing: Routing | None) -> Keeping:
    """Return the values that trials are compared by, and those at which tokens are counted."""
    targets = Keeping.targets(shaped)
    routed = frozenset() if routing is None else routing.values
    return Keeping(targets.reference, targets.parallel | routed)


def _first_raised(shapes: Sequence[tuple[int, ...]], raising: Raising) -> int:
    """Return how many trials are made first.

    There are twice as many each time that something still never came first.
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
    """Return after how many trials every element has been raised and lowered."""
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
    """Return per site which places came first in some of the ``good`` trials.

    The shape of each is (instances, places).
    """
    return {
        choice.site: choice.first[np.broadcast_to(good, len(choice.first))].any(axis=0)
        for choice in choices
    }


def uncovered(chosen: Mapping[str, Bools], more: Mapping[str, Bools]) -> str:
    """Return a site of ``chosen`` where some place never came first, or "".

    ``more`` has further places that came first, by site.
    """
    return next(
        (site for site, first in chosen.items() if not _covered(first | more.get(site, False))), ""
    )


def _covered(first: Bools) -> bool:
    """Return True if every place came first in every instance, shape (instances, places).

    With many places in many instances, each must have come first in some instance, and in every
    instance ``LEAST_FIRST`` of them. All instances run the same operator with the same attributes,
    and what is particular to one instance is not particular to one of its places.
    """
    if first.size <= MOST_PAIRS or len(first) <= MOST_INSTANCES:
        return bool(first.all())
    return bool(
        first.any(axis=0).all() and (first.sum(axis=1) >= min(LEAST_FIRST, first.shape[1])).all()
    )
