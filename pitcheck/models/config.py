"""What a model is: sizes and choices as plain data. One transformer family covers all of them; what
differs is a field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal as OneOf

import msgspec

from pitcheck.errors import PlanError

Norm = OneOf["rms", "layer"]
Activation = OneOf["swiglu", "gelu"]


class Attention(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="heads", tag_field="kind"
):
    """Multi-head attention, with ``kv_heads`` < ``heads`` grouped-query attention (Ainslie et al.
    2023).

    ``fused``: one weight for queries, keys and values, laid out per key-value head as [its query
    heads, key, value], as Megatron-LM does. ``rotary``: rotary position embedding (Su et al. 2021)
    in the convention of half the head against the other half.
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
    """Multi-head latent attention (DeepSeek-V2, 2024): keys and values of all heads from one vector
    of ``kv_rank`` and one rotary key of ``rope``.

    ``query_rank`` 0: queries straight from the hidden state. A head is ``nope`` + ``rope`` long for
    queries and keys, ``value`` for values.
    """

    heads: int
    kv_rank: int
    nope: int
    rope: int
    value: int
    query_rank: int = 0


class Experts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mixture of ``routed`` experts of width ``ffn``, ``chosen`` per token, and ``shared`` ones
    that every token goes through.

    ``groups``: experts in as many equal groups, of which a token's choice is limited to ``kept``,
    ranked by their best member or, ``top2``, by the sum of their two best. ``score``: gate
    function. ``normalized``: weights of the chosen sum to 1. ``scale``: they are multiplied by
    this. ``bias_rate``: a bias that only steers the choice is moved by this much per step against
    the load (Wang et al. 2024); 0: no such bias.

    ``auxiliary``: coefficient of the load balancing loss, taken over each group of tokens
    (``auxiliary_over`` "group": those of the batch; "sequence": each sequence): sum over experts of
    (routed / chosen) * share of tokens * mean score (Fedus et al. 2021, with sigmoid scores
    normalized first). ``z``: coefficient of the mean squared logsumexp of the router's logits (Zoph
    et al. 2022).
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
    """A decoder-only transformer, with norms before attention and feed-forward part.

    ``vocabulary``: number of token ids; ``rows``: of rows of the embedding where it is padded (0:
    the same). ``positions``: learned positions, 0 for none. ``dense_layers``: with experts, as many
    first layers have a dense feed-forward part of width ``ffn``. ``predicted``: multi-token
    prediction modules (DeepSeek-V3), each with the loss weight ``predicted_weight``.
    ``fused_gate``: gate and up projection are one weight, [gate; up].
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
        """Rows of the embedding and of the output projection."""
        return self.rows or self.vocabulary

    def is_mixture(self, layer: int) -> bool:
        """Whether layer number ``layer`` has experts."""
        return self.experts is not None and layer >= self.dense_layers

    def padded(self, multiple: int) -> Model:
        """The model with its embedding padded to a multiple of ``multiple`` rows, which are trained
        like the others, as Megatron-LM does.
        """
        return msgspec.structs.replace(self, rows=-(-self.vocabulary // multiple) * multiple)


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tokens of one step: ``sequences`` of ``length``; what is taken over a group of tokens is
    taken over each of ``groups`` equal runs of sequences.

    A framework that takes such a loss on every rank and micro-batch has micro-batches *
    data-parallel ranks groups.
    """

    sequences: int
    length: int
    groups: int = 1


class Optimizer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """AdamW (Loshchilov and Hutter 2019) at step number ``step``, after clipping to the global norm
    ``max_norm``. Numbers are rationals.
    """

    beta1: str = "9/10"
    beta2: str = "19/20"
    eps: str = "1/100000000"
    weight_decay: str = "1/10"
    max_norm: str = "1"
    step: int = 3


def check_model(model: Model, batch: Batch) -> None:
    """Raise PlanError for sizes that break a rule of the model or of its batch; it names the field,
    the rule and the value.
    """
    for place, holds, rule in (
        *_model_rules(model),
        *_attention_rules(model),
        *_expert_rules(model),
        *_batch_rules(model, batch),
    ):
        if not holds:
            raise PlanError(rule, place)


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
