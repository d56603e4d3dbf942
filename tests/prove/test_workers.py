"""Several processes say what one says."""

from __future__ import annotations

import os
from dataclasses import replace

import msgspec
import pytest
from zoo.mutations import mutants
from zoo.pairs import pair

from pitcheck.base.options import Options
from pitcheck.commands.reading import read_pair
from pitcheck.engine.check import check
from pitcheck.prove import prover as obligations
from pitcheck.prove import workers
from pitcheck.prove.domains import claims_in_turn
from pitcheck.prove.proof import Proof
from pitcheck.report.report import VOLATILE, Report

TINY = ("plans/deepseek-v3-tiny.toml", "plans/llama3-tiny.toml")


def _lasting(report: msgspec.Struct) -> dict[str, object]:
    return {
        name: value for name, value in msgspec.to_builtins(report).items() if name not in VOLATILE
    }


def _both(*plans: object) -> list[Report]:
    return [check(*plans, Options(seed=4, jobs=jobs)) for jobs in (1, 2)]


@pytest.fixture(params=["large stages", "all stages", "bundles"], autouse=True)
def _given_away(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set which stages other processes prove, and that these look at all that claims lack."""
    if request.param == "all stages":
        monkeypatch.setattr(workers, "LARGE", 0)
    elif request.param == "bundles":
        monkeypatch.setattr(workers, "FEW", 0)
        monkeypatch.setattr(workers, "BUNDLE", 3000)
    if request.param != "large stages":
        monkeypatch.setattr(claims_in_turn, "FEW", 0)


@pytest.mark.parametrize(
    "name", ["megatron_mlp_silu", "sequence_parallel_mlp", "cross_entropy_vocabulary_parallel"]
)
def test_two_processes_give_the_report_of_one(name: str) -> None:
    first, second = _both(*pair(name))
    assert first.verdict == "equivalent"
    assert _lasting(first) == _lasting(second)


@pytest.mark.slow
@pytest.mark.parametrize("file", [pytest.param(TINY[0], marks=pytest.mark.nightly), TINY[1]])
def test_two_processes_give_the_report_of_one_on_whole_models(file: str) -> None:
    first, second = _both(*read_pair(file, ()))
    assert first.verdict == "equivalent"
    assert _lasting(first) == _lasting(second)


@pytest.mark.parametrize("which", ["all_reduce", "linear"])
def test_a_wrong_plan_is_caught_by_two_processes(which: str) -> None:
    reference, parallel = pair("megatron_mlp_silu")
    wrong = next(m for n, m in mutants(parallel) if which in n)
    first, second = _both(reference, wrong)
    assert first.verdict != "equivalent"
    assert _lasting(first) == _lasting(second)


def test_a_worker_that_dies_leaves_its_stage_to_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    caller, prove = os.getpid(), workers.prove_stage

    def dying(*arguments: object) -> Proof:
        if os.getpid() != caller:
            os._exit(9)
        return prove(*arguments)

    first = check(*pair("megatron_mlp_silu"), Options(seed=4))
    monkeypatch.setattr(workers, "prove_stage", dying)
    assert _lasting(check(*pair("megatron_mlp_silu"), Options(seed=4, jobs=2))) == _lasting(first)


def test_what_a_worker_refuses_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that only the worker finds false: the caller looks for itself, and neither takes the
    other's silence for a proof.
    """
    caller, prove = os.getpid(), workers.prove_stage

    def refusing(*arguments: object) -> Proof:
        proof = prove(*arguments)
        return proof if os.getpid() == caller else replace(proof, outcome="failed")

    monkeypatch.setattr(workers, "prove_stage", refusing)
    monkeypatch.setattr(
        obligations,
        "prove_stage",
        lambda *_: Proof("inconclusive", code="PIT203", reason="nobody knows"),
    )
    monkeypatch.setattr(workers, "LARGE", 0)
    assert check(*pair("megatron_mlp_silu"), Options(seed=4, jobs=2)).verdict == "inconclusive"
