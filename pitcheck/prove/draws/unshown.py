"""Looks at a stage for what its redraws do not show: each evaluates it in an algebra of its own.

>>> import numpy as np
>>> from pitcheck.algebra.residues.chains import chains_of
>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.prove.bounds.stage_degrees import StageDegrees
>>> from pitcheck.prove.proof import Settings
>>> from pitcheck.stage.evaluate import compare_target, evaluate_stage
>>> from pitcheck.stage.shaped_stage import shape_reduced
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> shaped = shape_reduced(Problem.of(plan, plan).whole_stage())
>>> settings = Settings(np, 1, -64.0, 1, False, 1 << 30)
>>> algebras = StageAlgebras(shaped, settings, StageDegrees.of(shaped))
>>> def compared(algebra):
...     return [compare_target(shaped, evaluate_stage(shaped, algebra), 0)]
>>> Unshown(algebras, compared, at_once=2).domains(chains_of(3)[0]).lacking
''
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.signless_infinity import Cause
from pitcheck.errors import BudgetError
from pitcheck.prove.bounds.free_degrees import FreeStageDegrees, unmatched
from pitcheck.prove.domains.guards import Domains, domains, undefined
from pitcheck.prove.draws.stage_algebras import StageAlgebras
from pitcheck.prove.integers.joint import MOST_DRAWS, joint_draws
from pitcheck.prove.integers.marked_pairs import paired_draws
from pitcheck.prove.ties import tied_sites
from pitcheck.stage.evaluate import (
    Comparison,
)

UNMATCHED = "an operand of a quotient, root or logarithm has no like in the reference"
SIGNLESS = "infinity is multiplied or divided by a number that inputs may make 0 or of either sign"
"""The reasons, in messages, why a stage is left open for its domains."""
MOST_FURTHER = 1024
"""The draws that show pairs of values of integers. Of large stages fewer are evaluated."""
DRAWS_OF_TIES = 32
"""The draws in which some numbers that are compared are taken to be equal."""

Compared = Callable[[ResidueAlgebra], Sequence[Comparison] | None]
"""A function that evaluates a stage and compares its targets; None if levels do not suffice."""


class Unshown:
    """The looks at one stage, of which ``at_once`` redraws are evaluated together."""

    def __init__(self, algebras: StageAlgebras, compared: Compared, at_once: int) -> None:
        self._algebras = algebras
        self._compared = compared
        self._at_once = at_once

    def domains(self, chain: Chain) -> Domains:
        """Return where both sides have values, from draws over one chain of primes."""
        return domains(
            self._algebras.degrees.algebra.guards,
            partial(self._algebras.plain, chain),
            partial(self._algebras.undefined, chain),
            self._compared,
            self._at_once,
            partial(joint_draws, self._algebras.shaped, self._algebras.settings.seed),
        )

    def signless(self, algebra: ResidueAlgebra) -> str:
        """Return that the parallel plan needs an infinity whose sign is not known; else "".

        It may need one where the reference needs a number over 0, which has no value.
        """
        if not algebra.signless_infinity:
            return ""
        none, of_zero, of_infinity, of_both = (
            self._needing(algebra, frozenset(causes))
            for causes in ((), ("zero",), ("infinity",), ("infinity", "zero"))
        )
        needed = any(
            (own & ~before & ~without).any()
            for (own, _), (before, _), (_, without) in zip(of_infinity, none, of_zero, strict=True)
        )
        lacking = any((own & ~given).any() for own, given in of_both)
        return SIGNLESS if needed or lacking else ""

    def _needing(
        self, algebra: ResidueAlgebra, causes: frozenset[Cause]
    ) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
        """Return for every trial the elements of either side that need an infinity without sign."""
        again = self._algebras.undefined_of(algebra)
        again.without_signs = causes
        compared = self._compared(again)
        if compared is None:
            raise BudgetError("too few levels are left")
        return undefined(again, compared)

    def unmatched(self, algebra: ResidueAlgebra) -> str:
        """Return that what is compared needs a guard that no guard of the reference equals; or "".

        Guards are equal at all primes of every draw, which the error over tables counts.
        """
        if not isinstance(self._algebras.degrees, FreeStageDegrees):
            return ""
        places = unmatched(algebra, self._algebras.degrees.algebra.guards)
        if not places:
            return ""
        again = self._algebras.undefined_of(algebra)
        again.undefined = places
        compared = self._compared(again)
        needed = compared is None or any(own.any() for own, _ in undefined(again, compared))
        return UNMATCHED if needed else ""

    def further_difference(self, chain: Callable[[], Chain], number: int) -> Comparison | None:
        """Compare both sides where integers decide as they do in no redraw so far.

        Return a difference. ``number`` redraws were made, and ``chain`` gives one of primes that
        none of them had. No error is counted for such draws.
        """
        shaped, seed = self._algebras.shaped, self._algebras.settings.seed
        most = max(MOST_DRAWS, min(MOST_FURTHER, self._at_once))
        draws = joint_draws(shaped, seed, number) + paired_draws(shaped, seed, number, most)
        draws = list(dict.fromkeys(draws))
        for start in range(0, len(draws), self._at_once):
            algebra = self._algebras.plain(chain(), draws[start : start + self._at_once])
            compared = self._compared(algebra)
            good = ~np.asarray(algebra.void)
            different = next((each for each in compared or () if differs_in(each, good)), None)
            if different is not None:
                return different
        return None

    def differs_at_ties(self, chain: Callable[[], Chain], number: int) -> bool:
        """Return True if both sides differ where numbers that are compared are equal.

        Of an extremum either number may be taken there. The arguments are those of
        :meth:`further_difference`.
        """
        degrees = self._algebras.degrees.algebra
        tied = tied_sites(degrees.compared)
        if not tied or degrees.extrema or self._algebras.has_masks:
            return False
        algebra = self._algebras.tied(chain(), range(number, number + DRAWS_OF_TIES))
        algebra.tied = tied
        compared = self._compared(algebra)
        good = ~np.asarray(algebra.void)
        return any(differs_in(each, good) for each in compared or ())


def differs_in(comparison: Comparison, good: Any) -> bool:
    """Return True if both sides differ in a ``good`` trial."""
    differs = comparison.differs
    # An axis of stride 0 has one entry many times. Looked at once, it is not copied.
    few = tuple(slice(0, 1) if not stride else slice(None) for stride in differs.strides)
    each = differs[few].any(axis=tuple(range(1, differs.ndim)))
    return bool((np.broadcast_to(each, len(good)) & good).any())
