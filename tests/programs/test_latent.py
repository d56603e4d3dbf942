"""Latent attention on a rank: every kind of parallelism computes what the single device computes, and one typical mistake in it is caught."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from program_cases import Case, assert_right, case

from pitcheck.models.config import Model
from pitcheck.models.presets import preset


def latent(layers: int = 2, **changes: Any) -> Model:
    """Latent queries, keys and values, a dense feed-forward part."""
    return replace(preset("deepseek-v2-236b-tiny"), layers=layers, experts=None, dense_layers=0, **changes)


def straight(layers: int = 2) -> Model:
    """Queries straight from the hidden state."""
    return replace(preset("deepseek-v2-lite-16b-tiny"), layers=layers, experts=None, dense_layers=0)


FAST = {
    "tensor": case(latent(), tp=2, dp=2),
    "sequence": case(latent(), tp=2, sequence_parallel=True),
    "sequence, queries straight": case(straight(), tp=2, sequence_parallel=True),
    "ring": case(straight(), 2, cp=2),
}

SLOW = {
    "one rank": case(latent()),
    "data, microbatches": case(latent(), 8, dp=2, microbatches=2),
    "tensor, queries straight": case(straight(), tp=2, dp=2, microbatches=2),
    "one head on a rank": case(latent(), tp=4, sequence_parallel=True),
    "pipeline": case(latent(3), pp=2, microbatches=2, tp=2, sequence_parallel=True),
    "everything fills and drains": case(straight(3), pp=2, microbatches=4, schedule="gpipe"),
    "interleaved": case(latent(4), 8, pp=2, virtual=2, microbatches=4, schedule="interleaved", tp=2),
    "zero bubbles": case(latent(), pp=2, microbatches=2, schedule="zero-bubble", tp=2, sequence_parallel=True),
    "computed again": case(latent(), tp=2, recompute=True, sequence_parallel=True),
    "computed again, queries straight": case(straight(), tp=2, recompute=True),
    "optimizer shards": case(latent(), dp=2, zero=1, tp=2, sequence_parallel=True, bucket=300),
    "gradient shards": case(latent(), 6, dp=3, microbatches=2, zero=2, tp=2, sequence_parallel=True, bucket=200),
    "parameter shards": case(latent(), dp=2, zero=3, tp=2, sequence_parallel=True),
    "parameter shards, computed again": case(straight(), dp=2, zero=3, recompute=True, tp=2),
    "replicas of shards": case(latent(), dp=4, zero=3, replicas=2),
    "gather": case(latent(), cp=2, tp=2, sequence_parallel=True, context="allgather"),
    "gather, computed again": case(straight(), cp=2, tp=2, context="allgather", recompute=True),
    "heads": case(latent(), cp=2, context="ulysses"),
    "heads over both": case(straight(), cp=2, tp=2, context="ulysses", sequence_parallel=True),
    "ring over heads": case(latent(), 2, cp=2, tp=2, sequence_parallel=True),
    "ring of three": case(latent(), 2, 12, cp=3, dp=2),
    "ring, pipeline": case(latent(), 4, 16, cp=2, tp=2, pp=2, microbatches=2),
}


@pytest.mark.parametrize("name", FAST)
def test_a_layout_is_right(name: str) -> None:
    assert_right(FAST[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_another_layout_is_right(name: str) -> None:
    found: Case = SLOW[name]
    assert_right(found)
