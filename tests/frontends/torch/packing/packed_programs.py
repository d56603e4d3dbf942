"""Packed attention, and the reference that computes each document alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from pitcheck.torch import Input, Packing, Part, Program, Rank, Spec, over_documents

WIDTH, HEADS, LENGTH = 4, 2, 8
SIZE = WIDTH // HEADS
Batch = Mapping[str, torch.Tensor]
Inner = Callable[..., torch.Tensor]
Positions = Callable[[Batch], torch.Tensor]
"""The positions of the tokens that a program has, for rotary embeddings."""
SHORT = (Packing([3, 5]),)
"""A boundary that lies on no edge between ranks."""
LENGTHS = ([8], [4, 4], [3, 5], [5, 3], [1, 6, 1])


def rotated(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Turn pairs of elements by their position; x is (batch, heads, tokens, size)."""
    angles = positions.view(1, 1, -1, 1) * torch.tensor([1.0])
    first, second = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


class Attention(nn.Module):
    """``inner``: attends, given queries, keys and values, (batch, heads, tokens, size), and the
    batch.
    """

    def __init__(self, inner: Inner, rotary: Positions | None = None) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.inner, self.rotary = inner, rotary

    def forward(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        q, k, v = (
            layer(x).view(*x.shape[:2], HEADS, SIZE).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        if self.rotary is not None:
            positions = self.rotary(batch)
            q = rotated(q, positions)
            k = rotated(k, positions)
        out: torch.Tensor = self.out(self.inner(q, k, v, batch).transpose(1, 2).reshape(x.shape))
        return out


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Attend to all tokens before, as a document alone does."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def losses(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the losses of all tokens."""
    found: torch.Tensor = (model(batch["x"], batch) - batch["y"]).square().sum(-1)
    return found


def alone(combined: Any = "sum", rotary: Positions | None = None, inner: Inner = causal) -> Program:
    """Return the reference: each document by itself."""
    model = Attention(inner, rotary)

    def step(documents: Sequence[Batch]) -> torch.Tensor:
        loss: torch.Tensor = over_documents(documents, lambda each: losses(model, each), combined)
        loss.backward()
        return loss

    return Program(model, step)


def packed(
    inner: Inner,
    summed: Callable[[nn.Module], None] = lambda _: None,
    total: Callable[[torch.Tensor], torch.Tensor] = torch.sum,
    rotary: Positions | None = None,
) -> Program:
    """Return a program on packed sequences; ``summed`` adds gradients up over ranks."""
    model = Attention(inner, rotary)

    def step(batch: Batch) -> torch.Tensor:
        loss = total(losses(model, batch))
        loss.backward()
        summed(model)
        return loss

    return Program(model, step)


def spec(
    parallel: Callable[[Rank], Program],
    mesh: Mapping[str, int],
    packings: Sequence[Packing] = SHORT,
    reference: Callable[[], Program] = alone,
    part: Part | None = None,
    more: Mapping[str, Input] | None = None,
) -> Spec:
    """Return the pair; over an axis "cp" ranks have parts of each sequence."""
    split = {1: "cp"} if "cp" in mesh else {}
    batch = {name: Input((1, LENGTH, WIDTH), split=split, tokens=1) for name in ("x", "y")}
    batch |= more or {}
    return Spec(
        reference,
        parallel,
        mesh,
        batch,
        {} if part is None else {"loss": part},
        packings=packings,
    )
