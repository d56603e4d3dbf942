"""Cutting a stage out of both plans: the parallel side back to cut tensors, the reference side back
to the same tensors.
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
    """Cut out the cone of ``targets``, without what the reductions that act on a new stage leave
    out.

    ``cut_of`` gives the cut at which a parallel value may be taken as given (it must be proven
    elsewhere, or be initial). A target itself is never taken as given. Raises UnsupportedError
    where something is needed that nothing computes.
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
    """The parallel side, from the cuts on."""
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
    """The reference side, from the tensors on that the cuts are of."""
    given, everywhere = {cut.reference for cut in cuts}, _everywhere(graph)

    def boundary(value: int) -> Grid | None:
        return everywhere if value in given or not graph.values[value].writers else None

    batch = extract(graph, {target.cut.reference: everywhere == 0 for target in targets}, boundary)
    _no_missing(batch, "reference")
    return batch


def _give_what_is_read(stage: Stage) -> None:
    """Enter as inputs of the reference the tensors that the parallel side alone reads: it is from
    these that its inputs are derived.
    """
    batch = stage.reference
    for value in {cut.reference for cut in stage.cuts.values()} - batch.inputs.keys():
        if value not in batch.grids:
            everywhere = _everywhere(batch.graph)
            batch.add_input(value, everywhere, np.zeros(1, dtype=np.int64), everywhere == 0)


def _everywhere(graph: Graph) -> Grid:
    return np.zeros(graph.anywhere, dtype=np.int64)


def _no_missing(batch: Batch, side: str) -> None:
    for value, mask in batch.missing.items():
        rank, microbatch = batch.graph.place(batch.graph.values[value].lattice.first(mask))
        raise UnsupportedError(
            f"{side} plan: {batch.graph.values[value].name!r} is read on rank {rank}, micro-batch "
            f"{microbatch}, where nothing computes it"
        )
