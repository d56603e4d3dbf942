"""A stage over every operator: the right way to spread it is proven, a near miss is caught, at
reduced and at full shapes.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from engine.operators import operator_pairs
from engine.operators.operator_rows import ROWS
from support.by_day import some_at_once, some_by_day
from zoo.mutations import mutants

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.execution.judge import judge_often
from pitcheck.ops.registry import operator_names
from pitcheck.plan.model import Plan
from pitcheck.report.report import Report

SEEDS = tuple(range(3))
COMMUNICATION = frozenset(
    {
        "all_reduce",
        "reduce",
        "reduce_scatter",
        "all_gather",
        "gather_to",
        "broadcast",
        "scatter_from",
        "scan",
        "all_to_all",
        "accumulate",
        "send",
        "receive",
    }
)
"""Tried in test_operators_collectives.py."""
WITHOUT_A_VALUE = frozenset({"barrier", "uninitialised"})
"""Tried in test_plan_time.py and test_unwritten.py."""


NO_MEANING = "ZeroDivisionError"
"""An integer divided by zero stops a run, and has no meaning: the verdict may be inconclusive."""

NOT_OF_THE_OPERATOR = "squeeze.backward: axis"
"""Mutants left out: an axis that does not matter where only a dimension of size 1 moves."""


def _said(report: Report) -> str:
    return f"{report.verdict}: " + "; ".join(
        f"{f.code} {f.title} ({f.operator})" for f in report.findings[:3]
    )


def _verdict_is_due(reference: Plan, parallel: Plan, report: Report) -> str:
    """Return why a verdict is wrong by the independent executor, or an empty text."""
    judgement = judge_often(reference, parallel, SEEDS)
    if judgement.same:
        return "" if report.verdict == "equivalent" else f"nothing changed, but {_said(report)}"
    what = (
        f"{judgement.different} differ"
        if judgement.different
        else judgement.error or f"{judgement.missing} missing"
    )
    certain = judgement.different or (judgement.error and NO_MEANING not in judgement.error)
    due = ("mismatch", "invalid") if certain else ("mismatch", "invalid", "inconclusive")
    return "" if report.verdict in due else f"{what}, but {_said(report)}"


def test_every_operator_has_a_row() -> None:
    assert {row.kind for row in ROWS.values()} | COMMUNICATION | WITHOUT_A_VALUE == set(
        operator_names()
    )


@pytest.mark.parametrize("shapes", ["reduced", pytest.param("full", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ROWS)
def test_right_way_is_equivalent(name: str, shapes: str) -> None:
    reference, parallel = operator_pairs.pair(ROWS[name])
    assert judge_often(reference, parallel, SEEDS).same
    report = check(reference, parallel, Options(seed=3, shapes=shapes))
    assert report.verdict == "equivalent", _said(report)
    assert report.outputs.proven == report.outputs.total == len(reference.outputs)


@pytest.mark.parametrize("name", some_at_once(ROWS, 2))
def test_one_near_miss_is_caught(name: str) -> None:
    """One fault of every row, so that all faults come up over the rows."""
    every = list(operator_pairs.faults(ROWS[name]))
    wrong = _wrong(name, "reduced", [every[len(name) % len(every)]])
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", some_by_day(ROWS, 6))
def test_near_miss_is_caught(name: str) -> None:
    wrong = _wrong(name, "reduced", operator_pairs.faults(ROWS[name]), explain=False)
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", some_by_day(ROWS, 6))
def test_near_miss_is_caught_at_full_shapes(name: str) -> None:
    wrong = _wrong(name, "full", operator_pairs.faults(ROWS[name]), explain=False)
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", some_by_day(ROWS, 6))
def test_mutants(name: str) -> None:
    reference, parallel = operator_pairs.pair(ROWS[name])
    wrong = []
    for mutation, mutant in mutants(parallel):
        if NOT_OF_THE_OPERATOR in mutation:
            continue
        said = _verdict_is_due(
            reference, mutant, check(reference, mutant, Options(seed=5, explain=False))
        )
        wrong.extend([f"{mutation}: {said}"] if said else [])
    assert not wrong, "\n".join(wrong)


def _wrong(
    name: str, shapes: str, faults: Iterable[operator_pairs.Fault], *, explain: bool = True
) -> list[str]:
    found = []
    options = Options(seed=3, shapes=shapes, explain=explain)
    for fault in faults:
        reference, parallel = operator_pairs.pair(ROWS[name], fault)
        said = _verdict_is_due(reference, parallel, check(reference, parallel, options))
        found.extend([f"{fault}: {said}"] if said else [])
    return found
