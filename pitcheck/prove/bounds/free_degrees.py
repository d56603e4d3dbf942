"""Stages whose functions are tables of random residues: their degrees, and their domains.

Such a proof is a theorem: it needs no chain of primes, and no estimate.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shaped_stage import shape_reduced
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> degrees = FreeStageDegrees.of(shape_reduced(Problem.of(plan, plan).whole_stage()))
>>> degrees.family.linked, degrees.has_roots, degrees.algebra.ordered
(False, False, False)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.backend import to_host
from pitcheck.algebra.bound.degree_bounds import DrawError, Heights
from pitcheck.algebra.bound.degree_values import DegreeValue
from pitcheck.algebra.bound.free_degrees import FreeDegreeAlgebra
from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.drawn_primes import Family, squares_for
from pitcheck.algebra.residues.prime import PrimeAlgebra
from pitcheck.algebra.residues.weights import degrees
from pitcheck.algebra.value import Value
from pitcheck.prove.bounds.stage_degrees import UNLINKED, drawn_degrees
from pitcheck.prove.domains.guard_factors import as_strong
from pitcheck.prove.domains.guards import PARALLEL, REFERENCE
from pitcheck.stage.evaluate import Comparison, Evaluated, evaluate_stage
from pitcheck.stage.shaped_stage import ShapedStage


@dataclass(frozen=True)
class FreeStageDegrees:
    """Bounds on the degrees of both sides of every target of a stage, over tables."""

    algebra: FreeDegreeAlgebra
    targets: tuple[tuple[DegreeValue, DegreeValue], ...]
    has_roots: bool = False
    decides: bool = False

    @classmethod
    def of(cls, shaped: ShapedStage) -> FreeStageDegrees:
        """Return the degrees of a stage at its sizes. Raises StepError."""
        algebra = FreeDegreeAlgebra(degrees(shaped.weights))
        drawn = drawn_degrees(algebra, shaped)
        values = evaluate_stage(shaped, algebra, drawn)
        cuts = [target.cut for target in shaped.stage.targets]
        return cls(
            algebra,
            tuple((values.parallel[cut.value], values.reference[cut.reference]) for cut in cuts),
            decides=algebra.sorts,
        )

    @property
    def known(self) -> dict[str, Any]:
        """Return what an algebra is told of sites.

        It is told of numbers under roots, of whole numbers, and of outcomes that signs decide.
        """
        algebra = self.algebra
        return {"numbers": algebra.numbers, "whole": algebra.whole, "decided": algebra.decided}

    @property
    def irrational(self) -> int:
        """Return 0: the error of a draw sees to roots of numbers itself."""
        return 0

    @property
    def family(self) -> Family:
        """Return the family of primes to draw from."""
        return Family(UNLINKED, False, squares_for(self.algebra.roots_of))

    def error(
        self,
        evaluated: Evaluated,  # noqa: ARG002 (all values have all levels)
        comparisons: Sequence[Comparison],  # noqa: ARG002
        chain: Chain,
        heights: Heights,
    ) -> tuple[DrawError, float]:
        """Return how likely a false target agrees in one draw, and how many draws may be void."""
        return self.algebra.draw_error(self.targets, chain.primes, heights)


def unmatched(
    algebra: PrimeAlgebra, guards: Collection[tuple[str, str]]
) -> Mapping[int, NDArray[np.bool_]]:
    """Return the operands of the parallel plan's partial operations that the reference lacks.

    ``guards``: (site, operation) of those that are not positive by construction. Operands are the
    same if their residues are, at all levels of every draw. The result has their elements by the
    number of the operand in ``guarded``, shape (1, instances, *shape).
    """
    found: dict[int, NDArray[np.bool_]] = {}
    for number, (site, what, value) in enumerate(algebra.guarded):
        if (site, what) not in guards or not site.startswith(PARALLEL):
            continue
        given = [
            _rows(algebra, v)[0].reshape(-1)
            for other, kind, v in algebra.guarded
            if other.startswith(REFERENCE) and kind in as_strong(what)
        ]
        rows, finite = _rows(algebra, value)
        known = np.isin(rows, np.concatenate(given)) if given else np.zeros(rows.shape, np.bool_)
        without = np.asarray((~known & finite).any(axis=0, keepdims=True))
        if without.any():
            found[number] = without
    return found


def _rows(algebra: PrimeAlgebra, value: Value) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
    """Return the draw's number and the residues at all levels of every element, as one item.

    Returns:
        The items, shape (trials, instances, *shape), and where they are finite, of the same shape.
    """
    value = algebra.plain(value)
    data = to_host(algebra.xp, value.data)
    special = np.zeros((1,) * data.ndim, np.uint8)
    if value.special is not None:
        special = to_host(algebra.xp, value.special)
    shape = np.broadcast_shapes(
        (len(algebra.trials), *data.shape[2:]), data.shape[1:], special.shape[1:]
    )
    numbers = np.arange(shape[0], dtype=np.int64).reshape(-1, *(1,) * (len(shape) - 1))
    columns = [np.broadcast_to(column, shape) for column in (numbers, *data)]
    items = np.ascontiguousarray(np.stack(columns, axis=-1))
    finite = np.broadcast_to(special[0] == 0, shape)
    return items.view(np.dtype((np.void, 8 * len(columns))))[..., 0], finite
