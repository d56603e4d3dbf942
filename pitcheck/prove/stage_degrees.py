"""The degrees of a stage's values: which primes it needs, and how likely a false target agrees in
one draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pitcheck.algebra.bound.degree_bounds import Degree, DrawError, Heights, Polynomial, draw_error
from pitcheck.algebra.bound.degree_values import log2_of
from pitcheck.algebra.bound.degrees import DegreeAlgebra, DegreeValue, rejected_share
from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.drawn_primes import Family, squares_for
from pitcheck.errors import UsageError
from pitcheck.stage.evaluate import Comparison, Evaluated, evaluate_stage
from pitcheck.stage.inputs import Fresh
from pitcheck.stage.shaped_stage import ShapedStage

UNLINKED = 3
"""Primes of a draw where no exponential ties them to each other."""


@dataclass(frozen=True)
class StageDegrees:
    """Bounds for both sides of every target of a stage."""

    algebra: DegreeAlgebra
    targets: tuple[tuple[Degree, Degree], ...]

    @classmethod
    def of(cls, shaped: ShapedStage) -> StageDegrees:
        """Those of a stage at its sizes. Raises StepError."""
        algebra = DegreeAlgebra(shaped.weights)
        drawn = {value: _drawn(algebra, fresh) for value, fresh in shaped.fresh.items()}
        values = evaluate_stage(shaped, algebra, drawn)
        cuts = [target.cut for target in shaped.stage.targets]
        return cls(
            algebra,
            tuple(
                (values.parallel[cut.value].degree, values.reference[cut.reference].degree)
                for cut in cuts
            ),
        )

    @property
    def irrational(self) -> int:
        """How often a root of a number is taken that is not rational."""
        return self.algebra.irrational

    @property
    def has_roots(self) -> bool:
        """Whether there are roots in a target."""
        return any(degree.roots for both in self.targets for degree in both)

    @property
    def decides(self) -> bool:
        """Whether something occurs by which the sides may differ on real numbers, although they
        agree over residues.
        """
        return any(degree.heuristic for both in self.targets for degree in both) or any(
            a.has_root != b.has_root for a, b in self.targets
        )

    def families(self, lengths: Sequence[int]) -> Iterator[Family]:
        """From which primes may be drawn, one family after the other: linked ones, of several
        lengths, where there is an exponential.
        """
        squares = squares_for(self.algebra.roots_of)
        if not self.algebra.exponential:
            yield Family(UNLINKED, False, squares)
            return
        for length in lengths:
            yield _with_squares(length, squares)

    def error(
        self,
        evaluated: Evaluated,
        comparisons: Sequence[Comparison],
        chain: Chain,
        heights: Heights,
    ) -> tuple[DrawError, float]:
        """(how likely a false target agrees in one draw, a bound on the share of void draws)."""
        exact = evaluated.algebra
        errors = []
        for (actual, expected), comparison in zip(self.targets, comparisons, strict=True):
            levels = sorted(
                set(exact.levels(comparison.actual)) & set(exact.levels(comparison.expected))
            )
            if exact.kind(comparison.actual) != "field":
                levels = [0]
            errors.append(draw_error(actual, expected, chain.primes, levels, heights))
        worst = max(
            errors, key=lambda error: error.log2, default=DrawError((-math.inf,), 0.0, False)
        )
        bad, heuristic = max((e.bad for e in errors), default=0.0), any(e.heuristic for e in errors)
        return worst._replace(bad=bad, heuristic=heuristic), rejected_share(
            self.algebra.divisions, chain.primes
        )


def _drawn(algebra: DegreeAlgebra, fresh: Fresh) -> DegreeValue:
    value = algebra.fresh(fresh.key, fresh.shape, 1, fresh.domain, fresh.kind)
    if fresh.kind == "field" and not fresh.numbers:
        return value
    largest = max((abs(int(n)) for n in (*(fresh.bounds or ()), *fresh.numbers)), default=1)
    return replace(value, top=Polynomial(value.top.degree, height_log2=log2_of(largest)))


def _with_squares(length: int, squares: int) -> Family:
    """The chains of a length with so many small squares, or with as many as there are
    chains for.
    """
    while squares > 1:
        try:
            return Family(length, True, squares)
        except UsageError:
            squares -= 1
    return Family(length)
