"""DeepSpeed Ulysses: attention whose sequence is exchanged for heads by all-to-alls."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed.comm
import deepspeed.ops
import torch
import torch.distributed as dist
from deepspeed.sequence.layer import DistributedAttention
from small import Batch, named
from torch import nn

from pitcheck.torch import Input, Part, Program, Rank, Spec

# DeepSpeed tries once which of its kernels could be built, with libraries that draw numbers.
deepspeed.ops.__compatible_ops__  # noqa: B018
ROWS, TOKENS, HEADS, WIDTH = 2, 8, 4, 3
MISTAKES = ("a group of one rank", "gradients not summed", "heads of one rank in another order")
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Layer(nn.Module):
    """Self-attention of tokens."""

    def __init__(self, attend: Attention) -> None:
        super().__init__()
        self.inner = nn.Linear(HEADS * WIDTH, 3 * HEADS * WIDTH)
        self.outer = nn.Linear(HEADS * WIDTH, HEADS * WIDTH)
        self.attend = attend

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output for each token."""
        parts = self.inner(x).unflatten(-1, (3, HEADS, WIDTH)).unbind(2)
        result: torch.Tensor = self.outer(self.attend(*parts).flatten(2))
        return result


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any) -> torch.Tensor:
    """Return attention over whole sequences; tensors have (rows, tokens, heads, width)."""
    scores = torch.einsum("bqhw,bkhw->bhqk", q, k) / WIDTH**0.5
    return torch.einsum("bhqk,bkhw->bqhw", scores.softmax(-1), v)


def training(attend: Attention, average: Callable[[nn.Module], None]) -> Program:
    """Return a program that leaves gradients."""
    model = Layer(attend)

    def step(batch: Batch) -> torch.Tensor:
        model.zero_grad()
        loss = (model(batch["x"]) - batch["y"]).square().mean()
        loss.backward()
        average(model)
        return loss.detach()

    return Program(model, step)


def spec(mesh: Mapping[str, int], mistake: str = "") -> Spec:
    """Return the layer on one device, and with tokens divided over ``sp``."""
    named(MISTAKES, mistake)

    def parallel(rank: Rank) -> Program:
        deepspeed.comm.init_distributed("gloo", dist_init_required=False)
        alone = mistake == "a group of one rank"
        groups = [dist.new_group([each]) for each in range(dist.get_world_size())]
        group = groups[rank.number] if alone else dist.group.WORLD
        exchanged = DistributedAttention(attention, group, scatter_idx=2, gather_idx=1)

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            if mistake == "heads of one rank in another order" and rank.number:
                q = q.flip(2)
            result: torch.Tensor = exchanged(q, k, v, 0)
            return result

        def average(model: nn.Module) -> None:
            for parameter in model.parameters() if mistake != "gradients not summed" else ():
                dist.all_reduce(parameter.grad)
                parameter.grad /= rank.mesh["sp"]

        return training(attend, average)

    split = {1: "sp"}
    given = Input((ROWS, TOKENS, HEADS * WIDTH), split=split)
    return Spec(
        lambda: training(attention, lambda _: None),
        parallel,
        mesh,
        {"x": given, "y": given},
        {"loss": Part(mean="sp")},
    )
