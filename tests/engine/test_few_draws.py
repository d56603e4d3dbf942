"""Large plans without hints are first run in a few draws, and proven over the cuts of these."""

from __future__ import annotations

from typing import Any

import pytest
from zoo.mutations import mutants
from zoo.pairs import pair, without_hints

from pitcheck.base.options import Options
from pitcheck.engine import check as engine
from pitcheck.engine import strategies
from pitcheck.plan.model import Plan
from pitcheck.refute import whole_run
from pitcheck.report.report import Report

NAMES = ("megatron_mlp_silu", "attention_heads", "zero_adamw")
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


@pytest.mark.parametrize("name", [*NAMES, "embedding_vocabulary_parallel"])
def test_a_right_pair_is_proven(name: str, seen: list[str]) -> None:
    assert verdict(*pair(name)) == "equivalent"
    assert seen in (["try_few_draws"], ["prove_over_hints"])


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_plan_is_never_proven(name: str, seen: list[str]) -> None:
    reference, parallel = pair(name)
    wrong = [mutant for _, mutant in mutants(parallel)][:MOST]
    assert wrong
    verdicts = [verdict(reference, mutant) for mutant in wrong]
    assert "equivalent" not in verdicts
    assert "mismatch" in verdicts
    assert seen
