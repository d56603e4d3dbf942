"""DTensor: a Llama by tensor parallelism, with sequence parallelism and with FSDP2 around it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from frontends.torch.parallelism.test_tensor_parallel import TOKENS, Llama, split_layers, trained
from small import Batch, named
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard

from pitcheck.torch import Part, Program, Rank, Spec

MISTAKES = ("gradients of norms not summed", "loss not scaled")


def spec(
    mesh: Mapping[str, int], mistake: str = "", sequence: bool = True, optimizer: bool = False
) -> Spec:
    """Return a Llama on one device, and spread over the axes "dp" (FSDP2) and "tp"."""
    named(MISTAKES, mistake)

    def reference() -> Program:
        return stepped(Llama(), 1.0, False)

    def stepped(model: nn.Module, scale: float, summed: bool) -> Program:
        made = torch.optim.AdamW(model.parameters(), lr=0.1) if optimizer else None
        inner = trained(model, scale)

        def step(batch: Batch) -> torch.Tensor:
            model.zero_grad()
            loss = inner(batch)
            if summed:
                whole(model, mistake)
            if made is not None:
                made.step()
                made.zero_grad()
            return loss

        return Program(model, step, made)

    def parallel(_: Rank) -> Program:
        devices = init_device_mesh("cpu", tuple(mesh.values()), mesh_dim_names=tuple(mesh))
        model = Llama()
        if mesh["tp"] > 1:
            split_layers(model, devices["tp"], sequence)
        data = mesh.get("dp", 1)
        if data > 1:
            for layer in model.layers:
                fully_shard(layer, mesh=devices["dp"])
            fully_shard(model, mesh=devices["dp"])
        scale = 1.0 if mistake == "loss not scaled" else float(data)
        return stepped(model, scale, data == 1)

    return Spec(reference, parallel, mesh, TOKENS, {"loss": Part(mean="dp")})


def whole(model: nn.Module, mistake: str) -> None:
    """Add up gradients that are terms of sums."""
    for parameter in model.parameters():
        gradient = parameter.grad
        if not isinstance(gradient, DTensor):
            continue
        if mistake == "gradients of norms not summed" and not isinstance(
            gradient.placements[0], Shard
        ):
            local = gradient.to_local()
            parameter.grad = DTensor.from_local(
                local, gradient.device_mesh, [Replicate()], run_check=False
            )
            continue
        parameter.grad = gradient.redistribute(
            placements=[p if isinstance(p, Shard) else Replicate() for p in gradient.placements]
        )
