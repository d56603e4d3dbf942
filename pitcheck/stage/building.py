"""Cutting a stage out of both plans, each side back to the same cut tensors.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> problem = Problem.of(plan, plan)
>>> given = problem.specification.initial.get
>>> stage = build_stage(problem.reference, problem.parallel, given, problem.targets())
>>> [step.kind for step in stage.parallel.steps]
['exp']
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from pitcheck.errors import UnsupportedError
from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import Graph
from pitcheck.graph.grids import Grid, Mask, either
from pitcheck.stage.batch import Batch, extract
from pitcheck.stage.reductions.pipeline import STAGE_REDUCTIONS, Reductions, reduced
from pitcheck.stage.reductions.protocol import Context, Phase
from pitcheck.stage.stage import CutOf, Stage, Target, constant_mask


def build_stage(
    first: Graph,
    second: Graph,
    cut_of: CutOf,
    targets: Sequence[Target],
    reductions: Reductions = STAGE_REDUCTIONS,
) -> Stage:
    """Cut out the cone of ``targets``, and apply the reductions that act on a new stage.

    ``cut_of`` gives the cut at which a parallel value may be taken as given: it must be proven
    elsewhere, or be initial. A target itself is never taken as given.

    Raises:
        UnsupportedError: something is needed that nothing computes.
    """
    parallel = _parallel(second, cut_of, targets)
    met = {
        value: cut
        for value in parallel.inputs
        if (cut := cut_of(value)) is not None and constant_mask(second, value) is None
    }
    reference = _reference(first, met.values(), targets)
    stage = reduced(
        Stage(reference, parallel, dict(met), tuple(targets), met),
        Phase.CUT_OUT,
        Context(),
        reductions,
    )
    _give_what_is_read(stage)
    return stage


def _parallel(graph: Graph, cut_of: CutOf, targets: Sequence[Target]) -> Batch:
    """Return the parallel side, from the cuts on."""
    own = {target.cut.value for target in targets}

    def boundary(value: int) -> Grid | None:
        constant = constant_mask(graph, value)
        cut = (
            None
            if constant is not None or (value in own and graph.values[value].writers)
            else cut_of(value)
        )
        return constant if cut is None else cut.grid

    masks: dict[int, Mask] = {}
    for target in targets:
        masks[target.cut.value] = either(masks.get(target.cut.value), target.where)
    batch = extract(graph, masks, boundary)
    _no_missing(batch, "parallel")
    return batch


def _reference(graph: Graph, cuts: Iterable[Cut], targets: Sequence[Target]) -> Batch:
    """Return the reference side, from the tensors on that the cuts are of."""
    given, everywhere = {cut.reference for cut in cuts}, _everywhere(graph)

    def boundary(value: int) -> Grid | None:
        return everywhere if value in given or not graph.values[value].writers else None

    batch = extract(graph, {target.cut.reference: everywhere == 0 for target in targets}, boundary)
    _no_missing(batch, "reference")
    return batch


def _give_what_is_read(stage: Stage) -> None:
    """Enter the tensors that the parallel side alone reads as inputs of the reference.

    The inputs of the parallel side are derived from these.
    """
    batch = stage.reference
    for value in {cut.reference for cut in stage.cuts.values()} - batch.inputs.keys():
        if value not in batch.grids:
            everywhere = _everywhere(batch.graph)
            batch.add_input(value, everywhere, np.zeros(1, dtype=np.int64), everywhere == 0)


def _everywhere(graph: Graph) -> Grid:
    """Return a grid of zeros."""
    return np.zeros(graph.anywhere, dtype=np.int64)


def _no_missing(batch: Batch, side: str) -> None:
    """Check that all that is needed is computed. Raises UnsupportedError."""
    for value, mask in batch.missing.items():
        rank, microbatch = batch.graph.place(batch.graph.values[value].lattice.first(mask))
        raise UnsupportedError(
            f"{side} plan: {batch.graph.values[value].name!r} is read on rank {rank}, micro-batch "
            f"{microbatch}, where nothing computes it"
        )
