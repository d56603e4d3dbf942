"""Which outcomes of its decisions a stage has been compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.residues import ResidueAlgebra
from pitcheck.check.evaluate import Comparison
from pitcheck.check.real_trials import RealTrials, seen_first, uncovered
from pitcheck.stages.pair import ShapedStage

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

    def try_reals(self) -> Comparison | None:
        """Evaluate the stage on real numbers as well: a difference, if there is one. Raises StepError."""
        self._reals = RealTrials(self.shaped, self.seed, self.at_once)
        return self._reals.difference()

    def observe(self, algebra: ResidueAlgebra, good: Any, enough: int) -> str:
        """Count the ``good`` redraws of an evaluation; a site with an outcome not yet seen in ``enough``, or ""."""
        for site, first in seen_first(algebra.choices, good).items():
            self._first[site] = self._first.get(site, False) | first
        lacking = ""
        for decision in algebra.decisions:
            counts = [(np.asarray(c)[good] > 0).sum(axis=0) for c in (decision.true, decision.false)]
            before = self.decisions.get(decision.site)
            both = (counts[0], counts[1]) if before is None else (before[0] + counts[0], before[1] + counts[1])
            self.decisions[decision.site] = both
            if (both[0] < enough).any() or (both[1] < enough).any():
                lacking = decision.site
        return lacking

    def unseen(self) -> tuple[str, Comparison | None]:
        """(what neither residues nor real numbers made happen, or ""; a difference found in the attempt). Real numbers are tried once."""
        found = None
        if self._open is None:
            self._open = ""
            if self._reals is not None:
                self._open, found = self._reals.unseen()
            site = uncovered(self._first, {})
            if site and found is None:
                self._reals = self._reals or RealTrials(self.shaped, self.seed, self.at_once)
                _, found = self._reals.cover(self._first)
        site = uncovered(self._first, {} if self._reals is None else self._reals.choices)
        return self._open or (f"an element never came first: {site}" if site else ""), found
