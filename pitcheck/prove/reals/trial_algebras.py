"""The algebras in which a stage is tried on real numbers.

>>> x_and_y_together = Meeting(10, np.array([9]), np.array([8]), np.array([0]))
>>> x_and_y_together.missed  # it was due in 7 of 10 trials, which is too few to exclude it
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.interface import Comparison as Comparisons
from pitcheck.algebra.interface import Kind
from pitcheck.algebra.reals.noisy import Noise
from pitcheck.algebra.structure import aligned
from pitcheck.algebra.value import LEADING, Value
from pitcheck.prove.reals.thresholds import Guard, guards
from pitcheck.prove.reals.trial_inputs import (
    Points,
    Raising,
    TrialInputs,
)

Bools = NDArray[np.bool_]


SHAKEN = 2.0**-40
"""The distance by which inputs are moved where derivatives are taken. Their value at a kink itself
is a convention, and no difference.
"""


DUE = 8.0
"""The trials in which two things would meet at one element, if independent, before it is believed
that they exclude each other.
"""


@dataclass
class Meeting:
    """The counts of two things that matter only together.

    ``trials`` is their number. ``first`` and ``second`` count the trials in which either happened,
    per element, shape (instances, *shape). ``together`` counts those in which both did anywhere,
    shape (instances,). Both factors of a product have to differ from 0, for example; a condition
    matters where what it chooses between differs.
    """

    trials: int
    first: Any
    second: Any
    together: Any

    def plus(self, other: Meeting) -> Meeting:
        """Return both counts added."""
        return Meeting(
            self.trials + other.trials,
            self.first + other.first,
            self.second + other.second,
            self.together + other.together,
        )

    @property
    def missed(self) -> bool:
        """Return True if in some instance either was seen, but not both, for want of trials.

        If both were due in many trials, one excludes the other (x > 0 and x < 0). Elements of one
        instance may all go together, so the trials are counted.
        """
        due = (
            (self.first * (self.second / self.trials))
            .reshape(len(self.together), -1)
            .max(axis=1, initial=0.0)
        )
        return bool(((self.together == 0) & (due > 0) & (due < DUE)).any())


class TrialAlgebra(TrialInputs):
    """Trial inputs, with a record of what happened at every choice and every product."""

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
        """The comparisons with one number, and what was compared."""
        self.conditions: dict[str, tuple[Bools, Bools]] = {}
        """The instances in which a bool value was true, and false, anywhere, by its use."""
        self.meetings: dict[str, Meeting] = {}
        """The counts of both sides of every product, minimum, maximum or choice behind a decision,
        and how often they counted together.
        """

    def shift(self, a: Value, axis: int) -> Value:
        """Return the maximum. It cancels, so nothing is decided by it."""
        decisions, choices, counts = len(self.decisions), len(self.choices), dict(self._counts)
        result = super().shift(a, axis)
        del self.decisions[decisions:], self.choices[choices:]
        self._counts = counts
        return result

    def condition(self, mark: str, condition: Value) -> None:
        """Note in which instances a condition was true, and false, anywhere."""
        data = condition.data.reshape(*condition.data.shape[1:LEADING], -1)
        self.conditions[self._numbered(mark)] = (data.any(axis=(0, 2)), (~data).any(axis=(0, 2)))

    def _meeting(self, mark: str, a: Any, b: Any, both: Any) -> None:
        """Count boolean arrays of shape (1, trials or 1, instances or 1, *shape)."""
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
        """Note a product, minimum or maximum, and return its result."""
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
        """Note a comparison with one number."""
        if len(self.trials) > 1:
            self.guards.extend(guards(self.site, what, a, b))

    def maximum(self, a: Value, b: Value) -> Value:
        self._guarded("maximum", a, b)
        return self._product("<", a, b, super().maximum(a, b))

    def minimum(self, a: Value, b: Value) -> Value:
        self._guarded("minimum", a, b)
        return self._product("<", a, b, super().minimum(a, b))


class DisturbedAlgebra(Noise, TrialInputs):
    """The same inputs with every result disturbed, by another noise for every ``number``.

    With ``shaken`` inputs are moved by ``SHAKEN``, too.
    """

    def __init__(self, plain: TrialAlgebra, trial: int, number: int, shaken: bool) -> None:
        super().__init__(plain.seed, [trial], plain.points, plain.raising, plain.factors)
        self.generator = np.random.default_rng([plain.seed, trial, number])
        self.shaken = shaken

    def fresh(
        self, key: str, shape: Sequence[int], instances: int = 1, domain: Any = "any"
    ) -> Value:
        """Return the fresh values of the plain algebra, or others right beside them."""
        value = super().fresh(key, shape, instances, domain)
        if not self.shaken:
            return value
        by = SHAKEN * self.generator.uniform(
            0.5 if domain in ("square", "positive", "nonnegative") else -1.0, 1.0, value.data.shape
        )
        return Value("field", value.data + by * np.maximum(1.0, np.abs(value.data)))


class RangedAlgebra(TrialInputs):
    """The same inputs, with a note if finite numbers gave one that float64 cannot hold.

    That is one too large or too small for it. A quotient by 0 does not count.
    """

    left = False
    vanished = False
    """True if a number was divided by 0, or the logarithm of 0 was taken."""

    def _noted(self, result: Value, *operands: Value) -> Value:
        """Note whether a result is infinite although its operands are not, and return it."""
        finite = all(bool(np.isfinite(a.data).all()) for a in operands)
        self.left = self.left or (
            bool(np.isinf(result.data).any())
            and (finite or not any(np.isinf(a.data).any() for a in operands))
        )
        return result

    def exp(self, a: Value) -> Value:
        """Return exp(x), which is never 0 except for minus infinity."""
        result = self._noted(super().exp(a), a)
        self.left = self.left or bool(((result.data == 0) & (a.data != -np.inf)).any())
        return result

    def log(self, a: Value) -> Value:
        self.vanished = self.vanished or bool((a.data == 0).any())
        return super().log(a)

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
        if bool((b.data == 0).any()):
            self.vanished = True
            return result
        return self._noted(result, a, b)

    def power(self, a: Value, exponent: int) -> Value:
        result = super().power(a, exponent)
        self.left = self.left or bool(((result.data == 0) & (a.data != 0)).any())
        self.vanished = self.vanished or (exponent < 0 and bool((a.data == 0).any()))
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
