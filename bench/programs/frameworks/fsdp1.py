"""FullyShardedDataParallel, the first: flat parameters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from small import OPTIMIZERS, Network, except_last, named, over, training
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from pitcheck.torch import Program, Rank, Spec

MISTAKES = (
    "never synchronised",
    "loss not divided by micro-batches",
    "replicas not synchronised",
    "clipped by the norm of a shard",
    "sums not divided",
    "another learning rate on one rank",
)


def spec(
    mesh: Mapping[str, int],
    mistake: str = "",
    optimizer: str = "",
    micro: int = 1,
    original: bool = False,
    hidden: int = 8,
    clip: float | None = None,
    strategy: str = "FULL_SHARD",
    wrapped: bool = True,
) -> Spec:
    """Return the network on one device, and its shards. Rows are divided over all axes."""
    named(MISTAKES, mistake)
    axes = tuple(mesh)

    def reference() -> Program:
        model = Network(hidden)
        made = OPTIMIZERS[optimizer](model.parameters()) if optimizer else None

        def clipping() -> None:
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)

        return training(model, made, micro=micro, before=clipping)

    def parallel(rank: Rank) -> Program:
        devices = init_device_mesh("cpu", tuple(mesh.values()), mesh_dim_names=axes)
        chosen = ShardingStrategy[strategy]
        if mistake == "replicas not synchronised":
            devices, chosen = devices[axes[-1]], ShardingStrategy.FULL_SHARD
        model = FullyShardedDataParallel(
            Network(hidden),
            device_mesh=devices,
            device_id=torch.device("cpu"),
            sharding_strategy=chosen,
            use_orig_params=original,
            auto_wrap_policy=ModuleWrapPolicy({nn.Linear}) if wrapped else None,
        )
        if mistake == "sums not divided":
            for module in FullyShardedDataParallel.fsdp_modules(model):
                module._gradient_predivide_factor = module._gradient_postdivide_factor = 1
        made = OPTIMIZERS[optimizer](model.parameters()) if optimizer else None
        if mistake == "another learning rate on one rank" and rank.number:
            made.param_groups[0]["lr"] *= 2
        around = except_last(micro, model.no_sync)
        if mistake == "never synchronised":
            around = quiet(model)
        return training(
            model,
            made,
            micro=micro,
            divisor=1 if mistake == "loss not divided by micro-batches" else None,
            around=around,
            before=partial(clipped, model, clip, mistake == "clipped by the norm of a shard"),
        )

    return over(reference, parallel, mesh, axes)


def clipped(model: Any, clip: float | None, by_shard: bool) -> None:
    """Clip by FSDP's own function, or by the norm of the rank's shard."""
    if clip is None:
        return
    if by_shard:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    else:
        model.clip_grad_norm_(clip)


def quiet(model: Any) -> Any:
    """Return what is around a micro-batch that is not synchronised."""
    return lambda _: model.no_sync()
