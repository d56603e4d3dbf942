"""Under sequence parallelism the final layer norm sees a part of every sequence, so its gradient is
a term of a sum over tensor-parallel ranks.
"""

from __future__ import annotations

from bugs.cases import llama, spread
from bugs.record import Bug, Patched, each

from pitcheck.programs.layers.tensor_parallel import norm
from pitcheck.programs.rank import Rank


def unmarked(rank: Rank, x: str, name: str) -> str:
    """The norm before the loss, whose weight does not say that its gradient is to be summed over
    tensor-parallel ranks.
    """
    found = norm(rank, x, name)
    rank.sharing[f"{name}.weight"] = rank.dense(())
    return found


buggy = Patched({"layers.loss.norm": unmarked})

BUG = Bug(
    where="Megatron-LM #1446",
    should="the gradient of the final layer norm is summed over tp",
    was="its all-reduce is missing",
    codes=("PIT104",),
    says=("norm.weight", "tp"),
    shows=each(
        buggy,
        sequence_parallel=spread(llama(1), 2, tp=2, sequence_parallel=True),
        over_data_and_pipeline_too=spread(llama(2), 4, dp=2, tp=2, pp=2, sequence_parallel=True),
    ),
    silent=each(
        buggy,
        without_sequence_parallelism=spread(llama(1), 2, tp=2),
        one_tensor_parallel_rank=spread(llama(1), 4, dp=2, microbatches=2),
    ),
)
