"""An attention for Megatron's context parallelism on a CPU, which needs no Transformer Engine."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import torch
from torch import nn


class GatheredAttention(nn.Module):
    """Attention of the rank's queries to the keys and values of all ranks.

    Ranks have parts of the sequence in zigzag order. Tensors are (sequence, batch, heads,
    channels).
    """

    def __init__(self, config: Any, *_: Any, **__: Any) -> None:
        super().__init__()
        # As DotProductAttention has it: its rounding is part of the number.
        self.scale = 1.0 / math.sqrt(config.kv_channels)
        self.group = import_module("megatron.core.parallel_state").get_context_parallel_group()

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor,
        **_: Any,
    ) -> torch.Tensor:
        heads = query.shape[2] // key.shape[2]
        keys, values = (
            in_order(gathered(each, self.group), self.group.size()).repeat_interleave(heads, dim=2)
            for each in (key, value)
        )
        scores = torch.einsum("qbhc,kbhc->bhqk", query, keys) * self.scale
        hidden = scores.masked_fill(attention_mask, -10000.0)
        mixed = torch.einsum("bhqk,kbhc->qbhc", hidden.softmax(dim=-1), values)
        return mixed.flatten(2)


def gathered(tensor: torch.Tensor, group: Any) -> torch.Tensor:
    """The parts of all ranks; their gradients are added up and scattered."""
    mappings = import_module("megatron.core.tensor_parallel.mappings")
    whole: torch.Tensor = mappings.gather_from_sequence_parallel_region(tensor, group=group)
    return whole


def in_order(tensor: torch.Tensor, ranks: int) -> torch.Tensor:
    """The whole sequence in its order, of the parts of all ranks, each of which has two."""
    chunks = tensor.chunk(2 * ranks)
    return torch.cat([*chunks[::2], *reversed(chunks[1::2])])
