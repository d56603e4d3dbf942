"""A bucket of gradients is reduced when the last operator of the last micro-batch has written its
gradient.
"""

from __future__ import annotations

from collections.abc import Mapping

from bugs.cases import llama, spread
from bugs.record import Bug, Patched, each

from pitcheck.plan.model import Use
from pitcheck.programs.data_parallel.buckets import Piece
from pitcheck.programs.data_parallel.summed_gradients import reduced
from pitcheck.programs.rank import Rank

LATE = "layers.0.attention_norm.weight"
"""The gradient that comes last."""


def early(rank: Rank, gradients: Mapping[str, str], pieces: Mapping[str, Piece]) -> dict[str, str]:
    """Complete gradients; the last one of the last micro-batch is added to the buffer after the sum
    over ranks was taken.
    """
    complete = reduced(
        rank, {name: gradient for name, gradient in gradients.items() if name != LATE}, pieces
    )
    return {
        name: _late(rank, name, gradient) if name == LATE else complete[name]
        for name, gradient in gradients.items()
    }


def _late(rank: Rank, name: str, gradient: str) -> str:
    tape, last, data = (
        rank.tape,
        rank.layout.microbatches - 1,
        (*rank.axes.data, *rank.axes.context),
    )
    with rank.at(*rank.homes[name]):
        buffer = tape.op(
            "accumulate", gradient, name=f"buffer:{name}", microbatches=tuple(range(last))
        )
        buffer = (
            tape.op("all_reduce", buffer, name=f"reduced:{name}", group=data) if data else buffer
        )
        return tape.op(
            "add",
            buffer,
            Use(gradient, last),
            name=f"grad:{name}",
            hint=rank.like(f"grad:{name}", name),
        )


buggy = Patched({"parallel_plan.reduced": early})

BUG = Bug(
    where="TrainVerify, synthetic: a reducer launched before the last operator of a micro-batch",
    should="a gradient is summed over data-parallel ranks when all micro-batches are in it",
    was="before the last one's is",
    codes=("PIT116", "PIT108"),
    says=("layers.0.attention_norm.weight",),
    shows=each(
        buggy,
        two_microbatches=spread(llama(1), 4, dp=2, microbatches=2),
        three_microbatches=spread(llama(1), 6, dp=2, microbatches=3),
    ),
    silent=each(
        buggy,
        one_rank=spread(llama(1), 2, microbatches=2),
        one_replica=spread(llama(1), 4, tp=2, microbatches=2),
    ),
)
