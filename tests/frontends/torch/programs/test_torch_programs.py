"""Whole PyTorch programs, recorded and checked: right ones are proven, wrong ones are caught at
their line.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from frontends.torch.parallelism.regions import Averaged, Forgotten
from frontends.torch.proving import check_at_one_mesh

from pitcheck.frontends.torch.load import load_spec
from pitcheck.report.report import Report
from pitcheck.torch import Program, Rank, Spec, assert_equivalent, capture

EXAMPLES = Path(__file__).parents[4] / "docs" / "examples"


def example(name: str) -> tuple[Spec, Any]:
    """The specification of an example, and its module."""
    spec = load_spec(str(EXAMPLES / f"{name}.py"), "spec")
    return spec, __import__("sys").modules[name]


@cache
def proof(name: str) -> Report:
    """Return the report on an example, which is proven."""
    return assert_equivalent(example(name)[0])


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*_parallel.py")))
def test_examples_are_proven(name: str) -> None:
    report = proof(name)
    assert report.outputs.proven == report.outputs.total > 0


def test_programs_are_recorded_where_processors_cannot_be_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("pitcheck.forks.sys", SimpleNamespace(platform="darwin"))
    reference, parallel = capture(example("data_parallel")[0])
    assert (reference.name, parallel.name) == ("reference", "parallel")


def test_a_mean_over_ranks_is_an_exception_that_is_said() -> None:
    assert proof("data_parallel").exceptions == (
        "loss: each dp rank holds its own value; the mean of all values is compared",
    )


@pytest.mark.parametrize(
    ("place", "wrong", "line", "code"),
    [("enter", Forgotten, "self.norm(x)", "PIT104"), ("leave", Averaged, "ReduceOp.AVG", "PIT111")],
)
def test_a_wrong_communication_is_caught_at_its_line(
    place: str, wrong: Any, line: str, code: str
) -> None:
    spec, module = example("tensor_parallel")

    def parallel(rank: Rank) -> Program:
        program = module.parallel(rank)
        setattr(program.model, place, wrong.apply)
        return program

    report = check_at_one_mesh(replace(spec, parallel=parallel))
    assert report.verdict == "mismatch"
    finding = report.findings[0]
    source, _, number = (finding.source or "").rpartition(":")
    assert line in Path(source).read_text().splitlines()[int(number) - 1], finding
    assert finding.code == code, finding


def test_the_failure_of_a_test_is_the_whole_finding() -> None:
    spec, module = example("tensor_parallel")

    def exchanged(rank: Rank) -> Program:
        program = module.parallel(rank)
        half = module.INNER // 2
        other = (1 - rank.coordinate["tp"]) * half
        return replace(program, parts={**program.parts, "up.bias": {0: [(other, other + half)]}})

    with pytest.raises(AssertionError, match=r"(?s)mismatch: .*error\[PIT\d+\]"):
        assert_equivalent(replace(spec, parallel=exchanged))
