"""Reference values that are computed twice: a cut is at the copy that its readers are made of."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from zoo.builder import Builder, lineage

from pitcheck.base.options import Options
from pitcheck.claims.problem import Problem
from pitcheck.claims.specification import specify
from pitcheck.engine.check import check
from pitcheck.graph.graph import Graph
from pitcheck.graph.lowering import lower
from pitcheck.plan.model import Number, Plan
from pitcheck.plan.schedule.matching import match
from pitcheck.refute.whole_run import conjecture, run_whole

LAYERS = 5


class Ways(NamedTuple):
    """The way in which a plan computes its activations for the backward pass."""

    devices: int = 1
    again: bool = True
    """False: it takes those of the forward pass."""
    epsilon: float = 1e-5
    of_layer: int = 0
    """The layer whose activations computed again have this epsilon."""


def _softmax(b: Builder, x: str, out: str) -> str:
    """The same by other operators than a softmax's, so that no compiler merges both."""
    e = b.op("exp", x, out=f"{out}.exp")
    total = b.op("sum", e, axes=(1,), keepdim=True, out=f"{out}.total")
    return b.op("div", e, total, out=out)


def _norm(b: Builder, x: str, name: str, epsilon: float) -> str:
    square = b.op("square", x, out=f"{name}.square")
    mean = b.op("mean", square, axes=(1,), keepdim=True, out=f"{name}.mean")
    shifted = b.op("add", mean, Number(epsilon), out=f"{name}.shifted")
    return b.op("rsqrt", shifted, out=name)


def _plan(ways: Ways, prefix: str = "") -> Plan:
    """Layers h = softmax(x), y = h rsqrt(mean(h^2) + eps); gradients dx = dy rsqrt(...) h."""
    b = Builder("layers", {"device": ways.devices})
    rows = 4 // ways.devices
    spec = {0: "device"} if ways.devices > 1 else None
    x, d = b.input("x", (rows, 6), spec), b.input("d", (rows, 6), spec)
    inputs = [x]
    held = []
    for i in range(LAYERS):
        h = b.op("softmax", x, axis=1, out=f"{prefix}h{i}")
        r = _norm(b, h, f"{prefix}r{i}", 1e-5)
        held.append((h, r))
        x = b.op("mul", h, r, out=f"{prefix}y{i}")
        inputs.append(x)
    for i in reversed(range(LAYERS)):
        h, r = held[i]
        if ways.again:
            epsilon = ways.epsilon if i == ways.of_layer else 1e-5
            h = _softmax(b, inputs[i], f"{prefix}h{i}.again")
            r = _norm(b, h, f"{prefix}r{i}.again", epsilon)
        scaled = b.op("mul", d, r, out=f"{prefix}s{i}")
        d = b.op("mul", scaled, h, out=f"{prefix}d{i}")
    b.output(x, f"y{LAYERS - 1}", lineage(f"y{LAYERS - 1}", spec))
    b.output(d, "d0", lineage("d0", spec))
    return b.plan()


def _graph(plan: Plan) -> Graph:
    matching, _ = match(plan)
    assert matching is not None
    return lower(plan, matching)


def _places(reference: Plan, parallel: Plan) -> dict[str, str]:
    """Return the reference value that each cut is at, by the parallel value."""
    first, second = _graph(reference), _graph(parallel)
    problem = Problem(first, second, specify(reference, parallel, first, second))
    cuts = conjecture(problem, run_whole(problem))
    return {second.values[v].name: first.values[cut.reference].name for v, cut in cuts.items()}


def test_each_copy_is_cut_at_its_own() -> None:
    found = _places(_plan(Ways()), _plan(Ways(devices=2), "own."))
    again = {name: at for name, at in found.items() if ".again" in name or ".r" in name}
    assert len(again) > 6 * LAYERS
    assert again == {name: name.removeprefix("own.") for name in again}


def test_copies_that_are_one_are_cut_at_one() -> None:
    """The parallel plan holds its activations once: both readers cannot have their own."""
    found = _places(_plan(Ways()), _plan(Ways(devices=2, again=False), "own."))
    assert all(found[f"own.r{i}"] in {f"r{i}", f"r{i}.again"} for i in range(LAYERS))


@pytest.mark.parametrize("again", [True, False])
def test_activations_computed_again_are_proven(again: bool) -> None:
    report = check(_plan(Ways()), _plan(Ways(devices=2, again=again), "own."), Options(seed=1))
    assert report.verdict == "equivalent"


@pytest.mark.parametrize("layer", [0, LAYERS - 1])
def test_a_copy_with_another_epsilon_is_caught(layer: int) -> None:
    wrong = Ways(devices=2, epsilon=3e-5, of_layer=layer)
    report = check(_plan(Ways()), _plan(wrong, "own."), Options(seed=1))
    assert report.verdict == "mismatch"
    assert any(f"own.r{layer}.again" in str(finding) for finding in report.findings)
