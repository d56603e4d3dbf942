"""The error of one draw of a stage, from bounds on degrees and from the integers of the draws.

>>> from pitcheck.algebra.bound.degree_bounds import DrawError
>>> vacuous(DrawError((-20.0,), 0.0, False)), "vacuous" in vacuous(DrawError((0.0,), 0.0, False))
('', True)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pitcheck.algebra.bound.degree_bounds import DrawError
from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.drawn_primes import Family, PrimeSource
from pitcheck.prove.bounds.free_degrees import FreeStageDegrees
from pitcheck.prove.bounds.redraws import MOST_REJECTED
from pitcheck.prove.bounds.stage_degrees import StageDegrees
from pitcheck.prove.bounds.supports import supports
from pitcheck.stage.evaluate import Comparison, Evaluated
from pitcheck.stage.shaped_stage import ShapedStage

MOST_BAD = 2.0**-6
"""The share of bad primes up to which bounds that hold for all integers are used."""


class DrawBounds:
    """The bounds on the error of one draw over primes of one family.

    ``worst`` is the largest error of all evaluations so far, None before the first one.
    ``counts_voids``: True if so many draws may be void that these are counted.
    """

    def __init__(
        self,
        shaped: ShapedStage,
        degrees: StageDegrees | FreeStageDegrees,
        family: Family,
        primes: PrimeSource,
    ) -> None:
        self.worst: DrawError | None = None
        self.counts_voids = False
        self._shaped = shaped
        self._degrees = degrees
        self._family = family
        self._primes = primes
        self._by_integers = False

    def of(
        self, chain: Chain, evaluated: Evaluated, comparisons: Sequence[Comparison]
    ) -> DrawError:
        """Return the error of one draw, the largest one of all evaluations so far.

        If too many primes may be bad for all integers, those of each evaluation count.
        """
        degrees = self._degrees
        if self.worst is None:
            one = self._error(degrees, chain, evaluated, comparisons)
            if isinstance(degrees, FreeStageDegrees) or not (vacuous(one) or one.bad > MOST_BAD):
                self.worst = one
                return one
            self._by_integers = True
        elif not self._by_integers:
            return self.worst
        bounds = StageDegrees.of(self._shaped, supports(self._shaped, evaluated))
        one = self._error(bounds, chain, evaluated, comparisons)
        self.worst = one if self.worst is None else self.worst.larger(one)
        return self.worst

    def _error(
        self,
        degrees: StageDegrees | FreeStageDegrees,
        chain: Chain,
        evaluated: Evaluated,
        comparisons: Sequence[Comparison],
    ) -> DrawError:
        """Return the error of one draw by bounds on degrees."""
        heights = self._primes.heights(self._family, degrees.irrational)
        one, rejected = degrees.error(evaluated, comparisons, chain, heights)
        self.counts_voids = self.counts_voids or rejected > MOST_REJECTED
        if self.counts_voids:
            return one
        levels = tuple(level - math.log2(1 - rejected) for level in one.levels)
        return one._replace(levels=levels)


def vacuous(one: DrawError) -> str:
    """Return why the bound of a draw says nothing, or ""."""
    if max(one.levels) >= 0:
        return "the degree bound is vacuous: the stage is too large for primes below 2^31"
    if one.agreeing(math.inf) >= 0:
        return (
            "the numbers of the stage are so large that too many primes below 2^31 may divide them"
        )
    return ""
