"""Multi-token prediction on a rank: every kind of parallelism computes what the single device computes, and one typical mistake in it is caught."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from program_cases import Case, assert_right, case, gpt, llama

from pitcheck.models.config import Model
from pitcheck.models.presets import preset


def predicting(layers: int = 2, **changes: Any) -> Model:
    """One more prediction per token from a module with a dense layer."""
    return replace(preset("deepseek-v3-671b-tiny"), layers=layers, experts=None, dense_layers=0, **changes)


def tied(layers: int = 2) -> Model:
    """With one weight as embedding and output projection, which the last stage uses three times."""
    return replace(gpt(layers), predicted=1)


FAST = {
    "one rank": case(predicting()),
    "tensor": case(predicting(), tp=2, dp=2),
    "pipeline": case(predicting(), pp=2, microbatches=2),
}

SLOW = {
    "data, microbatches": case(predicting(), 8, dp=2, microbatches=2),
    "heads, not latent": case(llama(predicted=1), 8, dp=2, tp=4, microbatches=2),
    "sequence": case(predicting(), tp=2, sequence_parallel=True),
    "sequence, pipeline": case(predicting(3), 8, pp=2, tp=2, dp=2, microbatches=2, sequence_parallel=True),
    "tied": case(tied(), tp=2),
    "tied ends": case(tied(), pp=2, tp=2, microbatches=2),
    "ends of three stages": case(predicting(3), 8, pp=3, dp=2, microbatches=4, schedule="gpipe"),
    "interleaved": case(predicting(4), 8, pp=2, virtual=2, microbatches=4, schedule="interleaved", tp=2),
    "zero bubbles": case(predicting(), pp=2, microbatches=2, schedule="zero-bubble", tp=2),
    "computed again": case(predicting(), pp=2, tp=2, recompute=True, sequence_parallel=True, microbatches=2),
    "optimizer shards": case(predicting(), dp=2, zero=1, pp=2, microbatches=2, bucket=300),
    "gradient shards": case(predicting(), dp=2, zero=2, pp=2, tp=2, microbatches=2, bucket=300),
    "parameter shards": case(predicting(), dp=2, zero=3, tp=2, sequence_parallel=True),
    "parameter shards, ends": case(predicting(), dp=2, zero=3, pp=2, microbatches=2, recompute=True),
    "gather": case(predicting(), cp=2, tp=2, context="allgather", sequence_parallel=True),
    "heads": case(predicting(), cp=2, pp=2, context="ulysses", microbatches=2),
    "ring": case(predicting(), 2, cp=2, tp=2),
    "ring, ends": case(predicting(), 4, 16, cp=2, pp=2, microbatches=2, dp=2, zero=1, bucket=300),
}


@pytest.mark.parametrize("name", FAST)
def test_a_layout_is_right(name: str) -> None:
    assert_right(FAST[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_another_layout_is_right(name: str) -> None:
    found: Case = SLOW[name]
    assert_right(found)
