"""An observation: one mistake that the values of a run show by themselves.

Nothing is run again for it, so its finding never says that a repair was tried. Observations name
the cause where a plan is too large for repairs, and where no repair makes the outputs right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from pitcheck.claims.real_numbers import Floats
from pitcheck.explain.diagnosis import Diagnosis
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.expected_values import Root
from pitcheck.explain.wrong_values import WrongValues
from pitcheck.graph.cuts import Cut
from pitcheck.graph.grids import Codes
from pitcheck.stage.batch import Step
from pitcheck.stage.evaluate import Comparison

View = TypeVar("View")
"""The object that an observation looks at."""


@dataclass(frozen=True)
class Observation(Generic[View]):
    """One mistake that can be seen. ``see`` returns its diagnosis, or None if it is not there."""

    name: str
    see: Callable[[View], Diagnosis | None]


@dataclass(frozen=True)
class AtOperator:
    """An operator that reads what it should and computes something else, at ``root``."""

    expected: WrongValues
    root: Root

    @property
    def evidence(self) -> Evidence:
        """The values of the run."""
        return self.expected.evidence

    @property
    def step(self) -> Step:
        """The step of the operator."""
        return self.root.step

    @property
    def value(self) -> int:
        """Its result."""
        return self.root.value

    @property
    def codes(self) -> Codes:
        """The coordinates at which the result is wrong, shape (codes,)."""
        return self.root.codes

    @property
    def due(self) -> Cut | None:
        """The cut that the result should have, if it is known."""
        return self.root.due

    @cached_property
    def pair(self) -> tuple[Floats, Floats] | None:
        """The numbers that the result has and should have, shape (trials, codes, *shape) each.

        None if it is not known what it should have.
        """
        return None if self.due is None else self.expected.compared(self.value, self.codes)


@dataclass(frozen=True)
class OnTheWay:
    """A value from which a wrong output is computed."""

    evidence: Evidence
    value: int


@dataclass(frozen=True)
class AtOutput:
    """An output that is wrong."""

    evidence: Evidence
    comparison: Comparison

    @property
    def value(self) -> int:
        """The value that is compared."""
        return self.comparison.target.cut.value

    @cached_property
    def actual(self) -> Floats:
        """The numbers that it has, shape (trials, rows, *shape)."""
        return numbers_of(self.comparison.actual)

    @cached_property
    def wanted(self) -> Floats:
        """The numbers that it should have, shape (trials, rows, *shape)."""
        return numbers_of(self.comparison.expected)

    def at(self, codes: Codes) -> Codes:
        """Return all compared coordinates that hold the same rows as ``codes``, shape (codes,).

        The comparison itself has one coordinate per row.
        """
        rows = self.evidence.batch.rows[self.value]
        compared = self.comparison.target.codes
        every: Codes = compared[np.isin(rows[compared], rows[codes])]
        return every


def numbers_of(value: object) -> Floats:
    """Return the real numbers of a value of the algebra, shape (trials, rows, *shape)."""
    data: Floats = np.asarray(getattr(value, "data"), dtype=np.float64)[0]  # noqa: B009
    return data
