"""The degrees of a stage's values: they tell which primes it needs, and the error of one draw.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shaped_stage import shape_reduced
>>> plan = one_operator("sqrt", [(2, 3)], (2, 3))
>>> StageDegrees.of(shape_reduced(Problem.of(plan, plan).whole_stage())).has_roots
True
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pitcheck.algebra.bound.degree_bounds import Degree, DrawError, Heights, Polynomial, draw_error
from pitcheck.algebra.bound.degree_values import ABOVE_ZERO, Sign, Support, log2_of
from pitcheck.algebra.bound.degrees import DegreeAlgebra, DegreeValue, rejected_share
from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.drawn_primes import Family, squares_for
from pitcheck.algebra.residues.weights import degrees
from pitcheck.errors import UsageError
from pitcheck.stage.evaluate import Comparison, Evaluated, evaluate_stage
from pitcheck.stage.inputs import Fresh
from pitcheck.stage.shaped_stage import ShapedStage

UNLINKED = 3
"""The primes of a draw if no exponential ties them to each other."""


@dataclass(frozen=True)
class StageDegrees:
    """Bounds on the degrees of both sides of every target of a stage."""

    algebra: DegreeAlgebra
    targets: tuple[tuple[Degree, Degree], ...]

    @classmethod
    def of(cls, shaped: ShapedStage, supports: Mapping[str, Support] | None = None) -> StageDegrees:
        """Return the degrees of a stage at its sizes; ``supports``: those of some draws, by site.

        Raises StepError.
        """
        algebra = DegreeAlgebra(degrees(shaped.weights), supports)
        drawn = drawn_degrees(algebra, shaped)
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
        """Return how often a root of a number is taken that is not rational."""
        return self.algebra.irrational

    @property
    def has_roots(self) -> bool:
        """Return True if there are roots in a target."""
        return any(degree.roots for both in self.targets for degree in both)

    @property
    def has_functions(self) -> bool:
        """Return True if there is more than the operations of a field in a target."""
        return any(degree.uses or degree.exponents for both in self.targets for degree in both)

    @property
    def decides(self) -> bool:
        """Return True if the sides may differ on real numbers although they agree over residues."""
        return any(degree.heuristic for both in self.targets for degree in both) or any(
            a.has_root != b.has_root for a, b in self.targets
        )

    def families(self, lengths: Sequence[int]) -> Iterator[Family]:
        """Yield the families of primes to draw from, in the order in which they are tried.

        If there is an exponential, these are linked primes, in several ``lengths``.
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
        """Return how likely a false target agrees in one draw, and how many draws may be void.

        Returns:
            The error of one draw of the worst target; a bound on the share of void draws, in [0,
                1].
        """
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


def drawn_degrees(algebra: DegreeAlgebra, shaped: ShapedStage) -> dict[int, DegreeValue]:
    """Return the degrees of all that a stage draws."""
    drawn = {value: _degrees(algebra, fresh) for value, fresh in shaped.fresh.items()}
    facts = (shaped.stage.nonnegative, Sign.NONNEGATIVE), (shaped.stage.positive, ABOVE_ZERO)
    for known, sign in facts:
        for value in drawn.keys() & known:
            drawn[value] = replace(drawn[value], sign=drawn[value].sign | sign)
    return drawn


def _degrees(algebra: DegreeAlgebra, fresh: Fresh) -> DegreeValue:
    """Return the degrees of an input: a variable, or a number of bounded size."""
    value = algebra.fresh(fresh.key, fresh.shape, 1, fresh.domain, fresh.kind)
    if fresh.kind == "field" and not fresh.numbers:
        return value
    largest = max((abs(int(n)) for n in (*(fresh.bounds or ()), *fresh.numbers)), default=1)
    natural = fresh.kind == "int" and fresh.bounds is not None and fresh.bounds[0] >= 0
    return replace(
        value,
        top=Polynomial(value.top.degree, height_log2=log2_of(largest)),
        sign=value.sign | (Sign.NONNEGATIVE if natural else Sign(0)),
    )


def _with_squares(length: int, squares: int) -> Family:
    """Return the chains of a length with so many small squares, or with as many as exist."""
    while squares > 1:
        try:
            return Family(length, True, squares)
        except UsageError:
            squares -= 1
    return Family(length)
