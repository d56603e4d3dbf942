"""A model at toy size as programs: plain PyTorch, and a specification under a wrapper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from pitcheck.torch import Input, Part, Program, Rank, Router, Routing, Spec
from toys.batches import Tensor, batch_of, takes_labels
from toys.classes import entry, model_class
from toys.tiny import EXPERTS, LABELS, tiny

RANKS = 2
WRAPPERS = ("ddp", "fsdp2")
MISTAKES = ("summed", "unreduced", "count")
"""Gradients are summed and not averaged; one is not reduced; a rank divides by another count."""
Batch = dict[str, torch.Tensor]


def built(name: str) -> Any:
    """Return a model of a class at toy size, ready to train."""
    cls = model_class(name)
    config = tiny(name, cls.config_class)
    if hasattr(config, "num_labels"):
        config.num_labels = LABELS
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = cls(config).train()
    model.config.use_cache = False
    return model


def loss_of(model: Any, batch: Batch) -> torch.Tensor:
    """Return the loss of the model itself, or the cross-entropy of its logits."""
    whole = model.module if isinstance(model, DistributedDataParallel) else model
    given = batch if takes_labels(whole) else {k: v for k, v in batch.items() if k != "labels"}
    out = model(**given)
    loss: torch.Tensor | None = getattr(out, "loss", None)
    if loss is not None:
        return loss.mean()
    logits = out.logits if hasattr(out, "logits") else out[0]
    labels = batch["labels"]
    return nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


def spec(name: str, wrapper: str, mistake: str = "", unused: bool = False) -> Spec:
    """Return a class at toy size on one device and on two data parallel ranks.

    ``unused``: the model has parameters without a gradient, which the wrapper is told.
    """
    model = built(name)
    batch = {key: given(each) for key, each in batch_of(entry(name).head, model).items()}
    routed = has_experts(model)

    def parallel(rank: Rank) -> Program:
        whole = built(name)
        if wrapper == "fsdp2":
            return training(sharded(whole))
        if mistake == "unreduced":
            ignored = [key for key, each in whole.named_parameters() if each.requires_grad][-1:]
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(whole, ignored)
        spread = DistributedDataParallel(whole, find_unused_parameters=unused)
        if mistake == "summed":
            spread.register_comm_hook(None, lambda _, bucket: summed(bucket))
        return training(spread, scale=1.5 if mistake == "count" and rank.number == 1 else 1.0)

    return Spec(
        lambda: training(built(name)),
        parallel,
        {"dp": RANKS},
        batch,
        {"loss": Part(mean="dp")},
        routings=[Routing.random(seed=1)] if routed else (),
        router=Router(experts=EXPERTS) if routed else Router(),
    )


def given(each: Tensor) -> Input:
    """Return a tensor of the batch as the specification has it, its rows divided over ranks."""
    split = {0: "dp"}
    if each.known:
        return Input(each.shape, "int64", values=list(each.known), split=split)
    if each.bounds:
        return Input(each.shape, "int64", each.bounds, split=split)
    return Input(each.shape, split=split)


def training(model: Any, scale: float = 1.0) -> Program:
    """Return a program that steps a model by stochastic gradient descent."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch: Batch) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        (loss * scale if scale != 1.0 else loss).backward()
        optimizer.step()
        return loss

    return Program(model, step, optimizer)


def sharded(model: Any) -> Any:
    """Shard the layers of a model and what remains of it by ``fully_shard``."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList):
            for layer in module:
                if any(True for _ in layer.parameters()):
                    fully_shard(layer)
    return fully_shard(model)


def summed(bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Sum the gradients of a bucket over ranks, and forget to divide them."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    future: Callable[..., Any] = work.get_future().then
    return future(lambda done: done.value()[0])


def has_experts(model: Any) -> bool:
    """Tell whether a model has a mixture of experts."""
    return any("experts" in name for name, _ in model.named_modules())
