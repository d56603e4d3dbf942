"""Models of transformers whose attention has biases, under ``DistributedDataParallel``.

The bias of keys has the gradient 0: it adds one number to all scores of a query.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import transformers
from small import Batch, named
from torch.nn.parallel import DistributedDataParallel

from pitcheck.torch import Input, Part, Program, Rank, Spec

ROWS, LENGTH, VOCABULARY, SIZE = 4, 4, 12, 8
MISTAKES = ("never synchronised",)
NAMED: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "BERT": (
        "BertForSequenceClassification",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": SIZE,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": SIZE,
            "max_position_embeddings": LENGTH,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "num_labels": 3,
        },
    ),
    "OPT": (
        "OPTForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": SIZE,
            "word_embed_proj_dim": SIZE,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "ffn_dim": SIZE,
            "max_position_embeddings": LENGTH,
            "dropout": 0.0,
            **NAMED,
        },
    ),
    "ViT": (
        "ViTForImageClassification",
        {
            "hidden_size": SIZE,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": SIZE,
            "image_size": 4,
            "patch_size": 2,
            "num_channels": 1,
            "num_labels": 3,
        },
    ),
    "Whisper": (
        "WhisperForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "d_model": SIZE,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": SIZE,
            "decoder_ffn_dim": SIZE,
            "num_mel_bins": 4,
            "max_source_positions": LENGTH,
            "max_target_positions": LENGTH,
            "decoder_start_token_id": 1,
            "dropout": 0.0,
            **NAMED,
        },
    ),
}
TOKENS = Input((ROWS, LENGTH), "int64", (0, VOCABULARY), {0: "dp"})
CLASSES = Input((ROWS,), "int64", (0, 3), {0: "dp"})
BATCHES: dict[str, dict[str, Input]] = {
    "BERT": {"input_ids": TOKENS, "labels": CLASSES},
    "OPT": {"input_ids": TOKENS, "labels": TOKENS},
    "ViT": {"pixel_values": Input((ROWS, 1, 4, 4), split={0: "dp"}), "labels": CLASSES},
    "Whisper": {
        "input_features": Input((ROWS, 4, 2 * LENGTH), split={0: "dp"}),
        "labels": TOKENS,
    },
}


def built(name: str, attention: str) -> Any:
    """Return a small model without weights to load."""
    kind, sizes = MODELS[name]
    model_class = getattr(transformers, kind)
    # A truncated normal distribution looks at the numbers that it has drawn.
    with transformers.initialization.no_init_weights():
        model = model_class(model_class.config_class(**sizes, attn_implementation=attention))
    model.config.use_cache = False
    return model.train()


def training(model: Any) -> Program:
    """Return a program whose loss is that of the model itself."""

    def step(batch: Batch) -> torch.Tensor:
        loss: torch.Tensor = model(**batch).loss
        loss.backward()
        return loss

    return Program(model, step, names=lambda name: name.removeprefix("module."))


def spec(
    mesh: Mapping[str, int], mistake: str = "", model: str = "BERT", attention: str = "eager"
) -> Spec:
    """Return a model on one device, and its replicas."""
    named(MISTAKES, mistake)

    def parallel(_: Rank) -> Program:
        whole = built(model, attention)
        if mistake == "never synchronised":
            return training(whole)
        return training(DistributedDataParallel(whole, broadcast_buffers=False))

    return Spec(
        lambda: training(built(model, attention)),
        parallel,
        mesh,
        BATCHES[model],
        {"loss": Part(mean="dp")},
    )
