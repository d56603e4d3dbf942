"""Mixtures of experts of transformers, spread by their expert and tensor parallel plans."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
import transformers
import transformers.distributed.expert_parallel as of_transformers
from hf_transformers import training
from small import named
from transformers.distributed import DistributedConfig
from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES

from pitcheck.torch import Input, Part, Program, Rank, Router, Routing, Spec

ROWS, LENGTH, VOCABULARY, EXPERTS = 4, 2, 12, 4
MISTAKES = (
    "experts counted from another one",
    "outputs of experts not summed",
    "shared expert not summed",
)
WITHIN_GROUPS = [[2, 3], [0, 1], [1, 0], [3, 2], [0, 1], [2, 3], [0, 1], [3, 2]]
"""Experts of each token, of one half of them: DeepSeek's router chooses a group first."""
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 8,
    "intermediate_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 8,
    "head_dim": 4,
    "attn_implementation": "eager",
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
MODELS: dict[str, dict[str, Any]] = {
    "Mixtral": {"num_local_experts": EXPERTS},
    "Qwen3Moe": {"num_experts": EXPERTS, "moe_intermediate_size": 4, "norm_topk_prob": True},
    "GptOss": {
        "num_local_experts": EXPERTS,
        "layer_types": ["full_attention"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "DeepseekV3": {
        "n_routed_experts": EXPERTS,
        "n_shared_experts": 1,
        "moe_intermediate_size": 4,
        "first_k_dense_replace": 0,
        "n_group": 2,
        "topk_group": 1,
        "kv_lora_rank": 4,
        "q_lora_rank": 4,
        "qk_rope_head_dim": 2,
        "qk_nope_head_dim": 2,
        "v_head_dim": 4,
        "head_dim": 2,
    },
}


def built(name: str) -> Any:
    """Return a small model of one layer, whose experts run one after the other."""
    model_class = getattr(transformers, f"{name}ForCausalLM")
    config = model_class.config_class(**(SIZES | MODELS[name]))
    config._experts_implementation = "eager"
    model = model_class(config)
    model.config.use_cache = False
    return model.train()


def spec(
    mesh: Mapping[str, int],
    mistake: str = "",
    model: str = "Mixtral",
    expert_parallel: bool = True,
    **configured: Any,
) -> Spec:
    """Return a mixture of experts on one device, and spread over ranks by its own plans."""
    named(MISTAKES, mistake)

    def parallel(_: Rank) -> Program:
        sizes = {"tp_size": mesh.get("tp", 1), "fsdp_size": mesh.get("dp", 1)}
        if expert_parallel:
            sizes["ep_size"] = prod(sizes.values())
        whole = built(model)
        config, _, devices = whole.prepare_distribute_model(
            DistributedConfig(**sizes, **configured)
        )
        planted(mistake)
        spread = whole.maybe_distribute_model(whole, config, devices)
        turned(spread, mistake)
        return training(spread)

    split = {0: tuple(axis for axis in mesh if axis != "tp")}
    tokens = Input((ROWS, LENGTH), "int64", (0, VOCABULARY), split=split if split[0] else {})
    return Spec(
        lambda: training(built(model)),
        parallel,
        mesh,
        {"tokens": tokens, "labels": tokens},
        {"loss": Part(mean=split[0])} if split[0] else {},
        routings=[Routing.given(WITHIN_GROUPS, "within groups")],
        router=Router(experts=EXPERTS),
    )


# --- mistakes


def planted(mistake: str) -> None:
    """Plant a mistake into transformers: no sum over ranks of what their experts give."""
    if mistake == "outputs of experts not summed":
        style = ALL_PARALLEL_STYLES["moe_tp_experts"]
        style.transform_output_post_forward = lambda _module, output, _mesh: output
        of_transformers._AllReduceForward = Unsummed


class Unsummed:
    """A sum over ranks that leaves a rank what it has."""

    @staticmethod
    def apply(output: torch.Tensor, _: Any) -> torch.Tensor:
        """Return the rank's term."""
        return output


def turned(model: Any, mistake: str) -> None:
    """Plant a mistake into a model that is spread."""
    if mistake == "shared expert not summed":
        layer = model.model.layers[0].mlp.shared_experts.down_proj
        layer.forward = lambda x: torch.nn.functional.linear(x, layer.weight.to_local())
    if mistake == "experts counted from another one":
        experts = model.model.layers[0].mlp.experts
        forward = experts.forward
        experts.forward = lambda x, chosen, weights: forward(x, (chosen + 1) % EXPERTS, weights)
