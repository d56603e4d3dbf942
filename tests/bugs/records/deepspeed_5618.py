"""Every rank's loss is a mean over its own tokens, so gradients are divided by the number of all
data-parallel ranks, those of experts as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from bugs.cases import llama, mixtral, spread
from bugs.record import Bug, Patched, each

from pitcheck.programs.data_parallel.buckets import Piece
from pitcheck.programs.data_parallel.sharded_parameters import weights_block
from pitcheck.programs.data_parallel.summed_gradients import reduced
from pitcheck.programs.rank import Rank


def averaged_over_replicas(
    rank: Rank, gradients: Mapping[str, str], pieces: Mapping[str, Piece]
) -> dict[str, str]:
    """Complete gradients, of losses that are as many times as large as there are data-parallel
    ranks, divided by the number of ranks with the parameter.
    """
    return reduced(
        rank,
        {name: _averaged(rank, name, gradient) for name, gradient in gradients.items()},
        pieces,
    )


def _averaged(rank: Rank, name: str, gradient: str) -> str:
    if ".experts." not in name:
        return gradient
    ranks, having = rank.axes.size(rank.axes.data), rank.axes.size(rank.sharing[name].axes)
    (stage,) = rank.homes[name]
    with rank.at(stage), rank.tape.block(weights_block(rank, stage)):
        return rank.tape.op("mul", gradient, Fraction(ranks, having), name=f"averaged:{name}")


buggy = Patched({"parallel_plan.reduced": averaged_over_replicas})

BUG = Bug(
    where="DeepSpeed #5618, #6545",
    should="the sum of an expert's gradients is divided by the number of data-parallel ranks",
    was="by the number of the expert's replicas: it is ep times as large",
    codes=("PIT101",),
    says=("experts",),
    shows=each(
        buggy,
        shards_of_experts=spread(mixtral(), 4, dp=4, ep=2, zero=1, bucket=300),
        without_shards=spread(mixtral(), 4, dp=4, ep=2),
    ),
    silent=each(
        buggy,
        all_experts_on_every_rank=spread(mixtral(), 2, dp=2, zero=1, bucket=300),
        no_experts=spread(llama(1), 2, dp=2, zero=1, bucket=300),
    ),
    slow=True,
)
