"""The one list of stage reductions, in the order in which they act, and what runs them.

A new reduction is a class in a file beside this one and a line in the list:
``test_reductions.py`` then compares what it leaves of every stage of the test zoo with
the stage itself, right ones and wrong ones.

>>> [reduction.name for reduction in STAGE_REDUCTIONS if reduction.phase is Phase.ROWS]
['sum target terms', 'split all-to-all']
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from pitcheck.errors import UnsupportedError
from pitcheck.stage.reductions.drop_unused_buffer_parts import DropUnusedBufferParts
from pitcheck.stage.reductions.fewer_coordinates import KeepFewCoordinates, KeepFewTerms
from pitcheck.stage.reductions.free_variables import FreeVariables
from pitcheck.stage.reductions.protocol import Context, Phase, StageReduction
from pitcheck.stage.reductions.sizes import Measured, ReduceSizes
from pitcheck.stage.reductions.split_all_to_all import SplitAllToAll
from pitcheck.stage.reductions.sum_target_terms import SumTargetTerms
from pitcheck.stage.reductions.weigh_places import WeighPlaces
from pitcheck.stage.shapes import SymbolicPair
from pitcheck.stage.stage import Stage

Subject = TypeVar("Subject")
Reductions = Sequence[StageReduction[Any]]

STAGE_REDUCTIONS: Reductions = (
    DropUnusedBufferParts(),
    SumTargetTerms(),
    SplitAllToAll(),
    KeepFewCoordinates(),
    KeepFewTerms(),
    ReduceSizes(),
    FreeVariables(),
    WeighPlaces(),
)
"""All reductions. Those of one phase act in this order."""


def reduced(
    subject: Subject, phase: Phase, context: Context, reductions: Reductions = STAGE_REDUCTIONS
) -> Subject:
    """Return what the reductions of a phase leave of a stage; the stage itself if none applies.

    Raises what they raise.
    """
    for reduction in reductions:
        smaller: Subject | None = (
            reduction.apply(subject, context) if reduction.phase is phase else None
        )
        if smaller is None or smaller is subject:
            continue
        if phase.repeated:
            return reduced(smaller, phase, context, reductions)
        subject = smaller
    return subject


def measured(
    stage: Stage,
    symbolic: SymbolicPair,
    phases: Collection[Phase],
    context: Context,
    reductions: Reductions = STAGE_REDUCTIONS,
) -> Measured:
    """Return a stage at the coordinates and sizes at which it is evaluated.

    Without a phase among ``phases`` these are all coordinates, and full sizes.

    Raises:
        UnsupportedError: a stage that shows a few coordinates does not stand for all.
    """
    found = Measured(stage, symbolic)
    if Phase.COORDINATES in phases:
        found = reduced(found, Phase.COORDINATES, context, reductions)
        sampling, left = found.stage.sampling, found.stage
        if sampling is not None and (
            sampling.differing(cut.grid for cut in left.all_cuts())
            or sampling.crossed(left.parallel)
        ):
            raise UnsupportedError("a few coordinates do not stand for all")
    return reduced(found, Phase.SIZES, context, reductions) if Phase.SIZES in phases else found
