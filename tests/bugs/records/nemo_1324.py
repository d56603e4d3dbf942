"""Queries, keys and values come from one matrix, [q; k; v]: a tensor-parallel rank has the rows of
its heads in each of the three.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from bugs.parallel import enter, leave
from bugs.record import Bug, Recorded
from torch import nn

from pitcheck.torch import Input, Program, Rank, Spec

ROWS, LENGTH, HEADS, SIZE = 2, 3, 2, 2
WIDTH = HEADS * SIZE
Batch = dict[str, torch.Tensor]


class Attention(nn.Module):
    def __init__(self, ranks: int = 1) -> None:
        super().__init__()
        self.ranks = ranks
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH // ranks, bias=False)
        self.o = nn.Linear(WIDTH // ranks, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fused = self.qkv(enter(x, self.ranks))
        q, k, v = (
            part.unflatten(-1, (HEADS // self.ranks, SIZE)).transpose(1, 2)
            for part in fused.chunk(3, dim=-1)
        )
        mixed = (q @ k.transpose(2, 3)).softmax(-1) @ v
        return leave(self.o(mixed.transpose(1, 2).flatten(2)), self.ranks)


def training(model: nn.Module, **more: Any) -> Program:
    def step(batch: Batch) -> torch.Tensor:
        loss = (model(batch["x"]) - batch["y"]).square().sum()
        loss.backward()
        return loss

    return Program(model, step, **more)


def program(ranks: int, wrong: bool) -> Spec:
    def parallel(rank: Rank) -> Program:
        own, size = rank.coordinate["tp"], WIDTH // ranks
        rows = (
            [(own * 3 * size, (own + 1) * 3 * size)]
            if wrong
            else [(part * WIDTH + own * size, part * WIDTH + (own + 1) * size) for part in range(3)]
        )
        return training(
            Attention(ranks),
            parts={"qkv.weight": {0: rows}, "o.weight": {1: [(own * size, (own + 1) * size)]}},
        )

    batch = {name: Input((ROWS, LENGTH, WIDTH)) for name in ("x", "y")}
    return Spec(lambda: training(Attention()), parallel, {"tp": ranks}, batch)


BUG = Bug(
    where="NeMo Automodel PR 1324",
    should="a fused weight of queries, keys and values is cut over tp by heads, in each of its "
    "three parts",
    was="contiguously, so that ranks take rows of queries for keys and values",
    codes=("PIT117",),
    says=("qkv",),
    shows={"two ranks": Recorded(partial(program, 2))},
    silent={"one rank": Recorded(partial(program, 1))},
)
