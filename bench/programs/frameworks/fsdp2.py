"""FSDP2: ``fully_shard``."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from small import OPTIMIZERS, Around, Network, named, over, training
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

from pitcheck.torch import Program, Rank, Spec

MISTAKES = (
    "sums not divided",
    "loss not divided by micro-batches",
    "replicas not synchronised",
    "a module left out",
    "clipped by the norm of a shard",
    "a shard not updated",
)


def spec(
    mesh: Mapping[str, int],
    mistake: str = "",
    optimizer: str = "",
    micro: int = 1,
    hidden: int = 8,
    clip: float | None = None,
    mixed: str = "",
    recomputed: bool = False,
    reshard: bool = True,
) -> Spec:
    """Return the network on one device, and its shards. Rows are divided over all axes."""
    named(MISTAKES, mistake)
    axes = tuple(mesh)

    def reference() -> Program:
        model = Network(hidden)
        made = OPTIMIZERS[optimizer](model.parameters()) if optimizer else None
        return training(model, made, micro=micro, before=partial(clipping, model, clip))

    def parallel(rank: Rank) -> Program:
        model = Network(hidden)
        devices = init_device_mesh("cpu", tuple(mesh.values()), mesh_dim_names=axes)
        policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16 if mixed else None,
            reduce_dtype=torch.float32 if mixed else None,
        )
        inner = devices[axes[-1]] if mistake == "replicas not synchronised" else devices
        for part in (model.up, model):
            fully_shard(part, mesh=inner, mp_policy=policy, reshard_after_forward=reshard)
        if recomputed:
            model.norm.forward = partial(checkpoint, model.norm.forward, use_reentrant=False)
        if mistake == "sums not divided":
            model.set_gradient_divide_factor(1.0)
            model.up.set_gradient_divide_factor(1.0)
        made = OPTIMIZERS[optimizer](model.parameters()) if optimizer else None
        before = partial(clipping, model, clip)
        if mistake == "clipped by the norm of a shard":
            before = partial(clipping_by_shard, model, clip)
        if mistake == "a shard not updated" and made is not None and rank.number:
            del made.param_groups[0]["params"][0]
        return training(
            model,
            made,
            micro=micro,
            divisor=1 if mistake == "loss not divided by micro-batches" else None,
            around=synchronised(model, micro - 1),
            before=before,
        )

    return over(reference, parallel, mesh, axes)


def clipping(model: nn.Module, clip: float | None) -> None:
    """Clip by the norm of all gradients."""
    if clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), clip)


def clipping_by_shard(model: nn.Module, clip: float) -> None:
    """Clip by the norm of the rank's shards."""
    norm = nn.utils.get_total_norm([parameter.grad.to_local() for parameter in model.parameters()])
    nn.utils.clip_grads_with_norm_(model.parameters(), clip, norm)


def synchronised(model: Any, last: int) -> Around:
    """Return what is around micro-batches: gradients are reduced with number ``last`` alone."""

    @contextmanager
    def around(number: int) -> Any:
        model.set_requires_gradient_sync(number == last)
        yield

    return around
