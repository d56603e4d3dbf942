"""The gate and up projections of SwiGLU are one weight, [gate; up], of each half of which a
tensor-parallel rank has a part.
"""

from __future__ import annotations

from bugs.cases import llama, spread
from bugs.record import Bug, Patched, each

from pitcheck.programs.rank import Names


def as_one(axes: Names, count: int, outputs: int, blocks: int) -> Names:
    """The rows that a rank loads, as if the weight were one matrix."""
    assert outputs % (count * blocks) == 0
    return axes


buggy = Patched({"layers.tensor_parallel._of_each": as_one})

BUG = Bug(
    where="Megatron-LM PR 520",
    should="[gate; up] is cut over tp as two matrices",
    was="as one, so that a rank's gate and up rows belong to different halves",
    codes=("PIT117",),
    says=("gate_up",),
    shows=each(
        buggy,
        two_ranks=spread(llama(1, fused_gate=True), 2, tp=2),
        four_ranks=spread(llama(1, fused_gate=True), 2, tp=4),
    ),
    silent=each(
        buggy,
        one_rank=spread(llama(1, fused_gate=True), 2, dp=2),
        two_weights=spread(llama(1), 2, tp=2),
    ),
)
