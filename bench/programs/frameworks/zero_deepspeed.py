"""DeepSpeed's engine: ZeRO of all stages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import deepspeed.ops
import torch
from deepspeed.runtime.zero import stage_1_and_2
from small import OPTIMIZERS, Batch, Network, loss_of, named, over, parts_of, training
from torch import nn

from pitcheck.torch import Program, Rank, Spec

# DeepSpeed tries once which of its kernels could be built, with libraries that draw numbers.
deepspeed.ops.__compatible_ops__  # noqa: B018
MISTAKES = ("another learning rate on one rank", "sums not divided", "parameters not gathered")


def spec(
    mesh: Mapping[str, int],
    mistake: str = "",
    stage: int = 0,
    optimizer: str = "AdamW",
    micro: int = 1,
    clip: float | None = None,
    **zero: Any,
) -> Spec:
    """Return the network on one device, and DeepSpeed's engine on several."""
    named(MISTAKES, mistake)

    def reference() -> Program:
        model = Network()

        return training(
            model,
            OPTIMIZERS[optimizer](model.parameters()),
            micro=micro,
            before=partial(clipping, model, clip),
        )

    def parallel(rank: Rank) -> Program:
        model = Network()
        made = OPTIMIZERS[optimizer](model.parameters())
        if mistake == "another learning rate on one rank" and rank.number:
            made.param_groups[0]["lr"] *= 2
        engine, *_ = deepspeed.initialize(
            model=model,
            optimizer=made,
            config={
                "train_micro_batch_size_per_gpu": 1,
                "gradient_accumulation_steps": micro,
                "gradient_clipping": clip or 0.0,
                "zero_optimization": {"stage": stage, **zero},
                "zero_allow_untested_optimizer": True,
                "zero_force_ds_cpu_optimizer": False,
            },
        )
        if mistake == "sums not divided":
            engine.optimizer.sequence_parallel_size = rank.mesh["dp"]
        if mistake == "parameters not gathered":
            stage_1_and_2.all_gather_dp_groups = lambda **_: None

        def step(batch: Batch) -> torch.Tensor:
            total = torch.zeros(())
            for _, x, labels in parts_of(batch, micro):
                loss = loss_of(engine, x, labels)
                engine.backward(loss)
                engine.step()
                total += loss.detach() / micro
            return total

        return Program(engine.module, step, engine.optimizer)

    return over(reference, parallel, mesh)


def clipping(model: nn.Module, clip: float | None) -> None:
    """Clip by the norm of all gradients, as DeepSpeed divides."""
    if clip is not None:
        gradients = [parameter.grad for parameter in model.parameters()]
        norm = nn.utils.get_total_norm(gradients)
        factor = 1 / torch.clamp((norm + 1e-6) / clip, min=1.0)
        for gradient in gradients:
            gradient.mul_(factor)
