"""Losses are sums over the tokens of a micro-batch; gradients are divided once by what these are to
be divided by, when all are accumulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from bugs.cases import llama, spread
from bugs.record import Bug, Patched, each

from pitcheck.plan.model import Use
from pitcheck.programs.data_parallel.buckets import Piece
from pitcheck.programs.data_parallel.summed_gradients import _all_reduced
from pitcheck.programs.layers.loss import TokenLoss
from pitcheck.programs.rank import Rank

forward, total = TokenLoss.forward, TokenLoss.total


def not_averaged(loss: TokenLoss, x: str) -> str:
    """A micro-batch's part of the loss, where it is differentiated times the number of
    micro-batches.
    """
    part = forward(loss, x)
    loss.part = loss.rank.tape.op("mul", part, loss.rank.layout.microbatches, name=f"{part}:scaled")
    return loss.part


def reported(loss: TokenLoss, name: str, hint: object) -> str:
    """The loss that is shown, of the parts as they were."""
    loss.part = loss.part.removesuffix(":scaled")
    return total(loss, name, hint)  # type: ignore[arg-type]


def scaled_each_time(
    rank: Rank, gradients: Mapping[str, str], pieces: Mapping[str, Piece]
) -> dict[str, str]:
    """Complete gradients: after every micro-batch what is in the buffer is divided by
    their number.
    """
    return {
        name: _all_reduced(rank, name, _buffer(rank, name, gradient), pieces)
        for name, gradient in gradients.items()
    }


def _buffer(rank: Rank, name: str, gradient: str) -> str:
    tape, count, buffer = rank.tape, rank.layout.microbatches, ""
    with rank.at(*rank.homes[name]):
        for number in range(count):
            own = Use(gradient, number)
            whole = number == count - 1 and not rank.sharing[name].sums
            buffer = tape.op("add", buffer, own) if buffer else tape.op("identity", own)
            hint = rank.like(f"grad:{name}", name) if whole else None
            buffer = tape.op(
                "mul",
                buffer,
                Fraction(1, count),
                name=f"grad:{name}" if whole else f"buffer{number}:{name}",
                hint=hint,
            )
    return buffer


buggy = Patched(
    {
        "layers.loss.TokenLoss.forward": not_averaged,
        "layers.loss.TokenLoss.total": reported,
        "parallel_plan.reduced": scaled_each_time,
    }
)

BUG = Bug(
    where="torchtitan PR 1732",
    should="gradients are scaled once, after all steps of accumulation",
    was="at every step, so that the first micro-batches count less",
    codes=("PIT101", "PIT108"),
    shows=each(
        buggy,
        one_stage=spread(llama(1), 3, microbatches=3),
        pipeline=spread(llama(2), 2, pp=2, microbatches=2),
    ),
    silent=each(
        buggy,
        one_microbatch=spread(llama(1), 2, dp=2),
        one_microbatch_in_a_pipeline=spread(llama(2), 2, dp=2, pp=2),
    ),
)
