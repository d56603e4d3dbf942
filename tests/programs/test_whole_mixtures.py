"""A mixture of experts at its real sizes: thousands of tokens and slots, within memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace as changed_to
from programs.near_misses import changed

from pitcheck.claims.hints import hinted_cuts
from pitcheck.claims.problem import Problem
from pitcheck.plan.model import Plan
from pitcheck.programs.configuration import read_configuration
from pitcheck.prove.proof import Settings
from pitcheck.prove.prover import Ledger, Prover

PLANS = Path(__file__).parents[2] / "plans"
SMALL = ("layers=1", "pp=1", "tp=2", "dp=4", "ep=8", "microbatches=1", "sequences=4")
"""Mixtral 8x7B with one layer on 8 ranks; sizes and the length of sequences are the real ones."""
TOKENS = 4096


def proofs(reference: Plan, parallel: Plan, *outputs: str) -> Ledger | None:
    """Return the proofs of some outputs over the hints of the plan; None if one fails."""
    problem = Problem.of(reference, parallel)
    some = [each for each in problem.specification.expected if each.name in outputs]
    assert len(some) == len(outputs)
    problem = problem.specified(replace(problem.specification, expected=some))
    settings = Settings(np, 1, -76.0, 1, False, 1 << 30)
    return Prover(problem, settings, accepted_log2=-64.0).hope(hinted_cuts(problem))


def mixture() -> tuple[Plan, Plan]:
    configuration = read_configuration(PLANS / "mixtral-8x7b.toml", SMALL)
    return configuration.reference(), configuration.parallel()


@pytest.mark.slow
def test_slots_of_thousands_of_tokens_are_proven_at_few() -> None:
    ledger = proofs(*mixture(), "grad:layers.0.mlp.experts.down.weight")
    assert ledger is not None
    assert ledger.holds
    lines = {line for proof in ledger.proofs.values() for line in proof.reductions}
    assert any(line.startswith(f"{TOKENS} -> ") and "segments of 2048" in line for line in lines)
    assert not any("counted along it" in line for line in lines)


def test_a_slot_too_few_is_not_proven() -> None:
    """The last token that an expert takes is dropped."""
    reference, parallel = mixture()
    [compared] = [operator.id for operator in parallel.operators if operator.kind == "le"]
    wrong = changed(parallel, compared, lambda operator: changed_to(operator, kind="lt"))
    assert proofs(reference, wrong, "grad:layers.0.mlp.experts.down.weight") is None
