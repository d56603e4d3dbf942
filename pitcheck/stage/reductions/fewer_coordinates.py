"""A stage with only the coordinates that must be evaluated.

Along one dimension after the other, a few segments represent all that are treated the same way.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shapes import symbolic_pair
>>> plan = one_operator("exp", [(64, 3)], (64, 3))
>>> stage = Problem.of(plan, plan).whole_stage()
>>> symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts())
>>> KeepFewCoordinates().apply(Measured(stage, symbolic), Context()) is None  # there is one only
True
"""

from __future__ import annotations

from dataclasses import replace

from pitcheck.stage.pruned_batch import pruned_to
from pitcheck.stage.reductions.protocol import Context, Phase
from pitcheck.stage.reductions.sizes import Measured
from pitcheck.stage.reductions.sums import find_sum, with_fewer_terms
from pitcheck.stage.reductions.symmetry import Symmetry, find_symmetry
from pitcheck.stage.stage import Stage, compared_rows


class KeepFewCoordinates:
    """The choice of a few target coordinates of every symmetric class.

    The cones of a class are renamings of each other along a pure batch dimension. Why it decides
    both ways: what is claimed at two coordinates of a class is one claim about renamed rows
    (:mod:`pitcheck.stage.reductions.symmetry`). It assumes that the stage's dimensions are known,
    and that cuts hold whatever was proven of them at all coordinates.
    """

    name = "keep few coordinates"
    phase = Phase.COORDINATES
    refutes = True

    def apply(self, subject: Measured, context: Context) -> Measured | None:
        """Return the stage at fewer coordinates along one dimension; None if none is worthwhile."""
        found = find_symmetry(
            subject.stage,
            subject.symbolic,
            _keep(subject, context),
            context.seed,
            context.templates,
            subject.done(),
        )
        return (
            None
            if found is None
            else subject.left(_restricted(subject.stage, found), found, context.templates)
        )


class KeepFewTerms:
    """The choice of a few of the terms that coordinates add up over segments of a dimension.

    Why it decides both ways: n (f - g) = 0 holds for one number n of terms below every prime in use
    exactly if f = g. The sums agree for every n exactly if f = g, too
    (:mod:`pitcheck.stage.reductions.sums`). It assumes that symmetric coordinates were looked for
    first, which costs less.
    """

    name = "keep few terms"
    phase = Phase.COORDINATES
    refutes = True

    def apply(self, subject: Measured, context: Context) -> Measured | None:
        """Return the stage with fewer terms along one dimension; None if none is worthwhile."""
        found = find_sum(
            subject.stage,
            subject.symbolic,
            context.templates,
            _keep(subject, context),
            context.seed,
            subject.done(),
        )
        return (
            None
            if found is None
            else subject.left(
                with_fewer_terms(subject.stage, found), found.symmetry, context.templates
            )
        )


def _keep(subject: Measured, context: Context) -> int:
    """Return how many are kept of a class.

    It is more than one along one dimension alone: what is kept along several would be multiplied.
    """
    return 1 if subject.kept else 1 + context.variant


def _restricted(stage: Stage, symmetry: Symmetry) -> Stage:
    """Return the stage for the kept coordinates alone.

    What is proven of them holds for those that a stage of a few coordinates does not show, too.
    """
    target = replace(stage.targets[0], where=symmetry.where)
    rows = compared_rows(target, stage.parallel)[0][0]
    parallel = pruned_to(stage.parallel, {target.cut.value: rows})
    return stage.with_parallel(parallel, targets=(target,), sampling=None)
