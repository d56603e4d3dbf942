"""Reduction of symmetric coordinates: what it keeps, and that it hides no fault at one
coordinate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from zoo.builder import Builder, intervals, lineage

from pitcheck.algebra.dimensions.size_choice import Sizes
from pitcheck.base.options import Options
from pitcheck.claims.specification import specify
from pitcheck.engine.check import check
from pitcheck.errors import UnsupportedError
from pitcheck.graph.lowering import lower
from pitcheck.ops.axis_templates import Templates
from pitcheck.ops.registry import evaluate
from pitcheck.plan.model import Axis, Lineage, Number, Operator, Output, Plan, Shard, Tensor, Use
from pitcheck.plan.schedule.matching import match
from pitcheck.prove.proof import Settings
from pitcheck.prove.stage_proof import prove_stage
from pitcheck.stage.building import build_stage
from pitcheck.stage.canonical import canonical_form
from pitcheck.stage.reductions.symmetry import find_symmetry
from pitcheck.stage.shaped_stage import shape_stage
from pitcheck.stage.shapes import symbolic_pair
from pitcheck.stage.stage import Target

DP, MB = 8, 4
BATCH = Lineage("", shards=(Shard(0, by=("dp", "mb")),))


def _lineage(reference: str) -> Lineage:
    return Lineage(reference, shards=BATCH.shards)


def _reference(mixing: str = "") -> Plan:
    rows = 4 * DP * MB
    last = Operator("n", "softmax", ("y",), ("z",), {"axis": 0 if mixing == "softmax" else 1})
    return Plan(
        mesh=(Axis("one", 1),),
        tensors=(
            Tensor("x", (rows, 6), role="input"),
            Tensor("w", (8, 6), role="parameter"),
            *(Tensor(n, (rows, 8)) for n in "hyz"),
        ),
        operators=(
            Operator("l", "linear", ("x", "w"), ("h",)),
            Operator("s", "silu", ("h",), ("y",)),
            last,
        ),
        outputs=(Output("z"),),
    )


def _parallel(*operators: Operator) -> Plan:
    default = (
        Operator("l", "linear", ("x", "w"), ("h",)),
        Operator("s", "silu", ("h",), ("y",)),
        Operator("n", "softmax", ("y",), ("z",), {"axis": 1}),
    )
    replaced = {o.id: o for o in operators if len(o.id) == 1}
    extra = tuple(o for o in operators if len(o.id) > 1)
    return Plan(
        mesh=(Axis("dp", DP),),
        microbatches=MB,
        tensors=(
            Tensor("x", (4, 6), role="input", microbatched=True, lineage=_lineage("x")),
            Tensor("w", (8, 6), role="parameter", lineage=Lineage("w")),
            *(Tensor(n, (4, 8), microbatched=True) for n in "hyz"),
        ),
        operators=tuple(replaced.get(o.id, o) for o in default[:2]) + extra + (default[2],),
        outputs=(Output("z", "z", _lineage("z")),),
    )


def _whole_stage(reference: Plan, parallel: Plan):
    graphs = [lower(plan, match(plan)[0]) for plan in (reference, parallel)]
    specification = specify(reference, parallel, *graphs)
    expected = specification.expected[0]
    return build_stage(
        *graphs,
        specification.initial.get,
        [Target.at(expected.cut, expected.where, graphs[1], expected.name)],
    )


def _prove(stage, full: bool):
    settings = Settings(
        np, 3, -70.0, 1, False, 1 << 32, templates=Templates(evaluate), full_coordinates=full
    )
    return prove_stage(stage, canonical_form(stage)[1], settings)


def _one_rank(rank: int) -> tuple[Operator, Operator]:
    others = tuple(r for r in range(DP) if r != rank)
    return Operator("s", "silu", ("h",), ("y",), where=({"dp": others},)), Operator(
        "s2", "relu", ("h",), ("y",), where=({"dp": (rank,)},)
    )


@pytest.mark.parametrize("keep", [2, 3])
def test_equal_cones_are_represented_by_a_few(keep: int) -> None:
    stage = _whole_stage(_reference(), _parallel())
    symmetry = find_symmetry(
        stage, symbolic_pair(stage.reference, stage.parallel, stage.all_cuts()), keep, 1
    )
    assert symmetry is not None
    assert (symmetry.classes, symmetry.members, symmetry.kept) == (1, DP * MB, keep)


def test_a_rank_that_differs_is_a_class_of_its_own() -> None:
    stage = _whole_stage(_reference(), _parallel(*_one_rank(5)))
    symmetry = find_symmetry(
        stage, symbolic_pair(stage.reference, stage.parallel, stage.all_cuts()), 2, 1
    )
    assert symmetry is not None
    assert symmetry.classes == 2
    assert {int(c) // MB for c in stage.targets[0].cut.lattice.codes(symmetry.where)} >= {5}


@pytest.mark.parametrize("full", [False, True])
def test_the_right_stage_is_proven(full: bool) -> None:
    assert _prove(_whole_stage(_reference(), _parallel()), full).outcome == "proven"


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("rank", [0, 3, DP - 1])
def test_a_fault_on_one_rank_is_seen(rank: int, full: bool) -> None:
    assert _prove(_whole_stage(_reference(), _parallel(*_one_rank(rank))), full).outcome == "failed"


@pytest.mark.parametrize("full", [False, True])
def test_a_microbatch_that_reads_another_is_seen(full: bool) -> None:
    wrong = Operator("l", "linear", (Use("x", 0), "w"), ("h",))
    assert _prove(_whole_stage(_reference(), _parallel(wrong)), full).outcome == "failed"


def test_a_dimension_that_the_reference_mixes_stays_whole() -> None:
    stage = _whole_stage(_reference("softmax"), _parallel())
    assert (
        find_symmetry(stage, symbolic_pair(stage.reference, stage.parallel, stage.all_cuts()), 2, 1)
        is None
    )
    assert _prove(stage, False).outcome == "failed"


@pytest.mark.parametrize("coordinates", ["reduced", "full"])
def test_the_whole_check_agrees(coordinates: str) -> None:
    options = Options(seed=5, coordinates=coordinates)
    assert check(_reference(), _parallel(), options).verdict == "equivalent"
    assert check(_reference(), _parallel(*_one_rank(6)), options).verdict == "mismatch"


def test_parts_of_two_intervals_along_another_dimension_are_symmetric() -> None:
    """A rank with an early and a late part of every sequence computes the same from its rows as the
    rank of the next rows.
    """
    rows, halves = DP * MB, intervals("cp", [(0, 2), (6, 8)], [(2, 4), (4, 6)])
    r, b = Builder("reference"), Builder("parallel", {"dp": DP, "cp": 2}, MB)
    x = r.input("x", (rows, 8, 6))
    r.output(r.op("silu", r.op("linear", x, r.parameter("w", (5, 6))), out="y"))
    held = {0: ("dp", "mb"), 1: halves}
    own = b.input("x", (1, 4, 6), held, microbatched=True)
    b.op("silu", b.op("linear", own, b.parameter("w", (5, 6), {})), out="y", hint=held)
    b.output("y", spec=lineage("y", held))
    report = check(r.plan(), b.plan(), Options(seed=1))
    assert report.verdict == "equivalent", [f.title for f in report.findings]
    assert any(f"{2 * rows} coordinates in 2 classes" in line for line in report.reductions), (
        report.reductions
    )


def test_a_dimension_is_reduced_once() -> None:
    stage = _whole_stage(_reference(), _parallel())
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts(), Templates(evaluate))
    found = find_symmetry(stage, symbolic, 2, 1)
    assert found is not None
    value, dim = found.carrier
    assert (
        find_symmetry(
            stage,
            symbolic,
            2,
            1,
            done={symbolic.system.number_of(symbolic.reference.values[value].dims[dim])},
        )
        is None
    )


class _Nothing(Sizes):
    """Sizes that leave nothing of dimensions of one extent."""

    def size(self, node: Any) -> int:
        return 0 if node.size == 6 else super().size(node)


def test_sizes_that_leave_nothing_prove_nothing() -> None:
    stage = _whole_stage(_reference(), _parallel())
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts(), Templates(evaluate))
    keys = canonical_form(stage)[1]
    assert shape_stage(stage, symbolic, Sizes(symbolic.system, {}), keys).fresh
    with pytest.raises(
        UnsupportedError, match=r"'x' of shape \(128, 6\) would be reduced to \(128, 0\)"
    ):
        shape_stage(stage, symbolic, _Nothing(symbolic.system, {}), keys)


def _measured(dp: int, factor: int = 192) -> Plan:
    """Every element times the number of elements on all ranks, counted on what the ranks have
    gathered or written down.
    """
    b = Builder("measured", {"dp": dp})
    x = b.input("x", (32 // dp, 6), {0: "dp"} if dp > 1 else None)
    count = (
        b.op("sum", b.op("full_like", b.op("all_gather", x, group="dp", axis=0), value=1))
        if dp > 1
        else Number(factor)
    )
    b.op("mul", x, count, out="y")
    b.output("y", "y", lineage("y", {0: "dp"} if dp > 1 else None))
    return b.plan()


@pytest.mark.parametrize("factor", [192, 24, 48, 72])
@pytest.mark.parametrize("coordinates", ["reduced", "full"])
def test_an_extent_counts_all_segments(factor: int, coordinates: str) -> None:
    report = check(_measured(1, factor), _measured(8), Options(seed=1, coordinates=coordinates))
    assert report.verdict == ("equivalent" if factor == 192 else "mismatch")
