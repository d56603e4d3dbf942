"""Coverage: the outcomes of its decisions with which a stage has been compared.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shaped_stage import shape_reduced
>>> plan = one_operator("relu", [(2, 3)], (2, 3))
>>> outcomes = Outcomes(shape_reduced(Problem.of(plan, plan).whole_stage()), seed=1, at_once=8)
>>> outcomes.try_reals() is None, outcomes.unseen()
(True, ('', None))
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.prove.reals.real_trials import RealTrials, seen_first, uncovered
from pitcheck.prove.routing import Routing, routing_of
from pitcheck.prove.routing_counts import Coverage
from pitcheck.stage.evaluate import Comparison, Evaluated
from pitcheck.stage.shaped_stage import ShapedStage

Counts = NDArray[np.int64]


@dataclass
class Outcomes:
    """The outcomes seen so far among residues and on real numbers."""

    shaped: ShapedStage
    seed: int
    at_once: int
    """The number of trials on real numbers that are evaluated together."""
    decisions: dict[str, tuple[Counts, Counts]] = field(default_factory=dict)
    """The number of redraws in which either outcome was seen, per site and row."""
    _first: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    _reals: RealTrials | None = None
    _open: str | None = None
    _routing: Routing | None = None

    def __post_init__(self) -> None:
        self._routing = routing_of(self.shaped)

    @property
    def coverage(self) -> Coverage | None:
        """Return where tokens went; None for a stage that routes none."""
        return None if self._routing is None else self._routing.coverage()

    def try_reals(self, domains: bool = False) -> Comparison | None:
        """Evaluate the stage on real numbers, and return a comparison that differs, or None.

        With ``domains``, what is not finite on one side alone is a difference. Raises StepError.
        """
        self._real_trials().domains = domains
        return self._real_trials().difference()

    @property
    def routed(self) -> frozenset[int]:
        """The values of the parallel side at which tokens are counted."""
        return frozenset() if self._routing is None else self._routing.values

    def route(self, evaluated: Evaluated, good: Any) -> None:
        """Count where tokens went in the ``good`` redraws of an evaluation."""
        if self._routing is not None:
            self._routing.take(evaluated, good)

    def observe(self, algebra: ResidueAlgebra, good: Any, enough: int) -> str:
        """Count the decisions in the ``good`` redraws of an evaluation.

        Return a site with an outcome that was seen in fewer than ``enough`` redraws, or "".
        """
        for site, first in seen_first(algebra.choices, good).items():
            self._first[site] = self._first.get(site, False) | first
        lacking = ""
        for decision in algebra.decisions:
            counts = [
                (np.asarray(c)[good] > 0).sum(axis=0) for c in (decision.true, decision.false)
            ]
            before = self.decisions.get(decision.site)
            both = (
                (counts[0], counts[1])
                if before is None
                else (before[0] + counts[0], before[1] + counts[1])
            )
            self.decisions[decision.site] = both
            if (both[0] < enough).any() or (both[1] < enough).any():
                lacking = decision.site
        return lacking

    @property
    def never_first(self) -> str:
        """The site of a choice among which an element never came first over residues, or ""."""
        return uncovered(self._first, {})

    def unseen(self) -> tuple[str, Comparison | None]:
        """Try once on real numbers what residues did not show.

        A way that too few tokens took is named first: an expert that nothing can choose never came
        first, either.

        Returns:
            What neither residues nor real numbers made happen, or ""; a difference found on the
                way.
        """
        found = None
        if self._open is None:
            self._open = ""
            if self._reals is not None:
                self._open, found = self._reals.unseen()
            if self.never_first and found is None:
                _, found = self._real_trials().cover(self._first)
            if self._routing is not None and not self._routing.biased and found is None:
                found = self._real_trials().bias()
        lacking = "" if self._routing is None else self._routing.lacking()
        site = uncovered(self._first, {} if self._reals is None else self._reals.choices)
        return lacking or self._open or (
            f"an element never came first: {self.shaped.stage.operator_at(site)}" if site else ""
        ), found

    def _real_trials(self) -> RealTrials:
        if self._reals is None:
            shaped = _where_known(self.shaped)
            self._reals = RealTrials(shaped, self.seed, self.at_once, self._routing)
        return self._reals


def _where_known(shaped: ShapedStage) -> ShapedStage:
    """Return a stage whose numbers at cuts are positive if that is known of them."""
    positive = {
        value: replace(fresh, domain="positive")
        for value, fresh in shaped.fresh.items()
        if value in shaped.stage.positive and fresh.domain in ("any", "nonnegative")
    }
    return replace(shaped, fresh={**shaped.fresh, **positive}) if positive else shaped
