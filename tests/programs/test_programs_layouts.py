"""Every kind of parallelism, alone and together, computes what the single device computes."""

from __future__ import annotations

import pytest
from programs.program_cases import FUSED, Case, assert_right, case, gpt, layouts, llama

FAST = {
    "data": case(llama(), 8, dp=2, microbatches=2),
    "tensor": case(llama(), tp=2, dp=2),
    "sequence": case(llama(), tp=2, sequence_parallel=True),
    "more ranks than key-value heads": case(llama(), tp=4),
    "optimizer shards": case(llama(), dp=2, microbatches=2, zero=1, bucket=300),
    "parameter shards": case(llama(), dp=2, microbatches=2, zero=3),
    "ring": case(llama(), 2, cp=2),
    "pipeline": case(gpt(3), pp=2, microbatches=2),
}

SLOW = {
    "microbatches alone": case(llama(), microbatches=4),
    "one rank": case(llama()),
    "tensor, gpt": case(gpt(), tp=2, dp=2),
    "tensor over heads and copies": case(
        llama(), 8, tp=4, dp=2, microbatches=2, sequence_parallel=True
    ),
    "fused weights": case(llama(attention=FUSED, fused_gate=True), tp=2),
    "sequence, gpt": case(gpt(), tp=2, sequence_parallel=True),
    "everything fills and drains": case(llama(3), pp=2, microbatches=4, schedule="gpipe"),
    "tied ends of three stages": case(gpt(4, 4), 8, pp=3, microbatches=4, tp=2, dp=2),
    "uneven stages": case(llama(4), pp=3, microbatches=4),
    "gather": case(llama(), cp=2, tp=2, sequence_parallel=True, context="allgather"),
    "gather, gpt": case(gpt(), cp=2, dp=2, context="allgather"),
    "heads": case(llama(), cp=2, context="ulysses"),
    "fewer heads than ranks": case(llama(), cp=2, tp=2, context="ulysses"),
    "uneven shards": case(llama(), 6, dp=3, microbatches=2, zero=1, bucket=500),
    "gradient shards": case(llama(), 6, dp=3, microbatches=2, zero=2, bucket=500),
    "gradient shards, tied ends": case(gpt(), dp=2, microbatches=2, zero=2, tp=2, pp=2, bucket=300),
    "optimizer shards, sequence": case(
        llama(), dp=2, zero=1, tp=2, sequence_parallel=True, bucket=300
    ),
    "gradient shards, zero bubbles": case(
        llama(), dp=2, zero=2, pp=2, schedule="zero-bubble", microbatches=2, bucket=300
    ),
    "uneven parameter shards": case(llama(), 3, dp=3, zero=3),
    "replicas of shards": case(llama(), dp=4, zero=3, replicas=2, tp=2),
    "parameter shards, tied ends": case(gpt(), dp=2, zero=3, pp=2, microbatches=2),
    "parameter shards, computed again": case(llama(), dp=2, zero=3, recompute=True),
    "parameter shards, gather": case(
        llama(), dp=2, zero=3, tp=2, cp=2, context="allgather", sequence_parallel=True
    ),
    "parameter shards, zero bubbles": case(
        llama(), dp=2, zero=3, pp=2, schedule="zero-bubble", microbatches=2
    ),
    "ring of three": case(gpt(), 2, 12, cp=3),
    "ring of four": case(llama(4), 2, 16, cp=4),
    "ring, sequence": case(llama(), 4, 16, cp=2, tp=2, sequence_parallel=True, dp=2),
    "ring, copies of heads, pipeline": case(llama(), 4, 16, cp=2, tp=4, pp=2, microbatches=2),
    "ring, parameter shards, zero bubbles": case(
        llama(), cp=2, dp=2, zero=3, pp=2, schedule="zero-bubble", microbatches=2
    ),
    "interleaved": case(llama(4), 8, pp=2, virtual=2, microbatches=4, schedule="interleaved", dp=2),
    "interleaved, gpt": case(gpt(4), pp=2, virtual=2, microbatches=2, schedule="interleaved", tp=2),
    "interleaved, uneven": case(
        llama(5), 6, pp=2, virtual=2, microbatches=6, schedule="interleaved"
    ),
    "zero bubbles": case(llama(3), pp=3, microbatches=4, schedule="zero-bubble"),
    "zero bubbles, gpt": case(gpt(), pp=2, microbatches=2, schedule="zero-bubble", tp=2),
    "computed again": case(
        llama(4), pp=2, tp=2, recompute=True, sequence_parallel=True, microbatches=2
    ),
    "computed again, gather": case(llama(), cp=2, context="allgather", recompute=True),
    "computed again, heads": case(gpt(), cp=2, context="ulysses", recompute=True, tp=2),
    "heads, gpt": case(gpt(), cp=4, pp=2, context="ulysses"),
}


@pytest.mark.parametrize("found", layouts(FAST, SLOW))
def test_a_layout_is_right(found: Case) -> None:
    assert_right(found)
