"""Configurations of toy size: every size of a configuration is set by what its name says.

A rule is a pattern for the name of a field and the value that the field takes. The first rule whose
pattern is found in the name wins. A field without a rule keeps its default. ``OVERRIDES`` has what
a class needs beside these rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from inspect import signature
from typing import Any

from toys.overrides import OVERRIDES

VOCABULARY = 16
WIDTH = 16
HEADS = 2
LABELS = 4
EXPERTS = 4

INTEGERS: tuple[tuple[str, int], ...] = (
    (r"vocab", VOCABULARY),
    (r"num_channels|in_channels|num_labels|relative_attention|_idx|offset", -1),
    (r"experts_per_tok|top_?k$|num_selected_experts|experts_top", 2),
    (r"n_group|topk_group|num_expert_group|n_shared|shared_experts|expert_capacity", 1),
    (r"experts", EXPERTS),
    (r"(key_value|kv)_(n_)?heads|kv_n_heads|num_kv", 1),
    (r"(?<!d_)heads?$", HEADS),
    (r"(head|kv|qk|rope|nope|v)_(head_)?dim|kv_channels|d_kv|d_head|head_size|_head_dim", 8),
    (r"layers?$|n_layers?|depth$|num_blocks$|_layers_", 1),
    (r"_rank$", 8),
    (r"position|max_seq|seq_len|context|max_len|target_length|max_source", 32),
    (r"image_size|input_size", 32),
    (r"patch_size|patch_stride", 4),
    (r"window|(^|mamba_|attention_)chunk_size$", 4),
    (r"embedding_groups|num_groups", 2),
    (r"conv_pos_embeddings|conv_pos_kernel", 4),
    (r"latent", 8),
    (r"mel_bins|num_mel|feature_size|input_feat", 8),
    (r"hidden|d_model|n_embd|embd|embed|width|intermediate|ffn|d_ff|inner|mlp_dim|proj", WIDTH),
    (r"(^|_)dim$|_dims?$|_channels$|channels$|_size_per_layer|_filters$", WIDTH),
)
LISTS: dict[str, list[int]] = {
    "conv_dim": [8, 8],
    "conv_kernel": [4, 2],
    "conv_stride": [2, 2],
    "tdnn_dim": [8],
    "tdnn_kernel": [1],
    "tdnn_dilation": [1],
}
"""Lists by their whole name: what models of sound make of a wave before their first layer."""
STAGED = re.compile(r"^(depths?|hidden_sizes|embed_dims?|layer_depths|conv_layer_.*)$")
COUNTED = re.compile(r"num_(encoder_)?(blocks|stages)$")
STAGES = 2
"""Stages of different resolution that a model keeps, of those that its lists describe."""
COUNTS = ("num_hidden_layers", "num_layers")
"""The names of the number of layers."""
CHOICES: dict[str, Any] = {"ctc_loss_reduction": "mean", "apply_spec_augment": False}
"""Fields that are no sizes, and what makes the loss a mean over the batch without draws."""
NEEDED = re.compile(r"vocab_size|experts")
"""Sizes without which no model of the class is built, although they are None by default."""
TOKENS = {"pad": 0, "bos": 1, "eos": 2, "decoder_start": 1, "sep": 2, "cls": 1}


def tiny(name: str, config_class: Any, **given: Any) -> Any:
    """Return a configuration of the class at toy size, for the model class ``name``."""
    config = config_class(**{**shrunk(config_class), **OVERRIDES.get(name, {}), **given})
    config.use_cache = False
    if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = TOKENS["decoder_start"]
    return config


def shrunk(config_class: Any) -> dict[str, Any]:
    """Return the fields of a configuration that a toy size changes, also those of its parts.

    A part of any class is of the class that it has by default.
    """
    own = field_names(config_class)
    default = config_class().to_dict()
    parts: Mapping[str, Any] = getattr(config_class, "sub_configs", None) or {}
    changed: dict[str, Any] = {key: CHOICES[key] for key in own if key in CHOICES}
    layers = layer_kinds(default)
    stages = stage_count(default)
    for key in own:
        if key in parts:
            part: Any = type(getattr(config_class(), key, None))
            if hasattr(part, "model_type"):
                named = {"model_type": part.model_type} if part is not parts[key] else {}
                changed[key] = {**shrunk(part), **named}
            elif hasattr(parts[key], "model_type") and parts[key].__name__ != "AutoConfig":
                changed[key] = shrunk(parts[key])
            continue
        value = default.get(key)
        fewer = fewer_stages(key, value, stages)
        smaller = small_value(key, fewer, default)
        smaller = fewer if smaller is None else smaller
        if smaller is not None and smaller != value:
            changed[key] = smaller
    if layers and "layer_types" in own:
        changed["layer_types"] = list(layers)
        for key in COUNTS:
            if key in own:
                changed[key] = len(layers)
    return {**changed, **one_for_each_layer(changed, {key: default.get(key) for key in own})}


def one_for_each_layer(changed: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """Return the lists that have a number for each layer, cut to the layers that are left."""
    counts = [(default.get(key), changed[key]) for key in COUNTS if key in changed]
    if not counts or counts[0][0] == counts[0][1]:
        return {}
    before, left = counts[0]
    return {
        key: list(changed.get(key, value))[:left]
        for key, value in default.items()
        if is_list(value) and len(value) == before and not isinstance(value[0], str)
    }


def field_names(config_class: Any) -> list[str]:
    """List what the constructor of a configuration takes."""
    if is_dataclass(config_class):
        return [each.name for each in fields(config_class) if each.init]
    return [each for each in signature(config_class.__init__).parameters if each != "self"]


def stage_count(default: Mapping[str, Any]) -> int:
    """Return how many stages of different resolution a configuration has, or 0."""
    counts = [len(value) for key, value in default.items() if STAGED.match(key) and is_list(value)]
    return max(counts, default=0)


def fewer_stages(key: str, value: Any, stages: int) -> Any:
    """Return a list that has an element for each stage, or their number, for fewer stages."""
    if stages <= STAGES:
        return value
    if is_list(value) and len(value) == stages:
        return list(value)[:STAGES]
    return STAGES if value == stages and COUNTED.search(key) else value


def layer_kinds(default: Mapping[str, Any]) -> tuple[str, ...]:
    """Return each kind of layer once, in the order in which the configuration has them."""
    return tuple(dict.fromkeys(default.get("layer_types") or ()))


def is_list(value: Any) -> bool:
    """Tell whether a value is a list."""
    return isinstance(value, list | tuple)


def small_value(key: str, value: Any, default: Mapping[str, Any]) -> Any:
    """Return what a field becomes, or None where it keeps its value."""
    if token := re.match(r"(.*)_token_id$", key):
        return TOKENS.get(token[1], 3 if value is not None else None)
    if isinstance(value, bool | str) or key == "layer_types":
        return None
    if isinstance(value, float):
        return 0.0 if re.search(r"drop|jitter|mask_\w+_prob", key) else None
    if is_list(value):
        return LISTS.get(key) or [smaller_or_same(key, each, default) for each in value]
    if isinstance(value, int) or (value is None and NEEDED.search(key)):
        return small_integer(key, VOCABULARY if value is None else value, default)
    return None


def smaller_or_same(key: str, value: Any, default: Mapping[str, Any]) -> Any:
    """Return what an element of a list becomes."""
    smaller = small_value(key, value, default)
    return value if smaller is None else smaller


def small_integer(key: str, value: int, default: Mapping[str, Any]) -> int | None:
    """Return the size of a field by the first rule that its name fits."""
    if key in ("depths", "depth", "layer_depths", "stage_num_blocks", "stage_numb_of_layers"):
        return 1
    for pattern, size in INTEGERS:
        if re.search(pattern, key):
            if size == 1 and "heads" in key and value == default.get("num_attention_heads"):
                return HEADS
            return None if size < 0 or value in (0, -1) else min(value, size)
    return None
