"""A target whose terms ranks hold, with the sum of them as a step.

What a reduce-scatter adds up is cut before it: the claim is then that the terms of a group add up
to a part of the reference. Said as a step, that sum is one of the stage's sums like those over
micro-batches, and is reduced with them. It is the same computation: without the step the terms are
added up when they are compared.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> stage = Problem.of(plan, plan).whole_stage()
>>> with_summed_target(stage) is stage  # its target has no terms
True
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pitcheck.graph.cuts import Cut
from pitcheck.graph.grids import near
from pitcheck.graph.parts import Parts, distinct_rows
from pitcheck.stage.batch import Argument, Step
from pitcheck.stage.reductions.protocol import Context, Phase
from pitcheck.stage.stage import Stage, by_group

SUM = "accumulate"


class SumTargetTerms:
    """The addition of the terms of a partial target by a step of the stage.

    Why it decides both ways: without it the terms are added up when they are compared, by the same
    groups. It assumes one target, of which no group lacks a term.
    """

    name = "sum target terms"
    phase = Phase.ROWS
    refutes = True

    def apply(self, subject: Stage, _: Context) -> Stage:
        """Return the stage with a target of sums.

        Raises:
            UnsupportedError: a group lacks a term.
        """
        return with_summed_target(subject)


def with_summed_target(stage: Stage) -> Stage:
    """Return the stage in which the terms of its target are added up.

    Return the stage itself if it has no such target, or several.

    Raises:
        UnsupportedError: a group lacks a term.
    """
    target, batch = stage.targets[0], stage.parallel
    cut = target.cut
    if len(stage.targets) != 1 or cut.groups is None or not batch.graph.values[cut.value].writers:
        return stage
    where, *grids = np.broadcast_arrays(
        target.where,
        *(near(grid, target.home) for grid in (batch.grids[cut.value], cut.grid, cut.groups)),
    )
    rows, parts, groups = (grid[where] for grid in grids)
    order = by_group(target, parts, groups)
    leading = parts[order[:, 0]]
    firsts, boxes = distinct_rows([*cut.parts.which[leading].T, leading * 0])
    kept, sums = distinct_rows(list(rows[order].T))
    _, of = np.unique(groups, return_inverse=True)
    of = of.reshape(-1)

    value = len(batch.graph.values)
    graph = batch.graph.with_values([*batch.graph.values, batch.graph.values[cut.value]])
    held, own = np.full((2, *where.shape), -1, dtype=np.int64)
    held[where], own[where] = sums[of], boxes[of]
    step = Step(
        graph.values[value].writers[0],
        SUM,
        {},
        (Argument(cut.value, rows[order[kept]]),),
        (value,),
        len(kept),
    )
    none = np.zeros(len(firsts), dtype=np.int64)
    whole = Parts.of(cut.parts.intervals, cut.parts.which[leading[firsts]], none, 1, none - 1)
    added = replace(
        batch,
        graph=graph,
        steps=[*batch.steps, step],
        grids={**batch.grids, value: held},
        held={**batch.held, value: where},
        counts={**batch.counts, value: len(kept)},
        shapes={**batch.shapes, value: batch.shape(cut.value)},
    )
    summed = Cut(value, cut.reference, whole, own, cut.lattice, cut.scale)
    return replace(stage, parallel=added, targets=(replace(target, cut=summed, where=where),))
