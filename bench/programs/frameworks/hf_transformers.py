"""Models of transformers, spread by its ``DistributedConfig``: tensor parallel plans and FSDP2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import transformers
from small import Batch, named
from transformers.distributed import DistributedConfig

from pitcheck.torch import Input, Part, Program, Rank, Spec

ROWS, LENGTH, VOCABULARY = 4, 6, 32
MISTAKES = ("a rowwise layer not reduced", "sums not divided")
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "attn_implementation": "eager",
    "max_position_embeddings": 16,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
GATED: dict[str, Any] = {**SIZES, "intermediate_size": 24, "num_key_value_heads": 2}
GPT2: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "n_embd": 16,
    "n_layer": 1,
    "n_head": 4,
    "n_positions": 16,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "attn_implementation": "eager",
    "bos_token_id": None,
    "eos_token_id": None,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("LlamaForCausalLM", GATED),
    "Llama, tied": ("LlamaForCausalLM", {**GATED, "tie_word_embeddings": True}),
    "Llama, SDPA": ("LlamaForCausalLM", {**GATED, "attn_implementation": "sdpa"}),
    "Qwen2": ("Qwen2ForCausalLM", GATED),
    "Qwen3": ("Qwen3ForCausalLM", {**GATED, "head_dim": 4}),
    "Mistral": ("MistralForCausalLM", {**GATED, "sliding_window": None}),
    "Phi3": ("Phi3ForCausalLM", GATED),
    "Gemma": ("GemmaForCausalLM", {**GATED, "head_dim": 4, "tie_word_embeddings": False}),
    "Granite": ("GraniteForCausalLM", GATED),
    "OLMo2": ("Olmo2ForCausalLM", GATED),
    "GPT-2": ("GPT2LMHeadModel", GPT2),
}


def built(name: str) -> Any:
    """Return a small model without weights to load."""
    kind, sizes = MODELS[name]
    model_class = getattr(transformers, kind)
    model = model_class(model_class.config_class(**sizes))
    model.config.use_cache = False
    return model.train()


def training(model: Any, optimizer: Any = None, labels: str = "labels") -> Program:
    """Return a program whose loss is that of the model itself."""

    def step(batch: Batch) -> torch.Tensor:
        loss: torch.Tensor = model(input_ids=batch["tokens"], labels=batch[labels]).loss
        loss.backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    return Program(model, step, optimizer)


def spec(
    mesh: Mapping[str, int],
    mistake: str = "",
    model: str = "Llama",
    optimizer: str = "",
    **configured: Any,
) -> Spec:
    """Return the model on one device, and spread over ranks by its own plans."""
    named(MISTAKES, mistake)

    def stepping(made: Any) -> Any:
        return torch.optim.AdamW(made.parameters(), lr=0.1) if optimizer else None

    def reference() -> Program:
        whole = built(model)
        return training(whole, stepping(whole))

    def parallel(_: Rank) -> Program:
        sizes = {"tp_size": mesh.get("tp", 1), "fsdp_size": mesh.get("dp", 1)}
        if "rep" in mesh:
            sizes["dp_replicate_size"] = mesh["rep"]
        whole = built(model)
        config, _, devices = whole.prepare_distribute_model(
            DistributedConfig(**sizes, **configured)
        )
        spread = whole.maybe_distribute_model(whole, config, devices)
        planted(spread, mistake)
        return training(spread, stepping(spread))

    axes = tuple(axis for axis in mesh if axis != "tp")
    tokens = Input((ROWS * 2, LENGTH), "int64", (0, VOCABULARY), split={0: axes} if axes else {})
    return Spec(
        reference,
        parallel,
        mesh,
        {"tokens": tokens, "labels": tokens},
        {"loss": Part(mean=axes)} if axes else {},
    )


# --- mistakes


def planted(model: Any, mistake: str) -> None:
    """Plant a mistake."""
    if mistake == "sums not divided":
        for module in model.modules():
            if hasattr(module, "set_gradient_divide_factor"):
                module.set_gradient_divide_factor(1.0)
    if mistake == "a rowwise layer not reduced":
        layer = last_layer(model)
        layer.forward = lambda x: torch.nn.functional.linear(x, layer.weight.to_local())


def last_layer(model: Any) -> Any:
    """Return the last layer that is cut by rows."""
    return [module for name, module in model.named_modules() if name.endswith("down_proj")][-1]
