"""A finding on a damaged plan of a real planner names what was changed: the operator, or a tensor
that it reads or writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.planner_plans import MLP, SHIPPED, read, run, said, text_of
from zoo.mutations import mutants

from pitcheck.plan.model import Operator, Plan
from pitcheck.report.report import Report

PLANS = ("megatron", "row", "column", "batch")
KINDS = (
    "dropped",
    "peer rotated",
    "off by one",
    "over ",
    "always of micro-batch 0",
    "the last micro-batch is missing",
    "rotated",
    "reduced twice",
    "reduction ",
    "the number of ranks",
    "operand ",
    "of the first for all",
)
"""Kinds of damage."""

NIGHTLY = (
    "off by one",
    "operand ",
    "over ",
    "the number of ranks",
    "reduction ",
    "always of micro-batch 0",
    "rotated",
    "reduced twice",
)
FAST = ("dropped", "peer rotated", "the last micro-batch is missing")


def kind_params() -> list[Any]:
    night = {kind: [pytest.mark.slow, pytest.mark.nightly] for kind in NIGHTLY}
    return [
        pytest.param(kind, marks=[] if kind in FAST else night.get(kind, [pytest.mark.slow]))
        for kind in KINDS
    ]


def words_of(place: str, operator: Operator | None) -> set[str]:
    """Return the names by which a finding may call the place of a change."""
    if operator is None:
        return {place}
    return {
        place,
        *(name for name in operator.outputs if name),
        *(operand for operand in operator.inputs if isinstance(operand, str)),
    }


def names(report: Report, words: set[str]) -> bool:
    text = " ".join(
        text_of(finding) for finding in report.findings if finding.verdict == report.verdict
    )
    return any(re.search(rf"(?<![\w.]){re.escape(word)}(?!\w)", text) for word in words)


def unnamed(reference: Plan, parallel: Plan, kind: str) -> Iterator[str]:
    """The plans of a kind, with what was said of those wrong ones whose findings do not name what
    was changed, "" of the others.
    """
    operators = {operator.id: operator for operator in parallel.operators}
    for name, mutant in mutants(parallel):
        place, _, what = name.rpartition(": ")
        if kind in what:
            report = run(reference, mutant)
            wrong = report.verdict in ("mismatch", "invalid")
            yield (
                f"{name} | {said(report)}"
                if wrong and not names(report, words_of(place, operators.get(place)))
                else ""
            )


@pytest.mark.parametrize("kind", kind_params())
def test_finding_names_what_was_changed(kind: str) -> None:
    reference = read(SHIPPED, MLP)
    plans = {
        name: read(SHIPPED, f"pairs/mlp-L4-gbs128.dp2-pp2-tp2-mb2.{name}.pkl") for name in PLANS
    }
    lines = [
        (name, line)
        for name, parallel in plans.items()
        for line in unnamed(reference, parallel, kind)
    ]
    missing = [f"{name} | {line}" for name, line in lines if line]
    assert lines
    assert not missing, "\n".join(missing)
