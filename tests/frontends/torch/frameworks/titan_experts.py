"""torchtitan's Qwen3-MoE and DeepSeek-V3, spread by their own functions, as recorded programs. To
be imported only where torchtitan is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from types import SimpleNamespace
from typing import Any

import torch
from frontends.torch.frameworks.titan import (
    BATCH,
    HEADS,
    HIDDEN,
    KEYS,
    LENGTH,
    TERM,
    TOKENS,
    VOCABULARY,
    WIDTH,
    CompileConfig,
    Embedding,
    Linear,
    Loss,
    ParallelDims,
    ParallelismConfig,
    RMSNorm,
    ScaledDotProductAttention,
    TrainingConfig,
    parallel_dims,
    set_spmd_backend,
    summed,
)
from torch.distributed.tensor import DTensor
from torch.nn.init import normal_, ones_
from torchtitan.components.optimizer import (
    OptimizersContainer,
    ParamGroupConfig,
    register_moe_load_balancing_hook,
)
from torchtitan.models import deepseek_v3, qwen3
from torchtitan.models.common import ComplexRoPE, CosSinRoPE
from torchtitan.models.deepseek_v3.sharding import set_deepseek_v3_sharding_config
from torchtitan.models.qwen3.sharding import set_qwen3_sharding_config

from pitcheck.torch import Program, Rank, Router, Routing, Spec

EXPERTS, CHOICES, MOE_HIDDEN, THETA = 4, 2, 8, 10000.0
Change = Callable[[Any], None]
ALONE = SimpleNamespace(get_optional_mesh=lambda _: None, ep_enabled=False, tp=1)
"""The dimensions of one device, with which the counts of experts are not added up."""


@dataclass(frozen=True)
class Setup:
    """Degrees of data (FSDP2), tensor and expert parallelism; ``sequence``: parallel, too;
    ``balanced``: biases of experts follow the tokens that experts get, before AdamW's step.
    """

    model: str = "Qwen3"
    data: int = 2
    tensor: int = 1
    expert: int = 2
    sequence: bool = False
    balanced: bool = False


def qwen() -> Any:
    """One layer of experts, with norms of queries and keys."""
    return qwen3.Qwen3Model.Config(
        **around(),
        enable_weight_tying=False,
        layers=qwen3._build_qwen3_moe_layers(
            n_layers=1,
            dim=WIDTH,
            n_heads=HEADS,
            n_kv_heads=KEYS,
            head_dim=WIDTH // HEADS,
            moe_hidden_dim=MOE_HIDDEN,
            num_experts=EXPERTS,
            top_k=CHOICES,
            attn_backend="varlen",
            moe_comm_backend="standard",
            rope=CosSinRoPE.Config(dim=WIDTH // HEADS, max_seq_len=LENGTH, theta=THETA),
        ),
    )


def deepseek() -> Any:
    """One layer with latent attention, experts and a shared one.

    Weights are drawn from normal distributions: DeepSeek's own ones are drawn until they fit.
    """
    weights = {"w1_EFD": normal_, "w2_EDF": normal_, "w3_EFD": normal_}
    return deepseek_v3.DeepSeekV3Model.Config(
        **around(),
        mtp_layers=[],
        layers=deepseek_v3.build_mla_moe_layers(
            n_layers=1,
            n_dense_layers=0,
            dim=WIDTH,
            n_heads=HEADS,
            q_lora_rank=0,
            kv_lora_rank=8,
            qk_nope_head_dim=4,
            qk_rope_head_dim=4,
            v_head_dim=4,
            mscale=0.7,
            dense_hidden_dim=HIDDEN,
            moe_hidden_dim=MOE_HIDDEN,
            num_experts=EXPERTS,
            num_shared_experts=1,
            router_top_k=CHOICES,
            router_score_func="sigmoid",
            router_route_norm=True,
            attn_backend="varlen",
            moe_comm_backend="standard",
            non_blocking_capacity_factor=None,
            linear_init={"weight": normal_},
            norm_init={"weight": ones_},
            depth_init=lambda _: {"weight": normal_},
            depth_experts_init=lambda _: weights,
            rope=ComplexRoPE.Config(dim=4, max_seq_len=LENGTH, theta=THETA),
        ),
    )


def around() -> dict[str, Any]:
    """The parts of a configuration around the layers."""
    return {
        "vocab_size": VOCABULARY,
        "dim": WIDTH,
        "norm": RMSNorm.Config(normalized_shape=WIDTH, param_init={"weight": ones_}),
        "tok_embeddings": Embedding.Config(
            num_embeddings=VOCABULARY, embedding_dim=WIDTH, param_init={"weight": normal_}
        ),
        "lm_head": Linear.Config(
            in_features=WIDTH, out_features=VOCABULARY, param_init={"weight": normal_}
        ),
    }


MODELS: dict[str, tuple[Callable[[], Any], Callable[..., Any], Callable[..., None]]] = {
    "Qwen3": (qwen, qwen3.parallelize_qwen3, set_qwen3_sharding_config),
    "DeepSeek-V3": (
        deepseek,
        deepseek_v3.parallelize_deepseekv3,
        set_deepseek_v3_sharding_config,
    ),
}
"""The configuration of each model, the function that spreads it, and that which says how."""


def configured(setup: Setup) -> Any:
    """The configuration of a model, with the attention that runs on a CPU."""
    config = MODELS[setup.model][0]()
    for layer in config.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    return config


def spread(setup: Setup, ranks: int) -> tuple[Any, ParallelDims]:
    """The model of a rank, and the dimensions over which it is spread."""
    parallel_dims.device_type = "cpu"
    set_spmd_backend("partial_dtensor")
    parallelism = ParallelismConfig(
        data_parallel_shard_degree=setup.data,
        tensor_parallel_degree=setup.tensor,
        expert_parallel_degree=setup.expert,
        enable_sequence_parallel=setup.sequence,
        spmd_backend="partial_dtensor",
    )
    dims = ParallelDims.from_config(parallelism, ranks)
    dims.build_mesh()
    config = configured(setup)
    _, parallelize, said = MODELS[setup.model]
    said(config, enable_sp=setup.sequence, enable_ep=setup.expert > 1)
    built = config.build()
    parallelize(
        built,
        parallel_dims=dims,
        training=TrainingConfig(mixed_precision_param="float32"),
        parallelism=parallelism,
        compile_config=CompileConfig(enable=False),
        ac_config=None,
        dump_folder="",
    )
    return built, dims


def training(
    built: Any, setup: Setup, dims: Any = ALONE, loss_of: Loss = summed, after: Change | None = None
) -> Program:
    """A step that leaves gradients, or with ``balanced`` one of torchtitan's optimizers.

    The mode of evaluation keeps a model from counting the tokens of experts for its optimizers.
    """
    built.init_states()
    built.train(setup.balanced)
    optimizers = balanced(built, dims) if setup.balanced else None

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss = loss_of(built(batch["tokens"]), batch["labels"])
        loss.backward()
        if after is not None:
            after(built)
        if optimizers is not None:
            optimizers.step()
            optimizers.zero_grad()
        return loss.to_local() if isinstance(loss, DTensor) else loss

    return Program(built, step, None if optimizers is None else optimizers.optimizers)


def balanced(built: Any, dims: Any) -> Any:
    """torchtitan's optimizers, which update the biases of experts before their step."""
    adamw = ParamGroupConfig(pattern=".*", optimizer_name="AdamW", optimizer_kwargs={"lr": 0.1})
    config = OptimizersContainer.Config(param_groups=[adamw], implementation="foreach")
    optimizers = config.build(model_parts=[built])
    register_moe_load_balancing_hook(optimizers, [built], dims)
    return optimizers


def spec(
    setup: Setup,
    loss_of: Loss = summed,
    change: Change = lambda _: None,
    after: Change | None = None,
    counted: Any = None,
) -> Spec:
    """Its model on one device, and spread. Both take ``loss_of``; the others plant a mistake in the
    latter: ``change`` before the step, ``after`` the backward pass, ``counted`` in the dimensions
    over which the tokens of experts are added up.
    """

    def parallel(rank: Rank) -> Program:
        built, dims = spread(setup, prod(rank.mesh.values()))
        change(built)
        return training(built, setup, counted or dims, loss_of, after)

    split = {0: "dp", 1: "tp"} if setup.sequence else {0: "dp"}
    return Spec(
        lambda: training(configured(setup).build(), setup, loss_of=loss_of),
        parallel,
        {"dp": setup.data, "tp": setup.tensor},
        TOKENS,
        {"loss": TERM},
        routings=[Routing.random(seed=1)],
        router=Router(EXPERTS, tokens=(BATCH, LENGTH), split=split),
    )


# --- mistakes


def halved(built: Any) -> None:
    """The gradients of experts divided by the number of ranks, as if they were summed over them."""
    for parameter in built.layers["0"].moe.routed_experts.inner_experts.parameters():
        parameter.grad /= 2


def neighbours(built: Any) -> None:
    """Experts get the tokens that lie one place further."""
    dispatcher = built.layers["0"].moe.routed_experts.token_dispatcher
    permute = dispatcher._permute

    def permuted(rows: torch.Tensor, counts: torch.Tensor) -> Any:
        shape, _, places, totals = permute(rows, counts)
        return shape, rows[places.roll(1), :], places, totals

    dispatcher._permute = permuted
