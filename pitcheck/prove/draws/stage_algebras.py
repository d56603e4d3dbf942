"""The algebras in which a stage at definite sizes is redrawn.

>>> import numpy as np
>>> from pitcheck.algebra.residues.chains import chains_of
>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.prove.proof import Settings
>>> from pitcheck.stage.shaped_stage import shape_reduced
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> shaped = shape_reduced(Problem.of(plan, plan).whole_stage())
>>> settings = Settings(np, 1, -64.0, 1, False, 1 << 30)
>>> algebras = StageAlgebras(shaped, settings, StageDegrees.of(shaped))
>>> algebras.plain(chains_of(3)[0], [0, 1]).trials
(0, 1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.free_functions import FreeAlgebra, WeightedFreeAlgebra
from pitcheck.algebra.residues.logarithm import Logarithm
from pitcheck.algebra.residues.undefined import (
    Undefined,
    UndefinedAlgebra,
    UndefinedFreeAlgebra,
    UndefinedWeightedAlgebra,
    UndefinedWeightedFreeAlgebra,
)
from pitcheck.algebra.residues.weights import WeightedAlgebra
from pitcheck.prove.bounds.free_degrees import FreeStageDegrees
from pitcheck.prove.bounds.stage_degrees import StageDegrees
from pitcheck.prove.proof import Settings
from pitcheck.prove.ties import Ties, TiesAlgebra, TiesWeightedAlgebra
from pitcheck.stage.shaped_stage import ShapedStage

Algebra = TypeVar("Algebra", bound=ResidueAlgebra)


@dataclass(frozen=True)
class StageAlgebras:
    """The algebras of one stage, with its settings and the degrees that were counted in it."""

    shaped: ShapedStage
    settings: Settings
    degrees: StageDegrees | FreeStageDegrees

    @property
    def has_masks(self) -> bool:
        """Return True if outcomes of comparisons are entries of tables."""
        return isinstance(self.degrees, FreeStageDegrees) and self.degrees.algebra.compares

    def plain(self, chain: Chain, redraws: Sequence[int]) -> ResidueAlgebra:
        """Return the algebra of some redraws over a chain of primes."""
        drawn = self.shaped, self.settings, chain, redraws
        if isinstance(self.degrees, FreeStageDegrees):
            return _over((FreeAlgebra, WeightedFreeAlgebra), drawn, **self.degrees.known)
        return _over((ResidueAlgebra, WeightedAlgebra), drawn)

    def undefined(self, chain: Chain, redraws: Sequence[int]) -> Undefined:
        """Return the same with undefined elements; a redraw may stand there several times."""
        drawn = self.shaped, self.settings, chain, redraws
        if isinstance(self.degrees, FreeStageDegrees):
            kinds = UndefinedFreeAlgebra, UndefinedWeightedFreeAlgebra
            return _over(kinds, drawn, **self.degrees.known)
        return undefined_algebra_of(*drawn)

    def undefined_of(self, algebra: ResidueAlgebra) -> Undefined:
        """Return the algebra of the same redraws with undefined elements.

        One trial alone would not tell what is drawn from what is constant, so there are two.
        """
        redraws = algebra.trials * 2 if len(algebra.trials) == 1 else algebra.trials
        return self.undefined(algebra.chain, redraws)

    def tied(self, chain: Chain, redraws: Sequence[int]) -> Ties:
        """Return the algebra of redraws in which numbers that are compared may be equal."""
        drawn = self.shaped, self.settings, chain, redraws
        return _over((TiesAlgebra, TiesWeightedAlgebra), drawn)


def undefined_algebra_of(
    shaped: ShapedStage,
    settings: Settings,
    chain: Chain,
    redraws: Sequence[int],
    logarithm: Logarithm | None = None,
) -> Undefined:
    """Return an algebra with undefined elements; a redraw may stand there several times.

    ``logarithm``: the tables of this chain, which are made anew without it.
    """
    kinds = UndefinedAlgebra, UndefinedWeightedAlgebra
    return _over(kinds, (shaped, settings, chain, redraws), logarithm=logarithm)


def _over(
    kinds: tuple[Callable[..., Algebra], Callable[..., Algebra]],
    drawn: tuple[ShapedStage, Settings, Chain, Sequence[int]],
    **more: Any,
) -> Algebra:
    """Return the algebra of a stage, settings, a chain of primes and redraws.

    ``kinds`` are the classes without and with weights for the places of reduced axes.
    """
    shaped, settings, chain, redraws = drawn
    given = settings.xp, chain, settings.seed, redraws
    more["formal_roots"] = settings.formal_roots
    plain, weighted = kinds
    return weighted(shaped.weights, *given, **more) if shaped.weights else plain(*given, **more)
