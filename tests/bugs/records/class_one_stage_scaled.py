"""Gradients of all parameters are scaled alike."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from bugs.cases import llama, spread
from bugs.record import Bug, Patched, each

from pitcheck.programs.data_parallel.buckets import Piece
from pitcheck.programs.data_parallel.sharded_parameters import weights_block
from pitcheck.programs.data_parallel.summed_gradients import reduced
from pitcheck.programs.rank import Rank


def last_stage_scaled(
    rank: Rank, gradients: Mapping[str, str], pieces: Mapping[str, Piece]
) -> dict[str, str]:
    """Complete gradients; on the last stage every micro-batch's are divided by the number of
    stages.
    """
    return reduced(
        rank, {name: _scaled(rank, name, gradient) for name, gradient in gradients.items()}, pieces
    )


def _scaled(rank: Rank, name: str, gradient: str) -> str:
    if rank.homes[name] != (rank.last,):
        return gradient
    with rank.at(rank.last), rank.tape.block(weights_block(rank, rank.last)):
        return rank.tape.op("mul", gradient, Fraction(1, rank.layout.pp), name=f"scaled:{name}")


buggy = Patched({"parallel_plan.reduced": last_stage_scaled})

BUG = Bug(
    where="TrainVerify, synthetic: inconsistent scaling, of some gradients and others",
    should="gradients of all stages are scaled alike",
    was="those of the last stage are divided by the number of stages",
    codes=("PIT101",),
    says=("pp",),
    shows=each(
        buggy,
        two_stages=spread(llama(2), 2, pp=2),
        microbatches=spread(llama(2), 4, dp=2, pp=2, microbatches=2),
    ),
    silent=each(
        buggy,
        one_stage=spread(llama(1), 2, dp=2),
        one_stage_and_microbatches=spread(llama(1), 2, microbatches=2),
    ),
    slow=True,
)
