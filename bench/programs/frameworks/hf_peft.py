"""LoRA by PEFT on a small Llama of transformers, trained on several ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from hf_transformers import LENGTH, ROWS, VOCABULARY, built
from peft import LoraConfig, get_peft_model
from small import Batch, named
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers.distributed import DistributedConfig

from pitcheck.torch import Input, Part, Program, Rank, Spec

MISTAKES = ("adapters not synchronised", "another scale on one rank", "sums not divided")


def adapted(model: Any, targets: tuple[str, ...], alpha: int = 8) -> Any:
    """Return a model with adapters beside some of its layers; only these are trained."""
    return get_peft_model(
        model,
        LoraConfig(
            r=2, lora_alpha=alpha, target_modules=list(targets), lora_dropout=0.0, bias="none"
        ),
    ).train()


def training(model: Any) -> Program:
    """Return a program that trains the adapters with AdamW."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.1)

    def step(batch: Batch) -> torch.Tensor:
        loss: torch.Tensor = model(input_ids=batch["tokens"], labels=batch["labels"]).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return Program(model, step, optimizer, names=lambda name: name.removeprefix("module."))


def spec(
    mesh: Mapping[str, int],
    mistake: str = "",
    kind: str = "DDP",
    targets: tuple[str, ...] = ("q_proj", "v_proj"),
) -> Spec:
    """Return the adapted model on one device, and on several."""
    named(MISTAKES, mistake)

    def parallel(rank: Rank) -> Program:
        alpha = 16 if mistake == "another scale on one rank" and rank.number else 8
        if kind == "TP":
            model = built("Llama")
            config, _, devices = model.prepare_distribute_model(
                DistributedConfig(tp_size=mesh["tp"], fsdp_size=mesh.get("dp", 1))
            )
            model = model.maybe_distribute_model(model, config, devices)
            return training(adapted(model, targets, alpha))
        model = adapted(built("Llama"), targets, alpha)
        if kind == "FSDP2":
            devices = init_device_mesh("cpu", (mesh["dp"],))
            for module in model.modules():
                if type(module).__name__ == "LlamaDecoderLayer":
                    fully_shard(module, mesh=devices)
            fully_shard(model, mesh=devices)
            if mistake == "sums not divided":
                for module in model.modules():
                    if hasattr(module, "set_gradient_divide_factor"):
                        module.set_gradient_divide_factor(1.0)
        elif mistake != "adapters not synchronised":
            model = DistributedDataParallel(model, broadcast_buffers=False)
        return training(model)

    axes = tuple(axis for axis in mesh if axis != "tp")
    tokens = Input((ROWS * 2, LENGTH), "int64", (0, VOCABULARY), split={0: axes} if axes else {})
    return Spec(
        lambda: training(adapted(built("Llama"), targets)),
        parallel,
        mesh,
        {"tokens": tokens, "labels": tokens},
        {"loss": Part(mean=axes)} if axes else {},
    )
