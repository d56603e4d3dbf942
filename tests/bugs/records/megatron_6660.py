"""A reduce-scatter in a group of one rank gives back the buffer itself, which is then added to
itself, once per micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping

from bugs.cases import llama, mixtral, spread
from bugs.record import Bug, Patched, each

from pitcheck.plan.model import Use
from pitcheck.programs.data_parallel.buckets import Piece
from pitcheck.programs.data_parallel.summed_gradients import reduced
from pitcheck.programs.rank import Rank


def doubled(
    rank: Rank, gradients: Mapping[str, str], pieces: Mapping[str, Piece]
) -> dict[str, str]:
    """Complete gradients; where no rank shares a parameter the sum so far is added to itself with
    every micro-batch.
    """
    complete = reduced(
        rank,
        {name: gradient for name, gradient in gradients.items() if rank.sharing[name].sums},
        pieces,
    )
    for name in gradients.keys() - complete.keys():
        with rank.at(*rank.homes[name]):
            complete[name] = _buffer(rank, name, gradients[name])
    return {name: complete[name] for name in gradients}


def _buffer(rank: Rank, name: str, gradient: str) -> str:
    tape, buffer = rank.tape, ""
    for number in range(rank.layout.microbatches):
        own = Use(gradient, number)
        buffer = tape.op("add", buffer, own) if buffer else tape.op("identity", own)
        last = number == rank.layout.microbatches - 1
        buffer = tape.op(
            "add",
            buffer,
            buffer,
            name=f"grad:{name}" if last else "",
            hint=rank.like(f"grad:{name}", name) if last else None,
        )
    return buffer


buggy = Patched({"parallel_plan.reduced": doubled})

BUG = Bug(
    where="Megatron-LM #6660",
    should="every micro-batch's gradient is added to the buffer once",
    was="in a group of one rank the buffer is added to itself with every micro-batch: about 2^N "
    "times the gradient",
    codes=("PIT108", "PIT101"),
    shows=each(
        buggy,
        one_rank=spread(llama(1), 3, microbatches=3),
        experts_of_one_rank=spread(mixtral(), 4, dp=2, ep=2, microbatches=2),
        one_microbatch=spread(llama(1), 2, tp=2),
    ),
    silent=each(buggy, groups_of_two=spread(llama(1), 4, dp=2, microbatches=2)),
)
