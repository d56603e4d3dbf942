"""DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from small import OPTIMIZERS, Network, except_last, named, over, training
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from pitcheck.torch import Part, Program, Rank, Spec

MISTAKES = (
    "never synchronised",
    "the last micro-batch not synchronised",
    "a parameter left out",
    "loss not divided by micro-batches",
    "replicas of one axis only",
    "clipped before gradients are whole",
    "another learning rate on one rank",
    "parameters of one rank not sent",
    "a hook that reduces nothing",
)
HOOKS = {
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
    "": None,
}


def spec(
    mesh: Mapping[str, int],
    mistake: str = "",
    optimizer: str = "",
    micro: int = 1,
    bucket: float = 25,
    views: bool = False,
    hook: str = "",
    clip: float | None = None,
    sharded: bool = False,
    **options: Any,
) -> Spec:
    """Return the network on one device, and its replicas."""
    named(MISTAKES, mistake)
    axes = tuple(mesh)

    def clipping(model: nn.Module) -> None:
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)

    def reference() -> Program:
        model = Network()
        made = OPTIMIZERS[optimizer](model.parameters()) if optimizer else None
        return training(model, made, micro=micro, before=partial(clipping, model))

    def parallel(rank: Rank) -> Program:
        network = Network()
        if mistake == "a parameter left out":
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
                network, ["up.bias"]
            )
        group = None
        if mistake == "replicas of one axis only":
            devices = init_device_mesh("cpu", tuple(mesh.values()), mesh_dim_names=axes)
            group = devices.get_group(axes[-1])
        model = DistributedDataParallel(
            network,
            process_group=group,
            bucket_cap_mb=bucket,
            gradient_as_bucket_view=views,
            **options,
        )
        if mistake == "a hook that reduces nothing":
            model.register_comm_hook(None, debugging_hooks.noop_hook)
        elif HOOKS[hook] is not None:
            model.register_comm_hook(None, HOOKS[hook])
        made = None
        if optimizer:
            made = (
                ZeroRedundancyOptimizer(
                    model.parameters(), optimizer_class=torch.optim.AdamW, lr=0.1, weight_decay=0.5
                )
                if sharded
                else OPTIMIZERS[optimizer](model.parameters())
            )
        around = except_last(micro, model.no_sync)
        if mistake == "never synchronised":
            around = lambda _: model.no_sync()  # noqa: E731
        elif mistake == "the last micro-batch not synchronised":
            around = lambda number: (  # noqa: E731
                model.no_sync() if number == micro - 1 else nullcontext()
            )
        divisor = 1 if mistake == "loss not divided by micro-batches" else None
        before = partial(clipping, model)
        if mistake == "clipped before gradients are whole":
            around = lambda _: model.no_sync()  # noqa: E731

            def before() -> None:
                clipping(model)
                for parameter in model.parameters():
                    torch.distributed.all_reduce(parameter.grad, op=torch.distributed.ReduceOp.AVG)

        if mistake == "another learning rate on one rank" and made is not None and rank.number:
            made.param_groups[0]["lr"] *= 2
        if mistake == "parameters of one rank not sent" and isinstance(
            made, ZeroRedundancyOptimizer
        ):
            made._sync_params = lambda: None
        return training(
            model,
            made,
            micro=micro,
            divisor=divisor,
            around=around,
            before=before,
            names=lambda name: name.removeprefix("module."),
        )

    return over(reference, parallel, mesh, axes, Part(mean=axes))
