"""Mixtures of experts of Hugging Face, spread by its own expert parallelism."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from frontends.torch.parallelism.test_routed_experts import refuted
from frontends.torch.proving import proven
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from pitcheck.torch import Input, Part, Program, Rank, Routing, Spec

VOCABULARY, RANKS = 12, 2
TOKENS = {
    name: Input((4, 2), "int64", (0, VOCABULARY), split={0: "ep"}) for name in ("tokens", "labels")
}
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 8,
    "intermediate_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 8,
    "head_dim": 4,
    "use_cache": False,
}
MODELS: dict[str, dict[str, Any]] = {
    "Mixtral": {"num_local_experts": 4},
    "Qwen3Moe": {"num_experts": 4, "moe_intermediate_size": 4, "norm_topk_prob": True},
    "GptOss": {
        "num_local_experts": 4,
        "layer_types": ["full_attention"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
}
Finish = Callable[[nn.Module], None]


def built(name: str, experts: str) -> Any:
    """A model of one layer. ``experts``: one after the other, or by products in groups."""
    transformers = pytest.importorskip("transformers", minversion="5.24")
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES, **MODELS[name])
    config._experts_implementation, config._attn_implementation = experts, "eager"
    return getattr(transformers, f"{name}ForCausalLM")(config)


def fill(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def add_up(model: nn.Module, but: str = ".experts.") -> None:
    """All gradients but those of experts, which are the only ones of their kind."""
    fill(model)
    for name, parameter in model.named_parameters():
        if ".experts." not in name and but not in name:
            dist.all_reduce(parameter.grad)


def all_but_routers(model: nn.Module) -> None:
    add_up(model, ".mlp.gate.")


def training(model: Any, finish: Finish) -> Program:
    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        logits = model(input_ids=batch["tokens"]).logits
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum"
        )
        loss.backward()
        finish(model)
        return loss

    return Program(model, step)


def spec(name: str, experts: str = "eager", finish: Finish = add_up) -> Spec:
    def parallel(rank: Rank) -> Program:
        spreading = pytest.importorskip("transformers.distributed.expert_parallel")
        model = built(name, experts)
        mesh = init_device_mesh("cpu", (1, RANKS), mesh_dim_names=("tp", "ep"))
        plan = {each: "grouped_gemm" for each, _ in model.named_parameters() if ".experts." in each}
        modules = [each for each, _ in model.named_modules() if each.endswith("experts")]
        plan |= dict.fromkeys(modules, "ep_dispatch_experts")
        spreading.apply_expert_parallelism(model, mesh["ep"], mesh["tp"], plan, "all_to_all")
        return training(model, finish)

    return Spec(
        lambda: training(built(name, experts), fill),
        parallel,
        {"ep": RANKS},
        TOKENS,
        {"loss": Part(sum="ep")},
        routings=[Routing.random(seed=1)],
    )


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "experts"),
    [
        ("Mixtral", "eager"),
        ("Mixtral", "grouped_mm"),
        ("Qwen3Moe", "eager"),
        ("GptOss", "eager"),
    ],
)
def test_hugging_face(name: str, experts: str) -> None:
    pytest.importorskip("transformers", minversion="5.24")
    proven(spec(name, experts))


@pytest.mark.nightly
@pytest.mark.slow
def test_routers_whose_gradients_nobody_adds_up() -> None:
    pytest.importorskip("transformers", minversion="5.24")
    refuted(spec("Mixtral", finish=all_but_routers), "grad:model.layers.0.mlp.gate.weight")
