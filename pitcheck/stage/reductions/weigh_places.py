"""A weight for every place of the axes of a stage that are reduced and summed.

>>> WeighPlaces().refutes  # the real places all have the weight 1
False
"""

from __future__ import annotations

from dataclasses import replace

from pitcheck.algebra.residues.weights import patterns
from pitcheck.stage.reductions.protocol import Context, Phase
from pitcheck.stage.shaped_stage import ShapedStage


class WeighPlaces:
    """The weighing of every place of the axes that are reduced.

    Why a proof decides: what holds for all weights of a few places holds for more places than there
    are (:mod:`pitcheck.algebra.residues.weights`). A failure refutes nothing: the real places all
    have the weight 1. It assumes reduced sizes; numbers of terms that are divided by are no sizes
    of axes.
    """

    name = "weigh places"
    phase = Phase.WEIGHTS
    refutes = False

    def apply(self, subject: ShapedStage, context: Context) -> ShapedStage | None:
        """Return the stage with weights; None if no axis can have any."""
        plain = plain_sizes(subject) | context.unweighed
        weights = patterns(subject.sizes.system, subject.sizes, plain)
        return replace(subject, weights=weights) if weights else None


def plain_sizes(subject: ShapedStage) -> set[int]:
    """Return the numbers of terms of sums, along which there are no weights."""
    plain = {term[2] for derived in subject.derived.values() for term in derived.terms}
    return plain | {int(target.cut.parts.terms.max(initial=1)) for target in subject.stage.targets}
