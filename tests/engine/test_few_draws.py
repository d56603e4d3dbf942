"""Large plans without hints are first run in a few draws, and proven over the cuts of these."""

from __future__ import annotations

from typing import Any

import pytest
from zoo.mutations import mutants
from zoo.pairs import pair, without_hints

from pitcheck.base.options import Options
from pitcheck.claims.problem import Problem
from pitcheck.engine import check as engine
from pitcheck.engine import strategies
from pitcheck.errors import BudgetError
from pitcheck.plan.model import Plan
from pitcheck.refute import whole_run
from pitcheck.refute.whole_run import WholeRun
from pitcheck.report.report import Report

NAMES = ("megatron_mlp_silu", "attention_heads", "zero_adamw")
LITERAL = "literal_sizes"
"""A pair of which one plan divides by a literal, and the other by the number of elements."""
MOST = 6
"""The mutants of each pair that are looked at."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The strategies that decided, of checks in which every plan is large and needs many draws."""
    found: list[str] = []

    def named(strategy: Any) -> Any:
        def decided(state: Any) -> Report | None:
            report: Report | None = strategy(state)
            if report is not None:
                found.append(strategy.__name__)
            return report

        return decided

    monkeypatch.setattr(strategies, "MOST_UNCUT", 0)
    monkeypatch.setattr(whole_run, "_enough_trials", lambda *_: whole_run.MOST_TRIALS)
    monkeypatch.setattr(engine, "STRATEGIES", tuple(map(named, strategies.STRATEGIES)))
    return found


def verdict(reference: Plan, parallel: Plan) -> str:
    """Return the verdict on a pair without hints."""
    given = Options(seed=1, backend="numpy", jobs=1, explain=False)
    return engine.check(reference, without_hints(parallel), given).verdict


@pytest.fixture(params=[False, True], ids=["small", "large"])
def large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every plan for so large that it is run without regard to literals first."""
    if request.param:
        monkeypatch.setattr(whole_run, "ROOMY", 0)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("name", [*NAMES, "embedding_vocabulary_parallel", LITERAL])
def test_a_right_pair_is_proven(name: str, seen: list[str]) -> None:
    assert verdict(*pair(name)) == "equivalent"
    assert seen in (["try_few_draws"], ["prove_over_hints"])


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("name", [*NAMES, LITERAL])
def test_a_wrong_plan_is_never_proven(name: str, seen: list[str]) -> None:
    reference, parallel = pair(name)
    wrong = [mutant for _, mutant in mutants(parallel)][:MOST]
    assert wrong
    verdicts = [verdict(reference, mutant) for mutant in wrong]
    assert "equivalent" not in verdicts
    assert "mismatch" in verdicts
    assert seen


def test_a_difference_at_sizes_without_regard_to_literals_is_no_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mean over fewer elements than the literal says is another number."""
    monkeypatch.setattr(whole_run, "ROOMY", 0)
    monkeypatch.setattr(whole_run, "_enough_trials", lambda *_: whole_run.MOST_TRIALS)
    runs: list[WholeRun] = []
    compared = whole_run.compared_run

    def noted(*arguments: Any) -> WholeRun:
        runs.append(compared(*arguments))
        return runs[-1]

    monkeypatch.setattr(whole_run, "compared_run", noted)
    reference, parallel = pair(LITERAL)
    found = whole_run.run_few(Problem.of(reference, without_hints(parallel)))
    first, second = runs
    assert first.suspects()
    assert not second.suspects()
    assert found is second


def test_what_differs_is_named_where_nothing_else_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is proven, and nothing is called wrong that a literal may explain."""

    def refused(*_: Any, **__: Any) -> Any:
        raise BudgetError("a draw needs too much")

    monkeypatch.setattr(strategies, "MOST_UNCUT", 0)
    monkeypatch.setattr(whole_run, "ROOMY", 0)
    monkeypatch.setattr(whole_run, "_shaped", refused)
    reference, parallel = pair("megatron_mlp_silu")
    wrong = next(mutant for what, mutant in mutants(parallel) if "all_reduce: dropped" in what)
    given = Options(seed=1, backend="numpy", jobs=1, explain=False)
    report = engine.check(reference, without_hints(wrong), given)
    assert (report.verdict, report.findings[0].code) == ("inconclusive", "PIT203")
    assert report.findings[0].title == (
        "a draw needs too much; at smaller sizes 'y' differs first, which is no proof: a literal "
        "that is a number of elements would be another number there"
    )
