"""Training loops of accelerate: ``Accelerator.prepare``, ``accumulate``, ``backward``."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from accelerate import Accelerator
from accelerate.utils import FullyShardedDataParallelPlugin
from small import (
    OPTIMIZERS,
    Batch,
    Network,
    loss_of,
    named,
    over,
    parts_of,
    training,
)
from torch import nn

from pitcheck.torch import Part, Program, Rank, Spec

MISTAKES = (
    "model not prepared",
    "loss divided twice",
    "plain backward",
    "clipped on every micro-batch's own gradients",
    "another learning rate on one rank",
    "loss of one rank",
)


def spec(
    mesh: Mapping[str, int],
    mistake: str = "",
    kind: str = "DDP",
    optimizer: str = "AdamW",
    micro: int = 1,
    clip: float | None = None,
    gathered: str = "",
    original: bool = False,
) -> Spec:
    """Return the network on one device, and the same loop with an Accelerator."""
    named(MISTAKES, mistake)

    def reference() -> Program:
        model = Network()
        made = OPTIMIZERS[optimizer](model.parameters())

        def clipping() -> None:
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)

        return training(model, made, micro=micro, before=clipping)

    def parallel(rank: Rank) -> Program:
        accelerator = Accelerator(
            cpu=True, gradient_accumulation_steps=micro, fsdp_plugin=plugin(kind, original)
        )
        network = Network()
        if kind == "FSDP2":
            # FSDP2 makes new parameters; accelerate gives them to the optimizer.
            model, made = accelerator.prepare(network, OPTIMIZERS[optimizer](network.parameters()))
        elif kind == "FSDP1":
            model = accelerator.prepare(network)
            made = accelerator.prepare(OPTIMIZERS[optimizer](model.parameters()))
        else:
            prepared = accelerator.prepare(network)
            model = network if mistake == "model not prepared" else prepared
            made = accelerator.prepare(OPTIMIZERS[optimizer](model.parameters()))
        if mistake == "another learning rate on one rank" and rank.number:
            made.param_groups[0]["lr"] *= 2

        def step(batch: Batch) -> torch.Tensor:
            total = torch.zeros(())
            for _, x, labels in parts_of(batch, micro):
                with accelerator.accumulate(model):
                    loss = loss_of(model, x, labels)
                    if mistake == "loss divided twice":
                        loss = loss / micro
                    if mistake == "plain backward":
                        loss.backward()
                    else:
                        accelerator.backward(loss)
                    if clip is not None and (
                        accelerator.sync_gradients or mistake.startswith("clipped")
                    ):
                        accelerator.clip_grad_norm_(model.parameters(), clip)
                    made.step()
                    made.zero_grad()
                total += loss.detach() / micro
            if not gathered:
                return total
            if mistake == "loss of one rank":
                return total
            return getattr(accelerator, gathered)(total).mean()

        return Program(model, step, made, names=lambda name: name.removeprefix("module."))

    return over(reference, parallel, mesh, "dp", Part() if gathered else Part(mean="dp"))


def plugin(kind: str, original: bool) -> FullyShardedDataParallelPlugin | None:
    """Return the configuration of FSDP, None for DistributedDataParallel."""
    if kind == "DDP":
        return None
    return FullyShardedDataParallelPlugin(
        fsdp_version=int(kind[-1]),
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["Linear"],
        use_orig_params=original,
    )
