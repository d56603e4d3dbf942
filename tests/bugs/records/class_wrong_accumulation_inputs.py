"""The gradients of all micro-batches are added up."""

from __future__ import annotations

from collections.abc import Mapping

from bugs.cases import llama, spread
from bugs.record import Bug, Patched, each

from pitcheck.plan.model import Use
from pitcheck.programs.data_parallel.buckets import Piece
from pitcheck.programs.data_parallel.summed_gradients import _all_reduced
from pitcheck.programs.rank import Rank


def of_the_first(
    rank: Rank, gradients: Mapping[str, str], pieces: Mapping[str, Piece]
) -> dict[str, str]:
    """Complete gradients; the first micro-batch's is added to the sum as often as there are
    micro-batches.
    """
    return {
        name: _all_reduced(rank, name, _sum(rank, name, gradient), pieces)
        for name, gradient in gradients.items()
    }


def _sum(rank: Rank, name: str, gradient: str) -> str:
    tape, count = rank.tape, rank.layout.microbatches
    names = [f"sum{number}:{name}" for number in range(count - 1)] + [
        f"accumulated:{name}" if rank.sharing[name].sums else f"grad:{name}"
    ]
    hint = (
        rank.term(name, rank.like(name, name), rank.sharing[name].axes)
        if rank.sharing[name].sums
        else rank.like(f"grad:{name}", name)
    )
    total = ""
    with rank.at(*rank.homes[name]):
        for number, one in enumerate(names):
            own, held = Use(gradient, 0), hint if number == count - 1 else None
            total = (
                tape.op("add", total, own, name=one, hint=held)
                if total
                else tape.op("identity", own, name=one, hint=held)
            )
    return total


buggy = Patched({"parallel_plan.reduced": of_the_first})

BUG = Bug(
    where="TrainVerify, synthetic: wrong inputs to a gradient accumulation",
    should="every micro-batch's gradient is added once",
    was="the first one's every time",
    codes=("PIT108",),
    shows=each(
        buggy,
        two_microbatches=spread(llama(1), 2, microbatches=2),
        over_data_too=spread(llama(1), 4, dp=2, microbatches=2),
    ),
    silent=each(
        buggy,
        one_microbatch=spread(llama(1), 2, dp=2),
        one_microbatch_on_two_stages=spread(llama(2), 2, dp=2, pp=2),
    ),
)
