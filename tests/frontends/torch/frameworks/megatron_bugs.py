"""Mistakes planted into Megatron's programs, each as near to right as can be: functions of a rank's
model, which give what its step runs in.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from importlib import import_module
from typing import Any
from unittest.mock import patch

import torch

Planted = AbstractContextManager[Any]


def nothing(_: Any) -> Planted:
    """Plant no mistake: Megatron as it is."""
    return nullcontext()


def attribute_forgotten(model: Any) -> Planted:
    """One norm's weight does not say that it sees a part of the sequence: its gradient is not
    summed over the ranks; those of all others are.
    """
    model.decoder.layers[-1].pre_mlp_layernorm.weight.sequence_parallel = False
    return nullcontext()


def input_gradient_not_summed(model: Any) -> Planted:
    """The gradient of one linear layer's input stays a term of a sum."""
    layer = model.decoder.layers[-1].self_attention.linear_qkv
    layer.allreduce_dgrad, layer.disable_grad_reduce = False, True
    return nullcontext()


def other_group(model: Any) -> Planted:
    """One linear layer sums its output over the data parallel group."""
    model.decoder.layers[-1].mlp.linear_fc2.tp_group = import_module(
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


# --- of micro-batches


def micro_batches_not_averaged(_: Any) -> Planted:
    """The loss of a micro-batch counts as that of all."""
    schedules = import_module("megatron.core.pipeline_parallel.schedules")
    right = schedules.forward_step_calc_loss

    def whole(*args: Any, **kwargs: Any) -> Any:
        given = list(args)
        given[6] = 1
        return right(*given, **kwargs)

    return patch.object(schedules, "forward_step_calc_loss", whole)


def last_micro_batch_alone(model: Any) -> Planted:
    """The buffer of gradients is zeroed before every micro-batch."""
    schedules = import_module("megatron.core.pipeline_parallel.schedules")
    right = schedules.backward_step

    def zeroed(*args: Any, **kwargs: Any) -> Any:
        for parameter in model.parameters():
            parameter.main_grad.zero_()
        return right(*args, **kwargs)

    return patch.object(schedules, "backward_step", zeroed)


def gradients_not_summed(_: Any) -> Planted:
    """Nobody reduces the buffers of gradients."""
    kind = import_module("megatron.core.distributed.param_and_grad_buffer")._ParamAndGradBucketGroup
    return patch.object(kind, "start_grad_sync", lambda *_, **__: None)


def tokens_of_rank(_: Any) -> Planted:
    """Gradients are divided by the number of tokens of the rank, not of all."""
    finalize = import_module("megatron.core.distributed.finalize_model_grads")
    right = torch.distributed.all_reduce

    def reduce(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        counts = tensor.dtype == torch.int32
        return None if counts else right(tensor, *args, **kwargs)

    return patch.object(finalize.torch.distributed, "all_reduce", reduce)


# --- of pipelines


def tied_gradients_not_summed(_: Any) -> Planted:
    """Each of both stages that have the embedding keeps its own gradient of it."""
    finalize = import_module("megatron.core.distributed.finalize_model_grads")
    return patch.object(finalize, "_allreduce_word_embedding_grads", lambda *_, **__: None)


def gradient_sent_twice(_: Any) -> Planted:
    """A stage sends twice the gradient of what it received."""
    kind = import_module("megatron.core.pipeline_parallel.p2p_communication").P2PCommunicator
    right = kind.send_backward

    def send(communicator: Any, gradients: Any, *args: Any, **kwargs: Any) -> Any:
        doubled = [None if each is None else 2 * each for each in gradients]
        return right(communicator, doubled, *args, **kwargs)

    return patch.object(kind, "send_backward", send)


def stale_activation(_: Any) -> Planted:
    """A stage computes with what it received for the micro-batch before."""
    kind = import_module("megatron.core.pipeline_parallel.p2p_communication").P2PCommunicator
    right = kind.send_backward_recv_forward
    first = kind.recv_forward
    kept: list[Any] = []

    def received(communicator: Any, *args: Any, **kwargs: Any) -> Any:
        kept[:] = [first(communicator, *args, **kwargs)]
        return kept[0]

    def stale(communicator: Any, *args: Any, **kwargs: Any) -> Any:
        right(communicator, *args, **kwargs)
        return [None if each is None else each.detach().requires_grad_() for each in kept[0]]

    stack = ExitStack()
    stack.enter_context(patch.object(kind, "recv_forward", received))
    stack.enter_context(patch.object(kind, "send_backward_recv_forward", stale))
    return stack


# --- of multi-latent attention


class _Summed(torch.autograd.Function):
    """Megatron's own reduction leaves a gradient as it is that is not contiguous."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        context.group = group
        return x

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        gradient = gradients[0].contiguous()
        torch.distributed.all_reduce(gradient, group=context.group)
        return gradient, None


def key_gradient_summed(model: Any) -> Planted:
    """Mend Megatron 0.16.1: sum the gradient of the rotated part of keys, which every rank uses for
    its own heads.
    """
    latent = import_module("megatron.core.transformer.multi_latent_attention")
    group = import_module("megatron.core.parallel_state").get_tensor_model_parallel_group()
    right = latent.gather_from_tensor_model_parallel_region
    config = model.config
    widths = [config.kv_lora_rank, config.qk_pos_emb_head_dim]

    def gather(x: torch.Tensor) -> torch.Tensor:
        whole = right(x)
        if whole.shape[-1] != sum(widths):
            return whole
        keys, rotated = torch.split(whole, widths, dim=-1)
        return torch.cat([keys, _Summed.apply(rotated, group)], dim=-1)

    return patch.object(latent, "gather_from_tensor_model_parallel_region", gather)


# --- of experts


def experts_swapped(model: Any) -> Planted:
    """A rank's experts compute with each other's tokens."""
    experts = model.decoder.layers[0].mlp.experts
    swapped = torch.nn.ModuleList(reversed(list(experts.local_experts)))
    return patch.dict(experts._modules, {"local_experts": swapped})


# --- of context parallelism


def zigzag_forgotten(model: Any) -> Planted:
    """Keys are taken in the order of the ranks: the mask hides others than those that follow."""
    context = import_module("frontends.torch.frameworks.megatron_context")
    return patch.object(context, "in_order", lambda tensor, _: tensor)


def mask_of_first_part(_: Any) -> Planted:
    """Both parts of a rank's sequence have the mask of the first."""
    attention = import_module("frontends.torch.frameworks.megatron_context").GatheredAttention
    right = attention.forward

    def forward(own: Any, *args: Any, attention_mask: torch.Tensor, **rest: Any) -> Any:
        half = attention_mask.shape[2] // 2
        first = attention_mask[:, :, :half]
        return right(own, *args, attention_mask=torch.cat([first, first], dim=2), **rest)

    return patch.object(attention, "forward", forward)
