"""Megatron's optimizers: what is in them, and whose elements of gradients ranks have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from megatron.core.distributed.data_parallel_base import _BaseDataParallel
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
from megatron.core.optimizer.optimizer import ChainedOptimizer, MegatronOptimizer
from torch import nn

from pitcheck.frontends.torch.recording.program_tensors import called


def inner(optimizer: Any) -> list[torch.optim.Optimizer]:
    """Return PyTorch's optimizers in one or several of Megatron's; others are as they are."""
    if optimizer is None:
        return []
    if isinstance(optimizer, ChainedOptimizer):
        return inner(optimizer.chained_optimizers)
    if isinstance(optimizer, Sequence):
        return [one for given in optimizer for one in inner(given)]
    return inner(optimizer.optimizer) if isinstance(optimizer, MegatronOptimizer) else [optimizer]


def scattered(wrapped: Any, models: Sequence[Any]) -> dict[str, tuple[int, int]]:
    """Return the elements that this rank has of gradients that data parallel ranks scatter.

    The distributed optimizer asks Megatron's DistributedDataParallel for it. ``models`` are those
    in the wrappers. Keys are names of parameters, as of :class:`~pitcheck.torch.Program`.
    """
    owned: dict[int, tuple[int, int]] = {}
    for chunk in wrapped if isinstance(wrapped, Sequence) else [wrapped]:
        for buffer in _buffers(chunk):
            owned |= _owned(buffer)
    named = [
        (place, name, parameter)
        for place, model in enumerate(models)
        if isinstance(model, nn.Module)
        for name, parameter in model.named_parameters()
    ]
    return {name: owned[id(one)] for name, one in called(named) if id(one) in owned}


def _buffers(chunk: Any) -> Iterator[Any]:
    """Yield the buffers whose gradients are scattered."""
    if (
        isinstance(chunk, _BaseDataParallel)
        and chunk.ddp_config.use_distributed_optimizer
        and not chunk.ddp_config.use_megatron_fsdp
    ):
        yield from (*chunk.buffers, *chunk.expert_parallel_buffers)


def _owned(buffer: Any) -> dict[int, tuple[int, int]]:
    """Return the elements of each parameter of a buffer, by Megatron's own table."""
    owned = {id(parameter): (0, 0) for parameter in buffer.param_index_map}
    for ranges in DistributedOptimizer._build_gbuf_range_map(buffer).values():
        for bucket in ranges:
            for parameter, places in bucket["param_map"].items():
                owned[id(parameter)] = (places["param"].start, places["param"].end)
    return owned
