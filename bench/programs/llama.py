"""Llama on PyTorch's parallelism, for ``bench/capture.py``.

It has DTensor with sequence parallelism inside, and FSDP2 outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from pitcheck.torch import Input, Part, Program, Rank, Spec


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    sequences: int
    length: int


class Attention(nn.Module):
    """Attention with grouped queries and rotary embedding."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.head = sizes.hidden // sizes.heads
        self.wq = nn.Linear(sizes.hidden, sizes.heads * self.head, bias=False)
        self.wk = nn.Linear(sizes.hidden, sizes.kv_heads * self.head, bias=False)
        self.wv = nn.Linear(sizes.hidden, sizes.kv_heads * self.head, bias=False)
        self.wo = nn.Linear(sizes.heads * self.head, sizes.hidden, bias=False)

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            layer(x).view(batch, length, -1, self.head).transpose(1, 2)
            for layer in (self.wq, self.wk, self.wv)
        )
        k, v = (repeated(part, q.shape[1] // k.shape[1]) for part in (turned(k, angles), v))
        mixed = nn.functional.scaled_dot_product_attention(turned(q, angles), k, v, is_causal=True)
        return self.wo(mixed.transpose(1, 2).reshape(batch, length, -1))


def turned(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotary embedding; ``angles``: cosines and sines by position."""
    cos, sin = angles
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


def repeated(x: torch.Tensor, times: int) -> torch.Tensor:
    """Every head as often as queries share it."""
    batch, heads, length, head = x.shape
    return (
        x[:, :, None]
        .expand(batch, heads, times, length, head)
        .reshape(batch, heads * times, length, head)
    )


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.w1 = nn.Linear(sizes.hidden, sizes.ffn, bias=False)
        self.w3 = nn.Linear(sizes.hidden, sizes.ffn, bias=False)
        self.w2 = nn.Linear(sizes.ffn, sizes.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.RMSNorm(sizes.hidden, eps=1e-5), Attention(sizes)
        self.norm, self.feed_forward = nn.RMSNorm(sizes.hidden, eps=1e-5), FeedForward(sizes)

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), angles)
        return x + self.feed_forward(self.norm(x))


class Llama(nn.Module):
    """The whole model."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.hidden, eps=1e-5)
        self.head = nn.Linear(sizes.hidden, sizes.vocabulary, bias=False)
        half = sizes.hidden // sizes.heads // 2
        angles = torch.outer(
            torch.arange(float(sizes.length)), 500000.0 ** (-torch.arange(0.0, half) / half)
        )
        self.register_buffer("angles", torch.stack([angles.cos(), angles.sin()]))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.angles)
        return self.head(self.norm(x))


def training(model: nn.Module) -> Program:
    """Forward and backward; gradients are what is compared."""

    def step(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        logits = model(batch["tokens"])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
        loss.backward()
        return loss

    return Program(model, step)


def split(model: Llama, mesh: DeviceMesh) -> None:
    """Spread the model by tensor and sequence parallelism."""
    rows = Shard(1)
    outside = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=rows),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=rows, output_layouts=Replicate()),
    }
    parallelize_module(model, mesh, outside)
    attended = PrepareModuleInput(
        input_layouts=(rows, None), desired_input_layouts=(Replicate(), None)
    )
    gathered = PrepareModuleInput(input_layouts=(rows,), desired_input_layouts=(Replicate(),))
    inside = {
        "attention_norm": SequenceParallel(),
        "attention": attended,
        **{f"attention.{name}": ColwiseParallel() for name in ("wq", "wk", "wv")},
        "attention.wo": RowwiseParallel(output_layouts=rows),
        "norm": SequenceParallel(),
        "feed_forward": gathered,
        **{f"feed_forward.{name}": ColwiseParallel() for name in ("w1", "w3")},
        "feed_forward.w2": RowwiseParallel(output_layouts=rows),
    }
    for layer in model.layers:
        parallelize_module(layer, mesh, inside)


def reference(sizes: Sizes) -> Program:
    """Return the program on a single device."""
    return training(Llama(sizes))


def parallel(sizes: Sizes, rank: Rank) -> Program:
    """Return the program of one rank."""
    mesh = init_device_mesh("cpu", tuple(rank.mesh.values()), mesh_dim_names=tuple(rank.mesh))
    model = Llama(sizes)
    split(model, mesh["tp"])
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    return training(model)


def spec_of(sizes: Sizes, dp: int, tp: int) -> Spec:
    """Return both programs as a specification."""
    ids = Input(
        (sizes.sequences, sizes.length), "int64", bounds=(0, sizes.vocabulary), split={0: "dp"}
    )
    batch = {"tokens": ids, "labels": ids}
    return Spec(
        partial(reference, sizes),
        partial(parallel, sizes),
        {"dp": dp, "tp": tp},
        batch,
        {"loss": Part(mean="dp")},
    )


two_layers = spec_of(
    Sizes(
        layers=2, hidden=64, heads=4, kv_heads=2, ffn=192, vocabulary=256, sequences=4, length=32
    ),
    dp=2,
    tp=2,
)
full_size = spec_of(
    Sizes(
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        ffn=14336,
        vocabulary=128256,
        sequences=2,
        length=4096,
    ),
    dp=2,
    tp=4,
)
