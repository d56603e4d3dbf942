"""Inputs in which blocks of the batch are equal: right plans agree on them, and the reference's
sums count every block as often as it is there.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from pitcheck.claims.problem import Problem
from pitcheck.claims.specification import Specification, specify
from pitcheck.errors import UnsupportedError
from pitcheck.graph.cuts import Part, cut_by_code
from pitcheck.graph.graph import Graph
from pitcheck.graph.lowering import lower
from pitcheck.models.config import Batch
from pitcheck.models.presets import preset
from pitcheck.models.reference import reference_plan
from pitcheck.plan.model import Axis, Group, Lineage, Operator, Output, Plan, Shard, Tensor
from pitcheck.plan.schedule.matching import match
from pitcheck.programs.layout import Layout
from pitcheck.programs.parallel_plan import parallel_plan
from pitcheck.refute.block_run import colourings, find_batch, run_on_blocks
from pitcheck.refute.whole_run import WholeRun
from pitcheck.stage.equal_blocks import Batched, Blocks, BlockSizes

EPSILON = 1e-10


def _graph(plan: Plan) -> Graph:
    matching, _ = match(plan)
    assert matching is not None
    return lower(plan, matching)


def _pair(name: str, sequences: int, **layout: Any) -> tuple[Plan, Plan]:
    model, batch = preset(name), Batch(sequences, 8)
    return reference_plan(model, batch), parallel_plan(model, batch, Layout(**layout))


def _runs(reference: Plan, parallel: Plan) -> list[WholeRun]:
    first, second = _graph(reference), _graph(parallel)
    specification: Specification = specify(reference, parallel, first, second)
    problem = Problem(first, second, specification, seed=1)
    batched = find_batch(problem)
    assert batched is not None
    nowhere = np.zeros(0, dtype=np.int64)
    return [run_on_blocks(problem, blocks) for blocks in colourings(problem, batched, nowhere)]


PAIRS = {
    "llama3-8b-tiny": {"dp": 4, "tp": 2, "microbatches": 3},
    "gpt3-175b-tiny": {"dp": 4, "pp": 2, "microbatches": 3},
}


@pytest.mark.parametrize("name", PAIRS)
def test_right_plans_agree_on_equal_blocks(name: str) -> None:
    for run in _runs(*_pair(name, 24, **PAIRS[name])):
        assert run.blocks is not None
        assert 1 < len(run.blocks.kept) < 12
        assert sum(run.blocks.often) == 12
        assert max(run.largest) < EPSILON


def test_right_plans_do_not_agree_where_blocks_count_once() -> None:
    with patch.object(
        BlockSizes,
        "weights",
        lambda self, weight: (
            (Fraction(1),) * (1 if weight.dim is None else len(self._blocks.kept) * self._small)
        ),
    ):
        runs = _runs(*_pair("llama3-8b-tiny", 16, dp=4, microbatches=2))
    assert any(run.suspects() for run in runs)


def test_a_cut_holds_the_blocks_whose_numbers_are_its_own() -> None:
    graph = _graph(_pair("llama3-8b-tiny", 8, dp=4)[1])
    value = graph.number["tokens"]
    parts = [Part((((2 * i, 2 * i + 2),), ((0, 8),))) for i in range(4)]
    cut = cut_by_code(graph, value, 7, parts, np.arange(4))
    same = Blocks(Batched(8, 2, {7: 0}), np.array([0, 1, 0, 1]))
    held = same.of(cut)
    assert [held.parts[int(n)].box[0] for n in held.part_of] == [
        ((0, 2),),
        ((2, 4),),
        ((0, 2),),
        ((2, 4),),
    ]
    assert same.often.tolist() == [2, 2]
    assert Blocks(Batched(8, 2, {}), same.same).of(cut) is cut


def test_parts_that_are_no_single_blocks_are_refused() -> None:
    graph = _graph(_pair("llama3-8b-tiny", 8, dp=2)[1])
    cut = cut_by_code(
        graph,
        graph.number["tokens"],
        7,
        [Part((((0, 4),), ((0, 8),))), Part((((4, 8),), ((0, 8),)))],
        np.arange(2),
    )
    with pytest.raises(UnsupportedError, match="not one of 4 even blocks"):
        Blocks(Batched(8, 2, {7: 0}), np.arange(4)).of(cut)


def _largest(axis: str) -> tuple[Plan, Plan]:
    """The largest row of a batch: no sum."""
    whole = Tensor("x", (8, 4), role="input")
    reference = Plan(
        (Axis("one", 1),),
        (whole, Tensor("y", (4,))),
        (Operator("y", "amax", ("x",), ("y",), {"axes": (0,)}),),
        (Output("y"),),
    )
    local = Tensor("x", (2, 4), role="input", lineage=Lineage("x", (Shard(0, (axis,)),)))
    operators = (
        Operator("own", "amax", ("x",), ("own",), {"axes": (0,)}),
        Operator("y", "all_reduce", ("own",), ("y",), {"reduction": "max"}, Group((axis,))),
    )
    return reference, Plan(
        (Axis(axis, 4),),
        (local, Tensor("own", (4,)), Tensor("y", (4,))),
        operators,
        (Output("y", "y"),),
    )


def test_what_is_no_sum_over_the_batch_is_refused() -> None:
    with pytest.raises(
        UnsupportedError, match=r"'y' \(amax\) combines what belongs to different ranks"
    ):
        _runs(*_largest("dp"))
