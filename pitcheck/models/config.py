"""Configurations of models: sizes and choices as plain data.

One family of transformers covers all models; each difference between them is a field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal as OneOf

import msgspec

from pitcheck.errors import ImpossibleError

Norm = OneOf["rms", "layer"]
Activation = OneOf["swiglu", "gelu"]


class Attention(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="heads", tag_field="kind"
):
    """Multi-head attention, or grouped-query attention if ``kv_heads`` < ``heads`` (Ainslie 2023).

    ``fused``: one weight for queries, keys and values, laid out per key-value head as [its query
    heads, key, value], as in Megatron-LM. ``rotary``: rotary position embedding (Su et al. 2021)
    that pairs one half of a head with the other.
    """

    heads: int
    kv_heads: int
    head_dim: int
    fused: bool = False
    bias: bool = False
    rotary: bool = True


class LatentAttention(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="latent", tag_field="kind"
):
    """Multi-head latent attention (DeepSeek-V2, 2024).

    The keys and values of all heads come from one vector of ``kv_rank`` elements and one rotary key
    of ``rope``. With ``query_rank`` 0 queries come from the hidden state directly. A head has
    ``nope`` + ``rope`` elements for queries and keys, and ``value`` for values.
    """

    heads: int
    kv_rank: int
    nope: int
    rope: int
    value: int
    query_rank: int = 0


class Experts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mixture of ``routed`` experts of width ``ffn``, ``chosen`` per token, and ``shared`` ones.

    Every token goes through the shared experts. ``groups``: the number of equal groups of experts.
    A token chooses within ``kept`` of them, ranked by their best member or, with ``top2``, by the
    sum of their two best. ``score``: the gate function. ``normalized``: the weights of the chosen
    experts sum to 1. ``scale``: a factor on these weights. ``bias_rate``: the step by which a bias
    that only steers the choice moves against the load (Wang et al. 2024); 0: no bias.

    ``auxiliary``: the coefficient of the load balancing loss, taken over each group of tokens of
    the batch (``auxiliary_over`` "group") or over each sequence ("sequence"). The loss is the sum
    over experts of (routed / chosen) * share of tokens * mean score (Fedus et al. 2021; sigmoid
    scores are normalized first). ``z``: the coefficient of the mean squared logsumexp of the
    router's logits (Zoph et al. 2022).
    """

    routed: int
    chosen: int
    ffn: int
    shared: int = 0
    groups: int = 1
    kept: int = 1
    group_score: OneOf["max", "top2"] = "max"
    score: OneOf["softmax", "sigmoid"] = "softmax"
    normalized: bool = False
    scale: str = "1"
    bias_rate: str = "0"
    auxiliary: str = "0"
    auxiliary_over: OneOf["group", "sequence"] = "group"
    z: str = "0"


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decoder-only transformer with norms before attention and feed-forward part.

    ``vocabulary``: the number of token ids. ``rows``: the rows of a padded embedding, 0 if it is
    not padded. ``positions``: the number of learned positions, 0 for none. ``dense_layers``: the
    number of first layers with a dense feed-forward part of width ``ffn`` in a model with experts.
    ``predicted``: the number of multi-token prediction modules (DeepSeek-V3), each with the loss
    weight ``predicted_weight``. ``fused_gate``: gate and up projection are one weight, [gate; up].
    """

    name: str
    layers: int
    hidden: int
    vocabulary: int
    ffn: int
    attention: Attention | LatentAttention
    experts: Experts | None = None
    dense_layers: int = 0
    rows: int = 0
    norm: Norm = "rms"
    norm_eps: str = "1/100000"
    activation: Activation = "swiglu"
    bias: bool = False
    fused_gate: bool = False
    positions: int = 0
    tied: bool = False
    predicted: int = 0
    predicted_weight: str = "3/10"

    @property
    def embedding_rows(self) -> int:
        """The rows of the embedding and of the output projection."""
        return self.rows or self.vocabulary

    def is_mixture(self, layer: int) -> bool:
        """Return True if layer number ``layer``, counted from 0, has experts."""
        return self.experts is not None and layer >= self.dense_layers

    def padded(self, multiple: int) -> Model:
        """Return the model with its embedding padded to a multiple of ``multiple`` rows.

        The added rows are trained like the others, as in Megatron-LM.
        """
        return msgspec.structs.replace(self, rows=-(-self.vocabulary // multiple) * multiple)


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tokens of one step: ``sequences`` of ``length`` tokens, in ``groups`` equal runs.

    Losses over a group of tokens are taken over each run of sequences. A framework that takes them
    on every rank and micro-batch has micro-batches * data-parallel ranks groups.
    """

    sequences: int
    length: int
    groups: int = 1


class Optimizer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """AdamW (Loshchilov and Hutter 2019) at one step, after clipping to the norm ``max_norm``.

    ``step``: the number of the step, from 1. Numbers are rationals.
    """

    beta1: str = "9/10"
    beta2: str = "19/20"
    eps: str = "1/100000000"
    weight_decay: str = "1/10"
    max_norm: str = "1"
    step: int = 3


def check_model(model: Model, batch: Batch) -> None:
    """Raise ImpossibleError for sizes that break a rule of the model or of its batch.

    The error names the field, the rule and the value.
    """
    for place, holds, rule in (
        *_model_rules(model),
        *_attention_rules(model),
        *_expert_rules(model),
        *_batch_rules(model, batch),
    ):
        if not holds:
            raise ImpossibleError(rule, place)


Rule = tuple[str, bool, str]


def _model_rules(model: Model) -> Iterator[Rule]:
    for field in ("layers", "hidden", "vocabulary", "ffn"):
        size = getattr(model, field)
        yield f"model.{field}", size >= 1, f"must be at least 1, not {size}"
    yield (
        "model.rows",
        model.rows == 0 or model.rows >= model.vocabulary,
        f"the embedding has {model.rows} rows for {model.vocabulary} token ids",
    )
    yield (
        "model.dense_layers",
        0 <= model.dense_layers <= model.layers,
        f"{model.dense_layers} dense layers of {model.layers}",
    )
    yield (
        "model.predicted",
        model.predicted in (0, 1),
        f"one multi-token prediction module is known, not {model.predicted}",
    )


def _attention_rules(model: Model) -> Iterator[Rule]:
    attention = model.attention
    if isinstance(attention, Attention):
        divides = (
            0 < attention.kv_heads <= attention.heads and attention.heads % attention.kv_heads == 0
        )
        yield (
            "model.attention.kv_heads",
            divides,
            f"{attention.heads} heads cannot share {attention.kv_heads} key-value heads evenly",
        )
        yield (
            "model.attention.head_dim",
            attention.head_dim % 2 == 0 or not attention.rotary,
            f"rotary pairs need an even size, not {attention.head_dim}",
        )
    else:
        yield (
            "model.attention.rope",
            attention.rope % 2 == 0,
            f"rotary pairs need an even size, not {attention.rope}",
        )


def _expert_rules(model: Model) -> Iterator[Rule]:
    experts = model.experts
    if experts is None:
        return
    yield (
        "model.experts.groups",
        experts.routed % experts.groups == 0,
        f"{experts.routed} experts cannot form {experts.groups} equal groups",
    )
    yield (
        "model.experts.kept",
        1 <= experts.kept <= experts.groups,
        f"{experts.kept} of {experts.groups} groups cannot be kept",
    )
    eligible = experts.kept * (experts.routed // experts.groups)
    yield (
        "model.experts.chosen",
        1 <= experts.chosen <= eligible,
        f"{experts.chosen} experts are chosen of {eligible} in the groups kept",
    )
    pairs = (
        experts.group_score != "top2" or experts.groups == 1 or experts.routed >= 2 * experts.groups
    )
    yield (
        "model.experts.group_score",
        pairs,
        f"groups of {experts.routed // experts.groups} have no two best members",
    )


def _batch_rules(model: Model, batch: Batch) -> Iterator[Rule]:
    for field in ("sequences", "length", "groups"):
        size = getattr(batch, field)
        yield f"batch.{field}", size >= 1, f"must be at least 1, not {size}"
    yield (
        "batch.groups",
        batch.sequences % max(batch.groups, 1) == 0,
        f"{batch.sequences} sequences cannot form {batch.groups} equal groups",
    )
    yield (
        "batch.length",
        not model.positions or batch.length <= model.positions,
        f"{batch.length} tokens, but {model.positions} learned positions",
    )
