"""Mistakes planted into Megatron's programs, each as near to right as can be: functions of a rank's
model, which give what its step runs in.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any
from unittest.mock import patch

import torch

Planted = AbstractContextManager[Any]


def attribute_forgotten(model: Any) -> Planted:
    """One norm's weight does not say that it sees a part of the sequence: its gradient is not
    summed over the ranks; those of all others are.
    """
    model.decoder.layers[1].pre_mlp_layernorm.weight.sequence_parallel = False
    return nullcontext()


def input_gradient_not_summed(model: Any) -> Planted:
    """The gradient of one linear layer's input stays a term of a sum."""
    layer = model.decoder.layers[1].self_attention.linear_qkv
    layer.allreduce_dgrad, layer.disable_grad_reduce = False, True
    return nullcontext()


def other_group(model: Any) -> Planted:
    """One linear layer sums its output over the data parallel group."""
    model.decoder.layers[1].mlp.linear_fc2.tp_group = import_module(
        "megatron.core.parallel_state"
    ).get_data_parallel_group()
    return nullcontext()


def scale_forgotten(_: Any) -> Planted:
    """Gradients are summed over data parallel ranks where the mean is due."""
    kind = import_module("megatron.core.distributed.param_and_grad_buffer")._ParamAndGradBucketGroup
    right = kind.start_grad_sync

    def unscaled(group: Any, *args: Any, **kwargs: Any) -> Any:
        for bucket in group.buckets:
            bucket.gradient_scaling_factor = 1.0
        return right(group, *args, **kwargs)

    return patch.object(kind, "start_grad_sync", unscaled)


def largest_of_own(_: Any) -> Planted:
    """The loss subtracts the largest of the rank's own logits, not of all."""
    right = torch.distributed.all_reduce

    def reduce(tensor: torch.Tensor, op: Any = torch.distributed.ReduceOp.SUM, **rest: Any) -> Any:
        return None if op == torch.distributed.ReduceOp.MAX else right(tensor, op, **rest)

    return patch.object(torch.distributed, "all_reduce", reduce)


def last_id_missed(_: Any) -> Planted:
    """In the loss the ids of a rank's part of the vocabulary end one too early."""
    kind = import_module("megatron.core.tensor_parallel.cross_entropy").VocabUtility
    right = kind.vocab_range_from_per_partition_vocab_size

    def short(*args: Any) -> tuple[int, int]:
        first, stop = right(*args)
        return first, stop - 1

    return patch.object(kind, "vocab_range_from_per_partition_vocab_size", short)


def halves_in_a_row(model: Any) -> Planted:
    """Say that both halves of a gated layer on a rank are one stretch of the whole matrix."""
    model.decoder.layers[0].mlp.linear_fc1.weight.partition_stride = 1
    return nullcontext()
