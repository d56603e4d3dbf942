"""The loss is multiplied by the number of context-parallel ranks where it is differentiated, and
gradients are divided by data-parallel ranks alone.
"""

from __future__ import annotations

from bugs.cases import llama, spread
from bugs.record import Bug, Patched, each

from pitcheck.models.records import Hint
from pitcheck.programs.layers.loss import TokenLoss

forward, total = TokenLoss.forward, TokenLoss.total


def multiplied(loss: TokenLoss, x: str) -> str:
    """A micro-batch's part of the loss, for its gradient times cp."""
    part = forward(loss, x)
    loss.part = loss.rank.tape.op("mul", part, loss.rank.layout.cp, name=f"{part}:scaled")
    return loss.part


def reported(loss: TokenLoss, name: str, hint: Hint) -> str:
    """The loss that is shown, of the parts as they were."""
    loss.part = loss.part.removesuffix(":scaled")
    return total(loss, name, hint)


buggy = Patched(
    {"layers.loss.TokenLoss.forward": multiplied, "layers.loss.TokenLoss.total": reported}
)

BUG = Bug(
    where="Megatron-LM #906, #673",
    should="what multiplies the loss by cp is taken out of the gradients again",
    was="gradients are divided by dp only: all are cp times as large",
    codes=("PIT101",),
    says=("cp",),
    shows=each(
        buggy,
        three_ranks=spread(llama(1), 2, 6, cp=3, context="allgather"),
        ring=spread(llama(1), 2, 8, cp=2),
        over_data_too=spread(llama(1), 4, 8, dp=2, cp=2),
    ),
    silent=each(
        buggy,
        one_context_parallel_rank=spread(llama(1), 4, dp=2, microbatches=2),
        a_group_of_one=spread(llama(1), 2),
    ),
)
