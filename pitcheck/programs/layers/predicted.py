"""Multi-token prediction (DeepSeek-V3, 2024, section 2.2) on the ranks of the last stage.

The module has one more layer; embedding and output projection are the model's. The embedding is
then used at both ends of the pipeline, where its gradients are terms of a sum, as those of a tied
embedding are.
"""

from __future__ import annotations

from fractions import Fraction

from pitcheck.programs.layers.loss import TokenLoss
from pitcheck.programs.layers.regions import cut, enter, joined
from pitcheck.programs.layers.tensor_parallel import column, embed, norm
from pitcheck.programs.rank import Rank

LAYER = "predicted.layer"
"""The name of the module's layer."""


class Prediction:
    """The module: its tokens, which are one place further on, and its labels, mask and loss."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        bounds = (0, rank.model.vocabulary)
        self.tokens = rank.tape.input(
            "predicted.tokens",
            (rank.rows, rank.length),
            "int64",
            rank.tokens,
            microbatched=True,
            bounds=bounds,
        )
        self.loss = TokenLoss(
            rank, "predicted.", "loss.predicted.tokens", Fraction(rank.model.predicted_weight)
        )

    def join(self, x: str) -> str:
        """Record the input of the module's layer from the last hidden state ``x``.

        It is a linear map of [norm of ``x``, norm of the next token's embedding]. The map is cut by
        columns, as in Megatron-LM; the result is the residual stream, whole or, with sequence
        parallelism, a part of it.
        """
        rank, tape, name = self.rank, self.rank.tape, "predicted.join"
        with tape.module("predicted"):
            following = embed(rank, self.tokens, "predicted.embedding")
            both = tape.op(
                "cat",
                norm(rank, x, "predicted.hidden_norm"),
                norm(rank, following, "predicted.token_norm"),
                axis=2,
            )
            mapped = column(rank, enter(rank, both), name, rank.model.hidden, rank.axes.tensor)
            if not rank.axes.tensor:
                return mapped
            whole = joined(rank, mapped, 2, f"{name}:whole", rank.hint(name, rank.tokens))
            return (
                cut(rank, whole, f"{name}:own", rank.hint(name, rank.residual))
                if rank.layout.sequence_parallel
                else whole
            )
