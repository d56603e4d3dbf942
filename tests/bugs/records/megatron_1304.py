"""Layers that do not divide by the number of stages: what remains is on some of the stages."""

from __future__ import annotations

from bugs.cases import llama, spread
from bugs.record import Bug, Patched, each


def without_remainder(stage: int, stages: int, layers: int) -> range:
    """As many layers on every stage as the quotient says."""
    own = layers // stages
    return range(stage * own, (stage + 1) * own)


buggy = Patched({"parallel_plan.layers_of": without_remainder})

BUG = Bug(
    where="Megatron-LM #1304",
    should="30 layers on 4 stages are 30 layers",
    was="28: what is left over by the division is dropped",
    codes=("PIT115",),
    says=("layers.2",),
    shows=each(
        buggy,
        three_layers_on_two_stages=spread(llama(3), 2, pp=2, microbatches=2),
        four_layers_on_three_stages=spread(llama(4), 2, pp=3, microbatches=2),
    ),
    silent=each(
        buggy,
        as_many_layers_as_stages=spread(llama(2), 2, pp=2, microbatches=2),
        one_stage=spread(llama(3), 2, dp=2),
    ),
    slow=True,
)
