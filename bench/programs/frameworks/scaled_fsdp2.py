"""FSDP2 with a scaled loss: the scaler adds up over ranks if a gradient is infinite."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from small import OPTIMIZERS, Batch, Network, loss_of, named, over
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from pitcheck.torch import Program, Rank, Spec

MISTAKES = ("gradients divided twice", "another scale on one rank")


def spec(mesh: Mapping[str, int], mistake: str = "", optimizer: str = "AdamW") -> Spec:
    """Return the network on one device, and its shards."""
    named(MISTAKES, mistake)

    def reference() -> Program:
        return scaled(Network(), optimizer)

    def parallel(rank: Rank) -> Program:
        model = Network()
        devices = init_device_mesh("cpu", tuple(mesh.values()), mesh_dim_names=tuple(mesh))
        for part in (model.up, model):
            fully_shard(part, mesh=devices)
        if mistake == "gradients divided twice":
            return scaled(model, optimizer, divisor=rank.mesh["dp"])
        other = mistake == "another scale on one rank" and rank.number
        return scaled(model, optimizer, scale=512.0 if other else 1024.0)

    return over(reference, parallel, mesh)


def scaled(
    model: nn.Module, optimizer: str, scale: float = 1024.0, divisor: float = 1.0
) -> Program:
    """Return a program whose loss is multiplied by a scale, and gradients divided by it."""
    made = OPTIMIZERS[optimizer](model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)

    def step(batch: Batch) -> torch.Tensor:
        made.zero_grad()
        loss = loss_of(model, batch["x"], batch["labels"])
        scaler.scale(loss / divisor).backward()
        scaler.step(made)
        scaler.update()
        return loss.detach()

    return Program(model, step, made)
