"""Data parallelism by hand.

A rank has a part of the batch; gradients are averaged over ranks before the optimizer uses them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

from pitcheck.torch import Input, Part, Program, Rank, Spec

ROWS, FEATURES, CLASSES = 8, 16, 10


def network() -> nn.Module:
    """Return the model, the same on one device and on every rank."""
    return nn.Sequential(
        nn.Linear(FEATURES, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, CLASSES)
    )


def training(model: nn.Module, synchronise: Callable[[nn.Module], None]) -> Program:
    """Return a training step on a batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(batch["x"]), batch["labels"])
        loss.backward()
        synchronise(model)
        optimizer.step()
        return loss

    return Program(model, step, optimizer)


def reference() -> Program:
    """Return the program on a single device."""
    return training(network(), lambda model: None)


def parallel(rank: Rank) -> Program:
    """Return the program of one rank."""

    def average(model: nn.Module) -> None:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= rank.mesh["dp"]

    return training(network(), average)


spec = Spec(
    reference,
    parallel,
    mesh={"dp": 2},
    batch={
        "x": Input((ROWS, FEATURES), split={0: "dp"}),
        "labels": Input((ROWS,), "int64", bounds=(0, CLASSES), split={0: "dp"}),
    },
    outputs={"loss": Part(mean="dp")},  # every rank has the mean over its own rows
)
