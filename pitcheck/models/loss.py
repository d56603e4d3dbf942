"""The mean loss of the tokens that count."""

from __future__ import annotations

from pitcheck.models.tape import Tape


def token_losses(tape: Tape, scores: str, labels: str, name: str) -> str:
    """The cross-entropy of every token, logsumexp(scores) - score of the label, (sequences, length)
    from scores (sequences, length, rows).
    """
    lse = tape.op("logsumexp", scores, name=f"{name}.lse", axis=-1)
    picked = tape.op("gather", scores, tape.op("unsqueeze", labels, axis=2), axis=2)
    return tape.op(
        "sub", lse, tape.op("squeeze", picked, name=f"{name}.picked", axis=2), name=f"{name}.tokens"
    )


def masked_mean(tape: Tape, losses: str, mask: str, name: str) -> str:
    """The sum of the losses of the tokens that ``mask`` (a boolean per token) counts, divided by
    their number.
    """
    counted = tape.op("cast", mask, name=f"{name}.mask", dtype="float32")
    total = tape.op(
        "sum", tape.op("mul", losses, counted, name=f"{name}.counted"), name=f"{name}.sum"
    )
    return tape.op("div", total, tape.op("sum", counted, name=f"{name}.count"), name=name)
