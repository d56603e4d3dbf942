"""The loss is the sum over all tokens that count, divided by their number over all micro-batches
and ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from bugs.cases import llama, spread
from bugs.record import Bug, Built, Pair, Patched, each
from bugs.surgery import all_true

from pitcheck.programs.layers.loss import TokenLoss
from pitcheck.programs.layers.tensor_parallel import logits, norm, token_losses


def means(loss: TokenLoss, x: str) -> str:
    """A micro-batch's part: the mean over its own tokens, divided by the number of micro-batches
    and ranks.
    """
    rank, tape, name = loss.rank, loss.rank.tape, loss.name
    losses = token_losses(
        rank,
        logits(rank, norm(rank, x, f"{loss.prefix}norm"), f"{loss.prefix}logits"),
        loss.labels,
        name,
    )
    kept = tape.op("mul", losses, f"{name}.mask", name=f"{name}.counted")
    mean = tape.op(
        "div",
        tape.op("sum", kept, name=f"{name}.sum"),
        f"{name}.count:own",
        name=f"{loss.prefix}mean",
    )
    parts = rank.layout.microbatches * rank.axes.size((*rank.axes.data, *rank.axes.context))
    loss.part = tape.op("mul", mean, Fraction(1, parts), name=f"{loss.prefix}loss.part")
    return loss.part


buggy = Patched({"layers.loss.TokenLoss.forward": means})


@dataclass(frozen=True)
class AllCount(Built):
    """The masks of both plans say that every token counts."""

    def right(self) -> Pair:
        reference, parallel = super().right()
        return all_true(reference, "mask"), all_true(parallel, "mask")

    def wrong(self) -> Pair:
        reference, parallel = super().wrong()
        return all_true(reference, "mask"), all_true(parallel, "mask")


BUG = Bug(
    where="transformers PR 34191, torchtune PR 2172",
    should="the sum of all losses by the number of all tokens",
    was="the mean of the means of micro-batches, or of ranks",
    codes=("PIT112",),
    shows=each(
        buggy,
        microbatches=spread(llama(1), 2, microbatches=2),
        ranks=spread(llama(1), 2, dp=2),
        context_parallel_ranks=spread(llama(1), 2, 8, cp=2),
    ),
    silent={
        **each(buggy, one_rank_and_microbatch=spread(llama(1), 2, tp=2)),
        "equal numbers of tokens in micro-batches": AllCount(
            spread(llama(1), 2, microbatches=2), buggy
        ),
        "equal numbers of tokens on ranks": AllCount(
            spread(llama(1), 4, dp=2, microbatches=2), buggy
        ),
    },
)
