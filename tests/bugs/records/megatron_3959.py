"""The loss of multi-token prediction is divided by the number of context-parallel ranks where it is
computed and once more where losses are collected.
"""

from __future__ import annotations

from fractions import Fraction

from bugs.cases import llama, spread
from bugs.record import Bug, Patched, each

from pitcheck.programs.layers.loss import TokenLoss

forward = TokenLoss.forward


def divided_again(loss: TokenLoss, x: str) -> str:
    """Its part of the loss of the prediction beyond the next token, divided by cp."""
    part = forward(loss, x)
    if loss.prefix == "predicted.":
        loss.part = loss.rank.tape.op(
            "mul", part, Fraction(1, loss.rank.layout.cp), name=f"{part}:scaled"
        )
    return loss.part


buggy = Patched({"layers.loss.TokenLoss.forward": divided_again})

BUG = Bug(
    where="Megatron-LM PR 3959",
    should="the loss of multi-token prediction is divided by cp once",
    was="twice",
    codes=("PIT101",),
    says=("cp",),
    shows=each(
        buggy,
        ring=spread(llama(1, predicted=1), 2, 8, cp=2),
        three_ranks=spread(llama(1, predicted=1), 2, 6, cp=3, context="allgather"),
    ),
    silent=each(
        buggy,
        one_context_parallel_rank=spread(llama(1, predicted=1), 2, dp=2),
        nothing_predicted=spread(llama(1), 2, 8, cp=2),
    ),
    slow=True,
)
