"""Of every recorded program each collective is dropped, doubled, re-grouped and re-scaled in turn: what changes a result is caught, what does not is proven."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import pytest
from frontends.torch.replay import StuckError, difference, truth
from frontends.torch.trace_mutants import mutants

from pitcheck.check.options import Options
from pitcheck.check.run import check
from pitcheck.frontends.torch.build import parallel_plan, reference_plan
from pitcheck.frontends.torch.load import load_spec
from pitcheck.frontends.torch.program import Spec
from pitcheck.frontends.torch.record import record

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
CHANGED = 1e-6


def groups(spec: Spec) -> list[tuple[int, ...]]:
    """The groups of ranks along every mesh axis."""
    sizes = tuple(spec.mesh.values())
    ranks = np.arange(prod(sizes)).reshape(sizes)
    return [tuple(row) for axis in range(len(sizes)) for row in np.moveaxis(ranks, axis, -1).reshape(-1, sizes[axis]).tolist()]


@pytest.mark.parametrize("name", ["tensor_parallel"])
def test_no_wrong_collective_survives(name: str) -> None:
    spec = load_spec(str(EXAMPLES / f"{name}.py"), "spec")
    reference = reference_plan(record(spec, "reference", 1)[0], spec)
    true = truth(spec)
    compared = {key: value for key, value in true.results.items() if key[0] != "output" or not spec.outputs}
    traces = record(spec, "parallel", 2)
    assert check(reference, parallel_plan(traces, spec, reference), Options(seed=1)).verdict == "equivalent"
    tried = 0
    for what, wrong in mutants(traces, groups(spec)):
        try:
            differs = difference(wrong, true.tensors, compared) > CHANGED
        except (StuckError, AssertionError):
            differs = True
        report = check(reference, parallel_plan(wrong, spec, reference), Options(seed=1))
        assert report.verdict in (("mismatch", "invalid") if differs else ("equivalent",)), (what, report.verdict, report.findings)
        tried += differs
    assert tried
