"""Which outcomes of its decisions a stage has been compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
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
    """Outcomes seen so far among residues, and on real numbers."""

    shaped: ShapedStage
    seed: int
    at_once: int
    """Trials on real numbers that are evaluated together."""
    decisions: dict[str, tuple[Counts, Counts]] = field(default_factory=dict)
    """Per site and row in how many redraws either outcome was seen."""
    _first: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    _reals: RealTrials | None = None
    _open: str | None = None
    _routing: Routing | None = None

    def __post_init__(self) -> None:
        self._routing = routing_of(self.shaped)

    @property
    def coverage(self) -> Coverage | None:
        """Where tokens went, in a stage that routes any."""
        return None if self._routing is None else self._routing.coverage()

    def try_reals(self, domains: bool = False) -> Comparison | None:
        """Evaluate the stage on real numbers as well: a difference, if there is one; with
        ``domains`` also in where it has a value. Raises StepError.
        """
        self._real_trials().domains = domains
        return self._real_trials().difference()

    def route(self, evaluated: Evaluated, good: Any) -> None:
        """Count where tokens went in the ``good`` redraws of an evaluation."""
        if self._routing is not None:
            self._routing.take(evaluated, good)

    def observe(self, algebra: ResidueAlgebra, good: Any, enough: int) -> str:
        """Count the ``good`` redraws of an evaluation; a site with an outcome not yet seen in
        ``enough``, or "".
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

    def unseen(self) -> tuple[str, Comparison | None]:
        """(what neither residues nor real numbers made happen, or ""; a difference found in the
        attempt). Real numbers are tried once.

        A way that too few tokens took comes first: an expert that nothing can choose never came
        first, either.
        """
        found = None
        if self._open is None:
            self._open = ""
            if self._reals is not None:
                self._open, found = self._reals.unseen()
            site = uncovered(self._first, {})
            if site and found is None:
                _, found = self._real_trials().cover(self._first)
            if self._routing is not None and not self._routing.biased and found is None:
                found = self._real_trials().bias()
        lacking = "" if self._routing is None else self._routing.lacking()
        site = uncovered(self._first, {} if self._reals is None else self._reals.choices)
        return lacking or self._open or (
            f"an element never came first: {site}" if site else ""
        ), found

    def _real_trials(self) -> RealTrials:
        self._reals = self._reals or RealTrials(self.shaped, self.seed, self.at_once, self._routing)
        return self._reals
