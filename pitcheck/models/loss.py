"""The mean loss of the tokens that are counted."""

from __future__ import annotations

from pitcheck.models.tape import Tape


def token_losses(tape: Tape, scores: str, labels: str, name: str) -> str:
    """Record the cross-entropy of every token: logsumexp(scores) - score of its label.

    ``scores`` is (sequences, length, rows); the result is (sequences, length).
    """
    lse = tape.op("logsumexp", scores, name=f"{name}.lse", axis=-1)
    picked = tape.op("gather", scores, tape.op("unsqueeze", labels, axis=2), axis=2)
    return tape.op(
        "sub", lse, tape.op("squeeze", picked, name=f"{name}.picked", axis=2), name=f"{name}.tokens"
    )


def masked_mean(tape: Tape, losses: str, mask: str, name: str) -> str:
    """Record the sum of the losses of the tokens that are counted, divided by their number.

    ``mask`` has a boolean per token: True if it is counted.
    """
    counted = tape.op("cast", mask, name=f"{name}.mask", dtype="float32")
    total = tape.op(
        "sum", tape.op("mul", losses, counted, name=f"{name}.counted"), name=f"{name}.sum"
    )
    return tape.op("div", total, tape.op("sum", counted, name=f"{name}.count"), name=name)
