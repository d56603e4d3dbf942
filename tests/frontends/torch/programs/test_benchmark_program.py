"""The Llama that the benchmarks record, of one layer over two ranks: causal attention by one
kernel, whose gradient takes exp(s - logsumexp(s)) of masked scores, ends no proof.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from frontends.torch.proving import proven

sys.path.insert(0, str(Path(__file__).parents[4] / "bench" / "programs"))

import llama

SIZES = llama.Sizes(
    layers=1, hidden=16, heads=4, kv_heads=2, ffn=24, vocabulary=32, sequences=4, length=8
)


@pytest.mark.slow
def test_gradients_in_front_of_causal_attention_are_proven_step_by_step() -> None:
    report = proven(llama.spec_of(SIZES, dp=1, tp=2))
    assert report.stages.inconclusive == 0
    # Without cuts in front of attention a single stage has all that stands there.
    assert report.stages.distinct > 80
