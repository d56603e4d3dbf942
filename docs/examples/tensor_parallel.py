"""Tensor parallelism as in Megatron-LM.

The first matrix is cut by columns, the second by rows; forward and backward have an all-reduce."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from pitcheck.torch import Input, Program, Rank, Spec

HIDDEN, INNER = 16, 64


class ToRanks(torch.autograd.Function):
    """The same input for all ranks; what they send back is added up."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient


class FromRanks(torch.autograd.Function):
    """The sum of what all ranks have; each gets the same gradient."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class MLP(nn.Module):
    """Two linear layers; ``ranks`` is by how many the inner features are divided."""

    def __init__(self, ranks: int = 1) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.up = nn.Linear(HIDDEN, INNER // ranks)
        self.down = nn.Linear(INNER // ranks, HIDDEN, bias=False)
        self.enter: Callable[[torch.Tensor], torch.Tensor] = (
            ToRanks.apply if ranks > 1 else lambda x: x
        )
        self.leave: Callable[[torch.Tensor], torch.Tensor] = (
            FromRanks.apply if ranks > 1 else lambda x: x
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = nn.functional.silu(self.up(self.enter(self.norm(x))))
        return x + self.leave(self.down(inner))


def training(model: nn.Module, **more: Any) -> Program:
    """Forward and backward; gradients are what is compared."""

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss = (model(batch["x"]) - batch["y"]).square().mean()
        loss.backward()
        return loss

    return Program(model, step, **more)


def reference() -> Program:
    """Return the program on a single device."""
    return training(MLP())


def parallel(rank: Rank) -> Program:
    """Return the program of one rank, with the part of the parameters that it holds."""
    ranks, own = rank.mesh["tp"], rank.coordinate["tp"]
    columns = (own * INNER // ranks, (own + 1) * INNER // ranks)
    return training(
        MLP(ranks),
        parts={
            "up.weight": {0: [columns]},
            "up.bias": {0: [columns]},
            "down.weight": {1: [columns]},
        },
    )


spec = Spec(
    reference, parallel, mesh={"tp": 2}, batch={"x": Input((6, HIDDEN)), "y": Input((6, HIDDEN))}
)
