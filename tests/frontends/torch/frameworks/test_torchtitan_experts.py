"""torchtitan's Qwen3-MoE, spread by its own ``parallelize_qwen3``: FSDP2 with expert parallelism,
and with tensor and sequence parallelism beside it.

The model is in evaluation mode, in which it does not count the tokens of experts for its optimizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import pytest

pytest.importorskip("torchtitan", minversion="0.3")

import torch
from frontends.torch.frameworks.titan import (
    BATCH,
    HEADS,
    KEYS,
    LENGTH,
    TERM,
    TOKENS,
    VOCABULARY,
    WIDTH,
    CompileConfig,
    Embedding,
    Linear,
    ParallelDims,
    ParallelismConfig,
    ScaledDotProductAttention,
    TrainingConfig,
    averaged,
    parallel_dims,
    set_spmd_backend,
    summed,
)
from frontends.torch.parallelism.test_routed_experts import refuted
from frontends.torch.proving import proven
from torch import nn
from torch.distributed.tensor import DTensor
from torchtitan.models import qwen3
from torchtitan.models.common import CosSinRoPE
from torchtitan.models.common.token_dispatcher import LocalTokenDispatcher
from torchtitan.models.qwen3.sharding import set_qwen3_sharding_config

from pitcheck.torch import Program, Rank, Router, Routing, Spec

EXPERTS, CHOICES = 4, 2


@dataclass(frozen=True)
class Setup:
    """Degrees of data (FSDP2), tensor and expert parallelism; ``sequence``: parallel, too."""

    data: int = 2
    tensor: int = 1
    expert: int = 2
    sequence: bool = False


def model(setup: Setup | None) -> Any:
    """One layer of experts; None: on one device."""
    normal = {"weight": nn.init.normal_}
    config = qwen3.Qwen3Model.Config(
        vocab_size=VOCABULARY,
        dim=WIDTH,
        norm=qwen3._qwen3_norm(WIDTH),
        enable_weight_tying=False,
        tok_embeddings=Embedding.Config(
            num_embeddings=VOCABULARY, embedding_dim=WIDTH, param_init=normal
        ),
        lm_head=Linear.Config(in_features=WIDTH, out_features=VOCABULARY, param_init=normal),
        layers=qwen3._build_qwen3_moe_layers(
            n_layers=1,
            dim=WIDTH,
            n_heads=HEADS,
            n_kv_heads=KEYS,
            head_dim=WIDTH // HEADS,
            moe_hidden_dim=8,
            num_experts=EXPERTS,
            top_k=CHOICES,
            attn_backend="varlen",
            moe_comm_backend="standard",
            rope=CosSinRoPE.Config(dim=WIDTH // HEADS, max_seq_len=LENGTH, theta=10000.0),
        ),
    )
    for layer in config.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
        if setup is None:
            layer.moe.routed_experts.token_dispatcher = LocalTokenDispatcher.Config(
                num_experts=EXPERTS, top_k=CHOICES
            )
    if setup is not None:
        set_qwen3_sharding_config(config, enable_sp=setup.sequence, enable_ep=setup.expert > 1)
    return config.build()


def training(built: Any, loss_of: Any = summed) -> Program:
    built.init_states()
    built.eval()

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss = loss_of(built(batch["tokens"]), batch["labels"])
        loss.backward()
        return loss.to_local() if isinstance(loss, DTensor) else loss

    return Program(built, step)


def spec(setup: Setup, loss_of: Any = summed) -> Spec:
    def parallel(rank: Rank) -> Program:
        parallel_dims.device_type = "cpu"
        set_spmd_backend("partial_dtensor")
        parallelism = ParallelismConfig(
            data_parallel_shard_degree=setup.data,
            tensor_parallel_degree=setup.tensor,
            expert_parallel_degree=setup.expert,
            enable_sequence_parallel=setup.sequence,
            spmd_backend="partial_dtensor",
        )
        dims = ParallelDims.from_config(parallelism, prod(rank.mesh.values()))
        dims.build_mesh()
        built = model(setup)
        qwen3.parallelize_qwen3(
            built,
            parallel_dims=dims,
            training=TrainingConfig(mixed_precision_param="float32"),
            parallelism=parallelism,
            compile_config=CompileConfig(enable=False),
            ac_config=None,
            dump_folder="",
        )
        return training(built, loss_of)

    split = {0: "dp", 1: "tp"} if setup.sequence else {0: "dp"}
    return Spec(
        lambda: training(model(None), loss_of),
        parallel,
        {"dp": setup.data, "tp": setup.tensor},
        TOKENS,
        {"loss": TERM},
        routings=[Routing.random(seed=1)],
        router=Router(EXPERTS, tokens=(BATCH, LENGTH), split=split),
    )


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("setup", [Setup(), Setup(tensor=2, sequence=True)], ids=str)
def test_qwen3_with_experts(setup: Setup) -> None:
    proven(spec(setup))


@pytest.mark.nightly
@pytest.mark.slow
def test_the_mean_of_own_tokens() -> None:
    refuted(spec(Setup(), averaged), "loss")
