"""Of every recorded program each collective is dropped, doubled, re-grouped and re-scaled in turn: what changes a result is caught, what does not is proven."""

from __future__ import annotations

import re
from math import prod
from pathlib import Path

import numpy as np
import pytest
from frontends.torch.replay import StuckError, difference, truth
from frontends.torch.test_tensor_parallel import tensor_parallel
from frontends.torch.test_torch_programs import example
from frontends.torch.trace_mutants import mutants

from pitcheck.check.options import Options
from pitcheck.check.run import check
from pitcheck.frontends.torch.build import parallel_plan, reference_plan
from pitcheck.frontends.torch.load import load_spec
from pitcheck.frontends.torch.program import Spec
from pitcheck.frontends.torch.record import record
from pitcheck.report.model import Finding

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
CHANGED = 1e-6
CAUSES = {"dropped": "PIT104", "doubled": "PIT105", "avg": "PIT102"}


def groups(spec: Spec) -> list[tuple[int, ...]]:
    """The groups of ranks along every mesh axis."""
    sizes = tuple(spec.mesh.values())
    ranks = np.arange(prod(sizes)).reshape(sizes)
    return [tuple(row) for axis in range(len(sizes)) for row in np.moveaxis(ranks, axis, -1).reshape(-1, sizes[axis]).tolist()]


def explained(what: str, finding: Finding) -> None:
    """The finding says what was done to which collective: where there is one still, at its line."""
    line, mutation = re.fullmatch(r".*\((\S+?)(?: backward)?\): (.*)", what).groups()  # type: ignore[union-attr]
    assert finding.code == ("PIT107" if what.startswith("all_gather") else CAUSES[mutation]), (what, finding)
    if mutation != "dropped" or what.startswith("all_gather"):
        assert (finding.source or "").endswith(f"/{line}"), (what, finding)


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
        if report.verdict == "mismatch":
            explained(what, report.findings[0])
    assert tried


PLANTED = {
    "data_parallel": (lambda: example("data_parallel")[0], "all_reduce 0 .*(doubled|avg)"),
    "DTensor": (lambda: tensor_parallel(False), "all_gather 3|all_reduce ([07] .*doubled|9 .*(avg|[)]: dropped$))"),
}
"""Mistakes whose effect, seen at the outputs or at the first other value, looks like something else."""


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_wrong_collective_is_named(name: str) -> None:
    build, pattern = PLANTED[name]
    spec = build()
    reference = reference_plan(record(spec, "reference", 1)[0], spec)
    planted = [(what, wrong) for what, wrong in mutants(record(spec, "parallel", 2), groups(spec)) if re.match(pattern, what)]
    for what, wrong in planted:
        report = check(reference, parallel_plan(wrong, spec, reference), Options(seed=1))
        assert report.verdict == "mismatch"
        explained(what, report.findings[0])
    assert len(planted) > 1
