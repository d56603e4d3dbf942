"""The predicted memory of a stage is close to what its evaluation holds, and hardly ever below."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from zoo.builder import Builder, lineage

from pitcheck.claims.problem import Problem
from pitcheck.ops.registry import BACKWARD
from pitcheck.plan.model import Lineage, Plan
from pitcheck.prove.bounds.stage_degrees import StageDegrees
from pitcheck.prove.full_shapes.demand import Demand, demand_of
from pitcheck.prove.full_shapes.pieces import TOGETHER
from pitcheck.prove.integers.cases import Cases
from pitcheck.prove.proof import Settings
from pitcheck.prove.stage_trials import StageTrials
from pitcheck.stage.shaped_stage import shape_stage
from pitcheck.stage.shapes import SymbolicPair, symbolic_pair
from pitcheck.stage.stage import Stage, drawn_reference

BELOW, ABOVE = 0.9, 2.0
"""The bounds of the predicted bytes in multiples of the measured ones."""


def _elementwise(ranks: int) -> Builder:
    b = _begun(ranks)
    x = b.input("x", (512 // ranks, 512), _rows(ranks))
    b.output(b.op("mul", b.op("square", x), b.op("add", x, x), out="y"), spec=_held(ranks))
    return b


def _normalized(ranks: int) -> Builder:
    b = _begun(ranks)
    x = b.input("x", (512 // ranks, 512), _rows(ranks))
    b.output(b.op("softmax", b.op("silu", x), axis=1, out="y"), spec=_held(ranks))
    return b


def _contracted(ranks: int) -> Builder:
    b = _begun(ranks)
    x = b.input("x", (256 // ranks, 512), _rows(ranks))
    w = b.parameter("w", (768, 512), {} if ranks > 1 else None)
    b.output(b.op("linear", x, w, out="y"), spec=_held(ranks))
    return b


def _long(ranks: int) -> Builder:
    """Many steps, of which each needs what the one before made and nothing else."""
    b = _begun(ranks)
    x = b.input("x", (256 // ranks, 512), _rows(ranks))
    for _ in range(24):
        x = b.op("square", x)
    b.output(b.op("identity", x, out="y"), spec=_held(ranks))
    return b


def _begun(ranks: int) -> Builder:
    return Builder("plan", {"dp": ranks} if ranks > 1 else None)


def _held(ranks: int) -> Lineage | None:
    return lineage("y", {0: "dp"}) if ranks > 1 else None


def _rows(ranks: int) -> dict[int, str] | None:
    return {0: "dp"} if ranks > 1 else None


def _stage(made: Plan, parallel: Plan) -> tuple[Stage, SymbolicPair]:
    stage = Problem.of(made, parallel).whole_stage()
    return stage, symbolic_pair(stage.reference, stage.parallel, stage.all_cuts())


def _measured(stage: Stage, symbolic: SymbolicPair) -> int:
    """Return the bytes at the peak of one evaluation of two draws."""
    keys = {value: str(value) for value in drawn_reference(stage)}
    shaped = shape_stage(stage, symbolic, symbolic.system.full(), keys)
    degrees = StageDegrees.of(shaped)
    family = next(degrees.families((3,)))
    settings = Settings(np, 1, -64.0, TOGETHER, full_shapes=True, max_memory=1 << 40)
    trials = StageTrials(Cases(shaped), family, degrees, settings, TOGETHER, refutes=True)
    algebra = trials.redrawn()
    tracemalloc.start()
    try:
        trials.evaluated(algebra)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("made", [_elementwise, _normalized, _contracted, _long])
def test_the_peak_is_predicted(made: Callable[[int], Builder], ranks: int) -> None:
    stage, symbolic = _stage(made(1).plan(), made(ranks).plan())
    predicted = demand_of(symbolic, symbolic.system.full()).bytes(TOGETHER)
    assert BELOW <= predicted / _measured(stage, symbolic) <= ABOVE


def _demand(made: Plan) -> Demand:
    _, symbolic = _stage(made, made)
    return demand_of(symbolic, symbolic.system.full())


def test_values_count_until_their_last_reader() -> None:
    short, long = _elementwise(1).plan(), _long(1).plan()
    assert _demand(long).moved > 2 * _demand(short).moved
    assert _demand(long).held_at_peak < _demand(short).held_at_peak


def test_products_of_matrices_count_their_terms() -> None:
    assert _demand(_contracted(1).plan()).multiplied == pytest.approx(2 * 256 * 512 * 768, rel=1e-6)
    assert _demand(_elementwise(1).plan()).multiplied == 0


def test_each_gradient_of_a_product_counts() -> None:
    b = _contracted(1)
    dy = b.input("dy", (256, 768), None)
    b.back("linear", ["x", "w"], "y", dy, ["dx", "dw"])
    b.output("dx")
    b.output("dw")
    made = b.plan()
    assert any(operator.kind.endswith(BACKWARD) for operator in made.operators)
    assert _demand(made).multiplied == pytest.approx(3 * 2 * 256 * 512 * 768, rel=1e-6)
