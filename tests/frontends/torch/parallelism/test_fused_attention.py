"""Attention as Megatron-LM writes it: heads over ranks, one fused projection, collectives in place
or functional.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from frontends.torch.parallelism.regions import (
    Forgotten,
    FromRanks,
    FromRanksFunctional,
    ToRanks,
    ToRanksFunctional,
)
from frontends.torch.proving import caught, proven
from torch import nn

from pitcheck.torch import Input, Program, Rank, Spec

WIDTH, HEADS, LENGTH, RANKS = 8, 4, 3, 2
SIZE = WIDTH // HEADS


class Attention(nn.Module):
    """``interleaved``: the rows of the projection are query, key and value of one head after the
    other, else all queries, all keys, all values.
    """

    def __init__(self, ranks: int, interleaved: bool, enter: Any = None, leave: Any = None) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH // ranks)
        self.out = nn.Linear(WIDTH // ranks, WIDTH, bias=False)
        self.bias = nn.Parameter(torch.zeros(WIDTH))
        self.heads, self.interleaved = HEADS // ranks, interleaved
        self.enter, self.leave = (
            function.apply if function else (lambda x: x) for function in (enter, leave)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the attention of x, of shape (sequence, batch, width) as Megatron has it."""
        length, batch, _ = x.shape
        mixed = self.qkv(self.enter(self.norm(x)))
        if self.interleaved:
            q, k, v = mixed.view(length, batch, self.heads, 3 * SIZE).split(SIZE, dim=-1)
        else:
            q, k, v = (
                part.view(length, batch, self.heads, SIZE) for part in mixed.chunk(3, dim=-1)
            )
        q, k, v = (
            part.permute(1, 2, 0, 3).reshape(batch * self.heads, length, SIZE) for part in (q, k, v)
        )
        scores = torch.empty(batch * self.heads, length, length)
        scores = torch.baddbmm(scores, q, k.transpose(1, 2), beta=0.0, alpha=SIZE**-0.5)
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        context = torch.bmm(scores.masked_fill(hidden, float("-inf")).softmax(-1), v)
        context = (
            context.view(batch, self.heads, length, SIZE)
            .permute(2, 0, 1, 3)
            .reshape(length, batch, -1)
        )
        return x + self.finished(self.out(context))

    def finished(self, own: torch.Tensor) -> torch.Tensor:
        return self.leave(own) + self.bias


def training(model: Attention, **more: Any) -> Program:
    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss = (model(batch["x"]) - batch["y"]).square().mean()
        loss.backward()
        return loss

    return Program(model, step, **more)


def rows(rank: int, interleaved: bool) -> list[tuple[int, int]]:
    """Return the rows of the fused projection that are those of a rank's heads."""
    if interleaved:
        return [(rank * 3 * WIDTH // RANKS, (rank + 1) * 3 * WIDTH // RANKS)]
    return [
        (part * WIDTH + rank * WIDTH // RANKS, part * WIDTH + (rank + 1) * WIDTH // RANKS)
        for part in range(3)
    ]


def spec(
    interleaved: bool, enter: Any = ToRanks, leave: Any = FromRanks, held: bool | None = None
) -> Spec:
    """``held``: whether ranks hold the rows of interleaved heads, where that is not how they use
    them.
    """

    def parallel(rank: Rank) -> Program:
        own = rank.coordinate["tp"]
        qkv = rows(own, interleaved if held is None else held)
        columns = (own * WIDTH // RANKS, (own + 1) * WIDTH // RANKS)
        return training(
            Attention(RANKS, interleaved, enter, leave),
            parts={"qkv.weight": {0: qkv}, "qkv.bias": {0: qkv}, "out.weight": {1: [columns]}},
        )

    batch = {"x": Input((LENGTH, 2, WIDTH)), "y": Input((LENGTH, 2, WIDTH))}
    return Spec(lambda: training(Attention(1, interleaved)), parallel, {"tp": RANKS}, batch)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.slow
def test_in_place(interleaved: bool) -> None:
    proven(spec(interleaved))


def test_functional() -> None:
    proven(spec(True, ToRanksFunctional, FromRanksFunctional))


@pytest.mark.slow
def test_rows_in_another_order() -> None:
    """The projection was cut as if its rows were those of one head after the other: scores are the
    first that no reference value has.
    """
    caught(spec(False, held=True), "baddbmm(scores, q, k", "PIT100")


def test_gradients_not_added_up() -> None:
    caught(spec(True, Forgotten), "self.enter(self.norm(x))", "PIT104")


def test_bias_added_on_every_rank() -> None:
    """Before the sum over ranks, which then has it as often as there are ranks."""

    class Doubled(Attention):
        def finished(self, own: torch.Tensor) -> torch.Tensor:
            return self.leave(own + self.bias)  # on every rank

    def parallel(rank: Rank) -> Program:
        program = spec(True).parallel(rank)
        program.model.__class__ = Doubled
        return program

    right = spec(True)
    caught(Spec(right.reference, parallel, right.mesh, right.batch), "own + self.bias", "PIT108")
