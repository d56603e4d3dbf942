"""The router sees a part of every sequence under sequence parallelism, so the gradient of its
weight is a term of a sum over tensor-parallel ranks.
"""

from __future__ import annotations

from bugs.cases import llama, mixtral, spread
from bugs.record import Bug, Patched, each

from pitcheck.models.config import Experts
from pitcheck.programs.layers.router import Routing, route
from pitcheck.programs.rank import Rank


def unmarked(rank: Rank, x: str, name: str, experts: Experts) -> Routing:
    """The router, whose weight does not say that its gradient is to be summed over tensor-parallel
    ranks.
    """
    found = route(rank, x, name, experts)
    rank.sharing[f"{name}.router.weight"] = rank.dense(())
    return found


buggy = Patched({"layers.experts.route": unmarked})

BUG = Bug(
    where="Megatron-LM #599",
    should="the gradient of the router's weight is summed over tp, whose ranks have different "
    "tokens",
    was="only over data-parallel ranks",
    codes=("PIT104",),
    says=("router.weight", "tp"),
    shows=each(
        buggy,
        sequence_parallel=spread(mixtral(), 2, tp=2, ep=2, sequence_parallel=True),
        experts_cut_otherwise_than_the_rest=spread(
            mixtral(), 4, dp=2, tp=2, ep=2, etp=2, sequence_parallel=True
        ),
        over_data_too=spread(mixtral(), 4, dp=2, tp=2, ep=2, sequence_parallel=True),
    ),
    silent=each(
        buggy,
        same_tokens_on_all_ranks=spread(mixtral(), 2, tp=2),
        one_tensor_parallel_rank=spread(mixtral(), 4, dp=2, ep=2),
        no_experts=spread(llama(1), 2, tp=2, sequence_parallel=True),
    ),
)
