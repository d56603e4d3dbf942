"""Repairs that are tried on one stage.

A large plan cannot be run whole with other data, so a stage that does not hold is run by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.explain_plans import said

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Operator, Plan
from pitcheck.programs.configuration import read_configuration

PLANS = Path(__file__).parents[2] / "plans"
SETTINGS = "layers=1 pp=1 tp=1 sequence_parallel=false dp=2 sequences=4 length=4"
OTHERWISE: dict[str, tuple[dict[str, object], str, str]] = {
    "new:norm.weight": ({"kind": "add"}, "PIT102", "is 'add' where it should be 'sub'"),
    "new:head.weight": ({"inputs": ("mul~332", "mul~320")}, "PIT103", "exchanged"),
    "grad:norm.weight": (
        {"attributes": {"reduction": "min"}},
        "PIT111",
        "takes the smallest of terms over dp where it should take their sum",
    ),
    "loss": ({"kind": "identity", "group": None}, "PIT104", "a term of a sum over dp"),
    "corrected_rate": (
        {"inputs": ("learning_rate", Number("1/2"))},
        "PIT102",
        "the literal 1/2 where the reference has 271/1000",
    ),
}
"""By operator what is wrong with it, and how that is named."""


@pytest.fixture(autouse=True)
def _large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every plan counts as large."""
    monkeypatch.setattr("pitcheck.engine.state.MOST_NODES", 0)
    yield


def plans() -> tuple[Plan, Plan]:
    configuration = read_configuration(PLANS / "llama3-tiny.toml", SETTINGS.split())
    return configuration.reference(), configuration.parallel()


def wrong(plan: Plan, *names: str) -> Plan:
    def changed(operator: Operator) -> Operator:
        return replace(operator, **OTHERWISE[operator.id][0]) if operator.id in names else operator

    assert set(names) <= {operator.id for operator in plan.operators}
    return replace(plan, operators=tuple(map(changed, plan.operators)))


def test_the_right_plan_is_equivalent() -> None:
    assert check(*plans(), Options(seed=1)).verdict == "equivalent"


@pytest.mark.parametrize("name", OTHERWISE)
def test_the_mistake_is_named_and_the_stage_is_right_without_it(name: str) -> None:
    _, code, words = OTHERWISE[name]
    reference, parallel = plans()
    report = check(reference, wrong(parallel, name), Options(seed=1))
    assert report.verdict == "mismatch"
    first = report.findings[0]
    assert first.code == code, said(report)
    assert words in (first.cause or ""), said(report)
    assert "(tested: with it, " in (first.repair or ""), said(report)
    assert "outputs" in (first.cause or ""), said(report)


def test_mistakes_in_two_stages_are_two_findings_each_with_its_own_repair() -> None:
    reference, parallel = plans()
    report = check(
        reference, wrong(parallel, "grad:norm.weight", "new:head.weight"), Options(seed=1)
    )
    assert [found.code for found in report.findings] == ["PIT111", "PIT103"], said(report)
    assert [
        "(tested: with it, 'grad:norm.weight' is right)" in (f.repair or "")
        for f in report.findings
    ] == [True, False], said(report)
    assert "'new:head.weight' is right" in (report.findings[1].repair or ""), said(report)


def test_where_the_plan_has_too_many_coordinates_nothing_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pitcheck.explain.failed_stages.MOST_CODES", 1)
    reference, parallel = plans()
    report = check(reference, wrong(parallel, "grad:norm.weight"), Options(seed=1))
    assert report.verdict == "mismatch"
    assert "(tested" not in (report.findings[0].repair or ""), said(report)


def test_one_mistake_in_several_stages_is_one_finding_with_all_its_places() -> None:
    reference, parallel = plans()
    names = [
        operator.id
        for operator in parallel.operators
        if operator.id in ("grad:norm.weight", "grad:head.weight")
    ]
    assert len(names) == 2

    def changed(operator: Operator) -> Operator:
        return (
            replace(operator, attributes={"reduction": "min"}) if operator.id in names else operator
        )

    report = check(
        reference,
        replace(parallel, operators=tuple(map(changed, parallel.operators))),
        Options(seed=1),
    )
    (found,) = report.findings
    assert found.code == "PIT111", said(report)
    assert all(f"'{name}'" in (found.cause or "") for name in names), said(report)
    assert found.tried is not None and len(found.tried.right) == 2
    assert "and 1 more are right" in (found.repair or ""), said(report)
