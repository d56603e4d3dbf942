"""The norm by which gradients are clipped is that of all parameters, experts among them."""

from __future__ import annotations

from collections.abc import Mapping

from bugs.cases import llama, mixtral, spread
from bugs.record import Bug, Patched, each

from pitcheck.programs.data_parallel.optimizer_step import Held, _squares
from pitcheck.programs.rank import Rank


def without_experts(rank: Rank, gradients: Mapping[str, str], pieces: Mapping[str, Held]) -> str:
    """The sum of squares over the parameters that are not spread over expert-parallel ranks."""
    own = {*rank.axes.experts, *rank.axes.expert_tensor}
    kept = {
        name: g
        for name, g in gradients.items()
        if ".experts." not in name or not own & {*rank.parted(rank.tape.tensors[name].lineage)}
    }
    return _squares(rank, kept, pieces)


buggy = Patched({"data_parallel.optimizer_step._squares": without_experts})

BUG = Bug(
    where="Megatron-LM PR 5916",
    should="gradients are clipped by the norm over all parameters",
    was="parameters of experts are left out of the norm",
    codes=("PIT113",),
    says=("experts",),
    shows=each(
        buggy,
        experts_over_data=spread(mixtral(), 2, dp=2, ep=2),
        experts_over_tensor=spread(mixtral(), 2, tp=2, ep=2, sequence_parallel=True),
        experts_cut_otherwise_than_the_rest=spread(mixtral(), 4, dp=4, ep=2, etp=2),
    ),
    silent=each(
        buggy,
        all_experts_on_every_rank=spread(mixtral(), 2, dp=2),
        no_experts=spread(llama(1), 2, dp=2),
    ),
    slow=True,
)
