"""The zoo against the independent executor alone: right pairs agree, near misses mostly do not."""

from __future__ import annotations

import pytest

from pitcheck.execution.judge import judge
from zoo.mutations import mutants
from zoo.pairs import builders, pair, without_hints

SEEDS = (1, 2)


@pytest.mark.parametrize("name", builders())
def test_right_pair_agrees(name: str) -> None:
    reference, parallel = pair(name)
    for seed in SEEDS:
        assert judge(reference, parallel, seed).same
        assert judge(reference, without_hints(parallel), seed).same


@pytest.mark.parametrize("name", builders())
def test_reference_agrees_with_itself(name: str) -> None:
    reference, _ = pair(name)
    assert judge(reference, reference, 1).same


def test_near_misses_differ() -> None:
    """All but a few mutants change an output or cannot run: the zoo is not insensitive."""
    found = []
    for name in ("row_parallel", "pipeline", "ring_attention_2", "zero_sgd"):
        reference, parallel = pair(name)
        found.extend(judge(reference, mutant, 1).same for _, mutant in mutants(parallel))
    assert len(found) > 200
    assert sum(found) < len(found) / 10


def test_there_are_many_pairs() -> None:
    assert len(builders()) >= 60
