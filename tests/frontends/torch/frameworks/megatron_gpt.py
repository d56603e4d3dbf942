"""Megatron-core's own GPTModel as a pair of programs: on one rank, and trained by Megatron's own
schedules on the ranks of its parallel groups.

Everything but `on_cpu`, the `Program` and the `Spec` is what a user of Megatron writes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from frontends.torch.frameworks.megatron_context import GatheredAttention
from torch import nn

from pitcheck.torch import Input, Part, Program, Rank, Router, Routing, Spec
from pitcheck.torch.megatron import on_cpu

INSTALLED = importlib.util.find_spec("megatron") is not None
VOCABULARY, WIDTH, HEADS, LENGTH, ROWS, LAYERS = 16, 32, 4, 4, 2, 2

Batch = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Setup:
    """Sizes of the groups, and what the model is like.

    ``chunks``: of layers on a pipeline rank; ``micro``: micro-batches of a rank; ``gated``: as
    Llama, with SwiGLU and RMSNorm and without biases; ``groups``: of queries; ``per_token``: the
    loss is averaged over the tokens of all ranks; ``latent``: multi-latent attention; ``experts``:
    of each layer, ``spread`` over so many ranks, each of them over ``expert_tensor``;
    ``context``: ranks that have parts of the sequence in zigzag order; ``zigzag``: an attention
    that gathers keys from them, and on one rank has all; ``batches``: micro-batches
    of the reference; ``adam``: fields of the configuration of Megatron's optimizer, which runs
    then; ``data_parallel`` and ``config``: further fields of Megatron's configurations.
    """

    tensor: int = 2
    width: int = WIDTH
    sequence: bool = False
    data: int = 1
    pipeline: int = 1
    chunks: int = 1
    micro: int = 1
    tied: bool = False
    gated: bool = False
    groups: int = HEADS
    layers: int = LAYERS
    per_token: bool = False
    latent: bool = False
    experts: int = 0
    spread: int = 1
    expert_tensor: int | None = None
    context: int = 1
    zigzag: bool = False
    batches: int = 1
    adam: Mapping[str, Any] | None = None
    data_parallel: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        said = [
            f"{name}={value}"
            for name, value in vars(self).items()
            if value != getattr(type(self)(), name)
        ]
        return " ".join(said) or "tensor=2"


Bug = Callable[[Any], AbstractContextManager[Any]]
"""A function from the model of a parallel rank to the context in which its step runs."""


def spec(setup: Setup, bug: Bug = lambda _: nullcontext()) -> Spec:
    """The pair of programs; ``bug`` is planted into the parallel one."""

    @on_cpu
    def reference() -> Program:
        alone = replace(
            setup,
            tensor=1,
            sequence=False,
            data=1,
            pipeline=1,
            chunks=1,
            micro=setup.batches,
            spread=1,
            expert_tensor=None,
            context=1,
        )
        groups(alone)
        (model,) = models(alone)

        fields = setup.adam
        optimizer = None if fields is None else adamw(model, fields)

        def step(batch: Batch) -> Any:
            if optimizer is not None:
                optimizer.zero_grad()
            loss = torch.zeros(())
            for part in micro_batches(batch, alone):
                losses, mask = losses_of(model, prepared(part))
                mean = (losses * mask).sum() / mask.sum() / alone.micro
                mean.backward()
                loss = loss + mean.detach()
            if optimizer is not None:
                if fields is not None and fields["clip_grad"] > 0:
                    nn.utils.clip_grad_norm_(model.parameters(), fields["clip_grad"])
                optimizer.step()
            logged()
            return loss

        return Program(model, step, optimizer)

    @on_cpu
    def parallel(rank: Rank) -> Program:
        groups(setup)
        chunks = wrapped(models(setup), setup)
        optimizer = None if setup.adam is None else megatron_adam(chunks, setup.adam)

        def step(batch: Batch) -> Any:
            with bug(chunks[0].module):
                loss = trained(chunks, setup, batch)
                if optimizer is not None:
                    optimizer.step()
                logged()
                return loss

        return Program(chunks, step, optimizer)

    rows = ROWS * setup.data * setup.micro
    tokens = Input((rows, LENGTH), "int64", (0, VOCABULARY), split={0: "dp"})
    batch = {"tokens": tokens, "labels": tokens}
    if setup.per_token:
        batch["mask"] = Input(
            (rows, LENGTH),
            "int64",
            (0, 2),
            split={0: "dp"},
            values=[place % 3 != 0 for place in range(rows * LENGTH)],
        )
    return Spec(
        reference,
        parallel,
        {"pp": setup.pipeline, "dp": setup.data, "cp": setup.context, "tp": setup.tensor},
        batch,
        {} if setup.per_token else {"loss": Part(sum="cp", mean="dp")},
        routings=[Routing.random(1)] if setup.experts else [],
        router=Router(
            setup.experts or None,
            (LENGTH, rows),
            {1: "dp", **({0: "tp"} if setup.sequence else {})},
            microbatched=1,
        ),
    )


# --- Megatron


def groups(setup: Setup) -> None:
    state = import_module("megatron.core.parallel_state")
    generators = import_module("megatron.core.tensor_parallel.random")
    state.initialize_model_parallel(
        tensor_model_parallel_size=setup.tensor,
        pipeline_model_parallel_size=setup.pipeline,
        virtual_pipeline_model_parallel_size=setup.chunks if setup.chunks > 1 else None,
        context_parallel_size=setup.context,
        expert_model_parallel_size=setup.spread,
        expert_tensor_parallel_size=setup.expert_tensor,
    )
    generators.model_parallel_cuda_manual_seed(1)


def models(setup: Setup) -> list[Any]:
    from megatron.core import parallel_state as state  # noqa: PLC0415
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: PLC0415
    from megatron.core.models.gpt.gpt_model import GPTModel  # noqa: PLC0415

    config = configuration(setup)
    layer = get_gpt_layer_local_spec(
        num_experts=config.num_moe_experts,
        multi_latent_attention=setup.latent,
        normalization=config.normalization,
    )
    if setup.zigzag:
        layer.submodules.self_attention.submodules.core_attention = GatheredAttention
    found = []
    for chunk in range(setup.chunks):
        stage = chunk if setup.chunks > 1 else None
        model = GPTModel(
            config,
            layer,
            VOCABULARY,
            LENGTH,
            pre_process=state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=stage),
            post_process=state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=stage),
            position_embedding_type="rope",
            share_embeddings_and_output_weights=setup.tied,
            vp_stage=stage,
        )
        if config.params_dtype != torch.float32 and not setup.latent:
            channels = setup.width // HEADS
            model.rotary_pos_emb.inv_freq = 1.0 / (
                10000 ** (torch.arange(0, channels, 2, dtype=config.params_dtype) / channels)
            )
        found.append(model)
    return found


def configuration(setup: Setup) -> Any:
    from megatron.core.distributed.finalize_model_grads import finalize_model_grads  # noqa: PLC0415
    from megatron.core.transformer.transformer_config import (  # noqa: PLC0415
        MLATransformerConfig,
        TransformerConfig,
    )

    like_llama = {
        "gated_linear_unit": True,
        "activation_func": nn.functional.silu,
        "normalization": "RMSNorm",
        "add_bias_linear": False,
    }
    latent = {
        "q_lora_rank": 8,
        "kv_lora_rank": 12,
        "qk_head_dim": 4,
        "qk_pos_emb_head_dim": 4,
        "v_head_dim": 4,
        "rope_type": "rope",
    }
    routed = {
        "num_moe_experts": setup.experts,
        "moe_router_topk": 2,
        "moe_ffn_hidden_size": 16,
        "moe_router_load_balancing_type": "none",
        "moe_token_dispatcher_type": "alltoall",
        "expert_model_parallel_size": setup.spread,
        "expert_tensor_parallel_size": setup.expert_tensor,
        "add_bias_linear": False,
    }
    config = (MLATransformerConfig if setup.latent else TransformerConfig)(
        num_layers=setup.layers,
        hidden_size=setup.width,
        num_attention_heads=HEADS,
        num_query_groups=setup.groups,
        tensor_model_parallel_size=setup.tensor,
        pipeline_model_parallel_size=setup.pipeline,
        virtual_pipeline_model_parallel_size=setup.chunks if setup.chunks > 1 else None,
        pipeline_dtype=torch.get_default_dtype(),
        context_parallel_size=setup.context,
        sequence_parallel=setup.sequence,
        params_dtype=torch.get_default_dtype(),
        calculate_per_token_loss=setup.per_token,
        use_cpu_initialization=True,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        gradient_accumulation_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        **{
            **(like_llama if setup.gated else {}),
            **(latent if setup.latent else {}),
            **(routed if setup.experts else {}),
            **setup.config,
        },
    )
    config.finalize_model_grads_func = finalize_model_grads
    return config


def wrapped(chunks: list[Any], setup: Setup) -> list[Any]:
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig  # noqa: PLC0415

    config = DistributedDataParallelConfig(**setup.data_parallel)
    return [
        DistributedDataParallel(chunk.config, config, chunk, disable_bucketing=place > 0)
        for place, chunk in enumerate(chunks)
    ]


def prepared(batch: Batch) -> Batch:
    """The batch of a rank with positions and masks, which has its part of the sequence."""
    from megatron.core.utils import get_batch_on_this_cp_rank  # noqa: PLC0415

    tokens = batch["tokens"]
    whole = {
        **batch,
        "position_ids": torch.arange(LENGTH, device="cuda").expand_as(tokens),
        "attention_mask": torch.tril(torch.ones(1, 1, LENGTH, LENGTH, device="cuda")) < 0.5,
    }
    whole.setdefault("mask", torch.ones(tokens.shape, dtype=torch.int64))
    cut: Batch = get_batch_on_this_cp_rank(whole)
    return cut


def adamw(model: Any, fields: Mapping[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(
        model.parameters(), lr=fields["lr"], weight_decay=fields["weight_decay"]
    )


def megatron_adam(chunks: list[Any], fields: Mapping[str, Any]) -> Any:
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: PLC0415

    return get_megatron_optimizer(OptimizerConfig(optimizer="adam", **fields), chunks)


def losses_of(model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """The losses of tokens, or what a pipeline stage sends on; and the mask of tokens."""
    losses = model(
        batch["tokens"], batch["position_ids"], batch["attention_mask"], labels=batch["labels"]
    )
    return losses, batch["mask"]


def logged() -> None:
    """Forget the losses of routers, which Megatron adds up for its log."""
    import_module("megatron.core.transformer.moe.moe_utils").clear_aux_losses_tracker()


def trained(chunks: list[Any], setup: Setup, batch: Batch) -> Any:
    """Run one step as Megatron's training loop does; return the loss on the last pipeline stage."""
    from megatron.core.pipeline_parallel.schedules import get_forward_backward_func  # noqa: PLC0415

    for chunk in chunks:
        chunk.zero_grad_buffer()
    losses = get_forward_backward_func()(
        forward_step_func=partial(forward_step, setup),
        data_iterator=[micro_batches(batch, setup) for _ in chunks],
        model=chunks,
        num_microbatches=setup.micro,
        seq_length=LENGTH,
        micro_batch_size=ROWS,
        forward_only=False,
    )
    if not losses:
        return None
    if not setup.per_token:
        return sum(losses)
    count, total = (sum(each) for each in zip(*losses, strict=True))
    reported = torch.stack([count.to(total.dtype), total])
    dist.all_reduce(
        reported,
        group=import_module("megatron.core.parallel_state").get_data_parallel_group(
            with_context_parallel=True
        ),
    )
    return reported[1] / reported[0]


def micro_batches(batch: Batch, setup: Setup) -> Iterator[Batch]:
    parts = {name: tensor.chunk(setup.micro) for name, tensor in batch.items()}
    return iter(
        [{name: part[place] for name, part in parts.items()} for place in range(setup.micro)]
    )


def forward_step(
    setup: Setup, data: Iterator[Batch], model: Any
) -> tuple[torch.Tensor, Callable[..., Any]]:
    losses, mask = losses_of(model, prepared(next(data)))

    def loss_of(losses: torch.Tensor) -> tuple[Any, ...]:
        total = (losses * mask).sum()
        count = mask.sum().to(torch.int)
        if setup.per_token:
            return total, count, (count.clone(), total.detach().clone())
        if setup.context > 1:
            dist.all_reduce(
                count,
                group=import_module("megatron.core.parallel_state").get_context_parallel_group(),
            )
        mean = total / count
        return mean, mean.detach().clone() / setup.micro

    return losses, loss_of


def forgotten() -> None:
    """Undo what building a model on one rank leaves in this process."""
    if dist.is_initialized():
        import_module("megatron.core.parallel_state").destroy_model_parallel()
        dist.destroy_process_group()
