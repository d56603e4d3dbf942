"""Configurations of models: sizes and choices as plain data.

One family of transformers covers all models; each difference between them is a field. A field's
meaning and rule stand beside it, and ``docs/model-reference.md`` is made of them.
"""

from __future__ import annotations

from typing import Annotated
from typing import Literal as OneOf

import msgspec

from pitcheck.models.described import means

Norm = OneOf["rms", "layer"]
Activation = OneOf["swiglu", "gelu", "clamped-swiglu"]
HeadNorm = OneOf["none", "rms", "l2"]
RotaryPairs = OneOf["half", "interleaved"]

GATE_ALPHA = "851/500"
GATE_LIMIT = "7"
PREDICTED_WEIGHT = "3/10"
QUERY_SCALE = "1/10"


class Attention(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="heads", tag_field="kind"
):
    """Multi-head attention, or grouped-query attention if ``kv_heads`` < ``heads`` (Ainslie 2023).

    With ``window`` or ``chunk`` layers attend locally, but for those that ``global_every`` names.
    """

    heads: Annotated[int, means("Query heads.", "divisible by `tp`")]
    kv_heads: Annotated[
        int, means("Key-value heads.", "divides `heads`; divides `tp` or is divisible by it")
    ]
    head_dim: Annotated[int, means("Elements of a head.", "even with `rotary`")]
    fused: Annotated[
        bool,
        means(
            "One weight for queries, keys and values, laid out per key-value head as [its query "
            "heads, key, value], as in Megatron-LM.",
            "then `kv_heads` is divisible by `tp`",
        ),
    ] = False
    bias: Annotated[bool, means("Biases on queries, keys, values and output.")] = False
    rotary: Annotated[
        bool,
        means("Rotary position embedding (Su et al. 2021). Cosines and sines are inputs."),
    ] = True
    rotary_pairs: Annotated[
        RotaryPairs,
        means(
            'The elements that are rotated together. "half": one half of a head with the other. '
            '"interleaved": neighbours (Llama 4).',
            '"interleaved" needs `rotary`',
        ),
    ] = "half"
    qk_norm: Annotated[
        HeadNorm,
        means(
            'A norm over every head of queries and keys. "rms": an RMS norm before rotary '
            "embedding, with one learned weight per element of a head that all heads share "
            '(Qwen3). "l2": x / sqrt(mean x^2 + eps) after rotary embedding, without a weight, in '
            "layers with rotary embedding alone (Llama 4).",
            '"l2" needs `rotary`',
        ),
    ] = "none"
    window: Annotated[
        int,
        means(
            "Token i of a local layer attends to tokens i - window + 1 to i. 0: no window.",
            "at least 0; not together with `chunk`",
        ),
    ] = 0
    chunk: Annotated[
        int,
        means(
            "A token of a local layer attends to earlier tokens of its chunk of so many tokens, "
            "counted from the start of the sequence. 0: no chunks.",
            "at least 0; not together with `window`",
        ),
    ] = 0
    global_every: Annotated[
        int,
        means(
            "Every so many-th layer, counted from 1, attends to all earlier tokens (2 in gpt-oss, "
            "4 in Llama 4). 0: all layers are local if there is a window or a chunk.",
            "0, or at least 2 with `window` or `chunk`; 0 with multi-token prediction",
        ),
    ] = 0
    global_rotary: Annotated[
        bool,
        means(
            "False: layers that `global_every` names have no rotary embedding (NoPE, Llama 4).",
            "false needs `rotary` and `global_every`",
        ),
    ] = True
    query_floor: Annotated[
        int,
        means(
            "In layers without rotary embedding the query at place i of a sequence, counted from "
            "0, is multiplied by 1 + `query_scale` * log(1 + floor((i + 1) / `query_floor`)) "
            "(Llama 4, after Nakanishi 2025). 0: it is not.",
            "at least 0; above 0 needs layers without rotary embedding",
        ),
    ] = 0
    query_scale: Annotated[
        str,
        means("The factor of that logarithm, a rational.", "above 0; only with `query_floor`"),
    ] = QUERY_SCALE
    sinks: Annotated[
        bool,
        means(
            "A learned number per head, an attention sink, joins the softmax as one more score "
            "that leads to no value (gpt-oss)."
        ),
    ] = False

    @property
    def is_local(self) -> bool:
        """True if some layers attend to a window or a chunk."""
        return bool(self.window or self.chunk)


class LatentAttention(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="latent", tag_field="kind"
):
    """Multi-head latent attention (DeepSeek-V2, 2024).

    The keys and values of all heads come from one latent vector and one rotary key. A head has
    ``nope`` + ``rope`` elements for queries and keys, and ``value`` for values.
    """

    heads: Annotated[int, means("Heads.", "divisible by `tp`")]
    kv_rank: Annotated[int, means("Elements of the latent vector of keys and values.")]
    nope: Annotated[int, means("Elements of a query or key without rotary embedding.")]
    rope: Annotated[int, means("Elements of a query or key with rotary embedding.", "even")]
    value: Annotated[int, means("Elements of a value.")]
    query_rank: Annotated[
        int,
        means("Elements of the latent vector of queries. 0: they come from the hidden state."),
    ] = 0


class Experts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mixture of experts, a part of which every token chooses.

    The balance loss is the sum over experts of (routed / chosen) * share of tokens * mean score
    (Fedus et al. 2021; sigmoid scores are normalized first).
    """

    routed: Annotated[int, means("Experts to choose from.", "divisible by `ep`")]
    chosen: Annotated[int, means("Experts that a token chooses.", "at most those in kept groups")]
    ffn: Annotated[int, means("The width of an expert.", "divisible by `etp`")]
    shared: Annotated[
        int,
        means(
            "Experts that every token goes through: one feed-forward part, shared * ffn wide.",
            "shared * ffn is divisible by `tp`",
        ),
    ] = 0
    groups: Annotated[int, means("Equal groups of experts.", "divides `routed`")] = 1
    kept: Annotated[int, means("Groups within which a token chooses.", "from 1 to `groups`")] = 1
    group_score: Annotated[
        OneOf["max", "top2"],
        means(
            "How groups are ranked: by their best member or by the sum of their two best.",
            '"top2" needs groups of at least 2, of which not all are kept',
        ),
    ] = "max"
    score: Annotated[OneOf["softmax", "sigmoid"], means("The gate function.")] = "softmax"
    normalized: Annotated[bool, means("The weights of the chosen experts sum to 1.")] = False
    scale: Annotated[str, means("A factor on the weights, a rational.")] = "1"
    bias: Annotated[
        bool,
        means(
            "Biases on the gate, up and down projections of every expert (gpt-oss).",
            "not together with `scaled_input`",
        ),
    ] = False
    router_bias: Annotated[bool, means("A learned bias on the router's logits (gpt-oss).")] = False
    scaled_input: Annotated[
        bool,
        means(
            "The weight of a chosen expert multiplies its input, not its output (Llama 4).",
            "not together with `bias`",
        ),
    ] = False
    bias_rate: Annotated[
        str,
        means(
            "The step by which a bias that only steers the choice moves against the load (Wang et "
            "al. 2024), a rational. 0: no such bias."
        ),
    ] = "0"
    auxiliary: Annotated[
        str, means("The coefficient of the load balancing loss, a rational. 0: without.")
    ] = "0"
    auxiliary_over: Annotated[
        OneOf["group", "sequence"],
        means(
            "The tokens over which the balance loss is taken: each group of the batch, or each "
            "sequence."
        ),
    ] = "group"
    z: Annotated[
        str,
        means(
            "The coefficient of the mean squared logsumexp of the router's logits (Zoph et al. "
            "2022), a rational. 0: without."
        ),
    ] = "0"


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decoder-only transformer with norms before attention and feed-forward part."""

    name: Annotated[str, means("The name of the model, for messages.")]
    layers: Annotated[int, means("Layers.", "at least 1 and `pp` * `virtual`")]
    hidden: Annotated[int, means("The width of the residual stream.", "at least 1")]
    vocabulary: Annotated[int, means("Token ids.", "at least 1; divisible by `tp` without `rows`")]
    ffn: Annotated[
        int, means("The width of dense feed-forward parts.", "at least 1; divisible by `tp`")
    ]
    attention: Annotated[
        Attention | LatentAttention,
        means('The attention of all layers: `kind = "heads"` or `kind = "latent"`.'),
    ]
    experts: Annotated[
        Experts | None, means("The mixture of experts; left out: all layers are dense.")
    ] = None
    dense_layers: Annotated[
        int,
        means(
            "The number of first layers with a dense feed-forward part in a model with experts.",
            "from 0 to `layers`; 0 without experts",
        ),
    ] = 0
    experts_every: Annotated[
        int,
        means(
            "Every so many-th layer, counted from 1, has experts (2 in Llama 4 Maverick); others "
            "are dense.",
            "at least 1; 1 without experts",
        ),
    ] = 1
    rows: Annotated[
        int,
        means(
            "The rows of a padded embedding, trained like the others. 0: not padded.",
            "0 or at least `vocabulary`; divisible by `tp`",
        ),
    ] = 0
    norm: Annotated[Norm, means("RMS norm, or layer norm with a bias.")] = "rms"
    norm_eps: Annotated[str, means("The eps of all norms, a rational.")] = "1/100000"
    activation: Annotated[
        Activation,
        means(
            'The middle of a feed-forward part, of experts too. "swiglu": silu(gate) * up. "gelu": '
            'gelu(up), by tanh, without a gate. "clamped-swiglu" (gpt-oss): g * sigmoid(alpha * g) '
            "* (u + 1), where g is the gate, at most the limit, and u is up, clamped to +- the "
            "limit.",
            '"gelu" not with experts',
        ),
    ] = "swiglu"
    gate_alpha: Annotated[
        str,
        means("alpha of the clamped activation, a rational.", 'only with "clamped-swiglu"'),
    ] = GATE_ALPHA
    gate_limit: Annotated[
        str,
        means(
            "The limit of the clamped activation, a rational.",
            'above 0; only with "clamped-swiglu"',
        ),
    ] = GATE_LIMIT
    bias: Annotated[
        bool,
        means("Biases on dense feed-forward parts, shared experts among them."),
    ] = False
    fused_gate: Annotated[
        bool,
        means(
            "Gate and up projection of dense feed-forward parts are one weight, [gate; up].",
            'not with "gelu"',
        ),
    ] = False
    positions: Annotated[
        int, means("Learned positions. 0: none.", "0 or at least `batch.length`")
    ] = 0
    tied: Annotated[bool, means("Embedding and output projection are one parameter.")] = False
    predicted: Annotated[int, means("Multi-token prediction modules (DeepSeek-V3).", "0 or 1")] = 0
    predicted_weight: Annotated[
        str, means("The weight of their loss, a rational.", "only with `predicted`")
    ] = PREDICTED_WEIGHT

    @property
    def embedding_rows(self) -> int:
        """The rows of the embedding and of the output projection."""
        return self.rows or self.vocabulary

    def is_mixture(self, layer: int) -> bool:
        """Return True if layer number ``layer``, counted from 0, has experts."""
        return (
            self.experts is not None
            and layer >= self.dense_layers
            and (layer + 1) % self.experts_every == 0
        )

    @property
    def has_dense_layers(self) -> bool:
        """True if a layer has a dense feed-forward part."""
        return not all(self.is_mixture(layer) for layer in range(self.layers))

    def is_local(self, layer: int | None) -> bool:
        """Return True if a layer attends to a window or a chunk.

        ``layer`` counts from 0; None is the layer of multi-token prediction.
        """
        attention = self.attention
        if not isinstance(attention, Attention) or not attention.is_local:
            return False
        return (
            layer is None or not attention.global_every or not _every(layer, attention.global_every)
        )

    def is_rotary(self, layer: int | None) -> bool:
        """Return True if a layer has rotary embedding; ``layer`` as of ``is_local``."""
        attention = self.attention
        if not isinstance(attention, Attention):
            return True
        if layer is None or attention.global_rotary or not attention.global_every:
            return attention.rotary
        return attention.rotary and not _every(layer, attention.global_every)

    def scales_queries(self, layer: int | None) -> bool:
        """Return True if a layer scales queries by their place; ``layer`` as of ``is_local``."""
        attention = self.attention
        return (
            isinstance(attention, Attention)
            and attention.query_floor > 0
            and not self.is_rotary(layer)
        )

    def padded(self, multiple: int) -> Model:
        """Return the model with its embedding padded to a multiple of ``multiple`` rows.

        The added rows are trained like the others, as in Megatron-LM.
        """
        return msgspec.structs.replace(self, rows=-(-self.vocabulary // multiple) * multiple)


def _every(layer: int, count: int) -> bool:
    """Return True for every ``count``-th layer, counted from 1; ``layer`` counts from 0."""
    return (layer + 1) % count == 0


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tokens of one step."""

    sequences: Annotated[
        int,
        means(
            "Sequences of one step, over all ranks and micro-batches.",
            "divisible by `dp` * `microbatches`",
        ),
    ]
    length: Annotated[int, means("Tokens of a sequence.", "divisible as `cp` and `tp` cut it")]
    groups: Annotated[
        int,
        means(
            "Equal runs of sequences over each of which losses of a group are taken. Left out in a "
            "file: `dp` * `microbatches`, as frameworks that take them on every rank and "
            "micro-batch have.",
            "divides `sequences`",
        ),
    ] = 1


class Optimizer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """AdamW (Loshchilov and Hutter 2019) at one step, after clipping. Numbers are rationals."""

    beta1: Annotated[str, means("The decay of the first moment.")] = "9/10"
    beta2: Annotated[str, means("The decay of the second moment.")] = "19/20"
    eps: Annotated[str, means("The number added to the root of the second moment.")] = "1/100000000"
    weight_decay: Annotated[
        str, means("The factor of decoupled decay; of norms, biases and sinks: none.")
    ] = "1/10"
    max_norm: Annotated[str, means("The norm to which gradients are clipped.")] = "1"
    step: Annotated[int, means("The number of the step, from 1.")] = 3
