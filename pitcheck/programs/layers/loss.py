"""The mean loss of the tokens that are counted, on the ranks of the last stage."""

from __future__ import annotations

from fractions import Fraction

from pitcheck.models.records import Hint
from pitcheck.programs.layers.tensor_parallel import logits, norm, token_losses
from pitcheck.programs.rank import Rank


class TokenLoss:
    """One prediction per token: its labels, which tokens are counted, and its weighted mean loss.

    ``prefix`` begins the names of inputs and parameters; ``name`` is that of the mean, which counts
    with ``weight``.
    """

    def __init__(self, rank: Rank, prefix: str, name: str, weight: Fraction = Fraction(1)) -> None:
        self.rank = rank
        self.prefix = prefix
        self.name = name
        self.weight = weight
        shape, tape = (rank.rows, rank.length), rank.tape
        self.labels = tape.input(
            f"{prefix}labels",
            shape,
            "int64",
            rank.tokens,
            microbatched=True,
            bounds=(0, rank.model.vocabulary),
        )
        self.mask = tape.input(f"{prefix}mask", shape, "bool", rank.tokens, microbatched=True)
        self.part = ""

    def count(self) -> None:
        """Record the number of tokens that are counted, over all micro-batches and ranks."""
        tape, name = self.rank.tape, self.name
        with tape.block("count"):
            counted = tape.op("cast", self.mask, name=f"{name}.mask", dtype="float32")
            own = tape.op("sum", counted, name=f"{name}.count:own")
        with tape.block("begin"):
            count = tape.op("accumulate", own, name=f"{name}.count:rank")
            axes = (*self.rank.axes.data, *self.rank.axes.context)
            self.counted = (
                tape.op("all_reduce", count, group=axes, name=f"{name}.count") if axes else count
            )

    def forward(self, x: str) -> str:
        """Record a micro-batch's term of the mean loss from the last hidden state ``x``.

        It is the sum of the losses of its counted tokens, divided by the number of all counted
        tokens.
        """
        rank, tape, name = self.rank, self.rank.tape, self.name
        scores = logits(rank, norm(rank, x, f"{self.prefix}norm"), f"{self.prefix}logits")
        losses = token_losses(rank, scores, self.labels, name)
        # No hint: a cut would forget that uncounted tokens have the loss 0, which decides the
        # result for 0 counted tokens.
        kept = tape.op("mul", losses, f"{name}.mask", name=f"{name}.counted")
        mean = tape.op(
            "div",
            tape.op("sum", kept, name=f"{name}.sum"),
            self.counted,
            name=f"{self.prefix}loss.part",
        )
        self.part = (
            mean
            if self.weight == 1
            else tape.op("mul", mean, self.weight, name=f"{self.prefix}loss.part:weighted")
        )
        return self.part

    def total(self, name: str, hint: Hint) -> str:
        """Record the sum of all terms, called ``name``."""
        tape = self.rank.tape
        total = tape.op("accumulate", self.part, name=f"{name}:rank")
        axes = (*self.rank.axes.data, *self.rank.axes.context)
        return (
            tape.op("all_reduce", total, group=axes, name=name, hint=hint)
            if axes
            else tape.op("identity", total, name=name, hint=hint)
        )
