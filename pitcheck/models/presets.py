"""Models by name, with the sizes that their authors published, and a small variant of each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from pitcheck.base.nearest import nearest
from pitcheck.errors import UsageError
from pitcheck.models.config import Attention, Experts, LatentAttention, Model


def _llama(size: str, layers: int, hidden: int, heads: int, ffn: int) -> Model:
    return Model(
        f"llama3-{size}", layers, hidden, 128256, ffn, Attention(heads, 8, hidden // heads)
    )


_GPT3 = Model(
    "gpt3-175b",
    layers=96,
    hidden=12288,
    vocabulary=50257,
    ffn=49152,
    attention=Attention(96, 96, 128, fused=True, bias=True, rotary=False),
    norm="layer",
    activation="gelu",
    bias=True,
    positions=2048,
    tied=True,
)

_MIXTRAL = Model(
    "mixtral-8x7b",
    layers=32,
    hidden=4096,
    vocabulary=32000,
    ffn=14336,
    attention=Attention(32, 8, 128),
    experts=Experts(8, 2, 14336, normalized=True, auxiliary="1/50", z="1/1000"),
)

_V2_LITE = Model(
    "deepseek-v2-lite-16b",
    layers=27,
    hidden=2048,
    vocabulary=102400,
    ffn=10944,
    attention=LatentAttention(16, 512, 128, 64, 128),
    experts=Experts(64, 6, 1408, shared=2, auxiliary="1/1000", auxiliary_over="sequence"),
    dense_layers=1,
    norm_eps="1/1000000",
)

_V2 = Model(
    "deepseek-v2-236b",
    layers=60,
    hidden=5120,
    vocabulary=102400,
    ffn=12288,
    attention=LatentAttention(128, 512, 128, 64, 128, query_rank=1536),
    experts=Experts(
        160,
        6,
        1536,
        shared=2,
        groups=8,
        kept=3,
        scale="16",
        auxiliary="3/1000",
        auxiliary_over="sequence",
    ),
    dense_layers=1,
    norm_eps="1/1000000",
)

_V3 = Model(
    "deepseek-v3-671b",
    layers=61,
    hidden=7168,
    vocabulary=129280,
    ffn=18432,
    attention=LatentAttention(128, 512, 128, 64, 128, query_rank=1536),
    experts=Experts(
        256,
        8,
        2048,
        shared=1,
        groups=8,
        kept=4,
        group_score="top2",
        score="sigmoid",
        normalized=True,
        scale="5/2",
        bias_rate="1/1000",
        auxiliary="1/10000",
        auxiliary_over="sequence",
    ),
    dense_layers=3,
    norm_eps="1/1000000",
    predicted=1,
)

_QWEN3 = Model(
    "qwen3-8b",
    layers=36,
    hidden=4096,
    vocabulary=151936,
    ffn=12288,
    attention=Attention(32, 8, 128, qk_norm="rms"),
    norm_eps="1/1000000",
)

_QWEN3_MOE = Model(
    "qwen3-30b-a3b",
    layers=48,
    hidden=2048,
    vocabulary=151936,
    ffn=6144,
    attention=Attention(32, 4, 128, qk_norm="rms"),
    experts=Experts(128, 8, 768, normalized=True, auxiliary="1/1000"),
    norm_eps="1/1000000",
)

_GPT_OSS = Model(
    "gpt-oss-20b",
    layers=24,
    hidden=2880,
    vocabulary=201088,
    ffn=2880,
    attention=Attention(64, 8, 64, bias=True, window=128, global_every=2, sinks=True),
    experts=Experts(32, 4, 2880, normalized=True, bias=True, router_bias=True, auxiliary="9/10"),
    activation="clamped-swiglu",
)

_LLAMA4 = Attention(
    40,
    8,
    128,
    rotary_pairs="interleaved",
    chunk=8192,
    global_every=4,
    global_rotary=False,
    query_floor=8192,
)

_LLAMA4_EXPERTS = Experts(16, 1, 8192, shared=1, score="sigmoid", scaled_input=True)

_SCOUT = Model(
    "llama4-scout",
    layers=48,
    hidden=5120,
    vocabulary=202048,
    ffn=16384,
    attention=replace(_LLAMA4, qk_norm="l2"),
    experts=_LLAMA4_EXPERTS,
)

_MAVERICK = Model(
    "llama4-maverick",
    layers=48,
    hidden=5120,
    vocabulary=202048,
    ffn=16384,
    attention=_LLAMA4,
    experts=replace(_LLAMA4_EXPERTS, routed=128),
    experts_every=2,
)

PRESETS: Mapping[str, Model] = MappingProxyType(
    {
        model.name: model
        for model in (
            _llama("8b", 32, 4096, 32, 14336),
            _llama("70b", 80, 8192, 64, 28672),
            _llama("405b", 126, 16384, 128, 53248),
            _GPT3,
            _MIXTRAL,
            _V2_LITE,
            _V2,
            _V3,
            _QWEN3,
            _QWEN3_MOE,
            _GPT_OSS,
            _SCOUT,
            _MAVERICK,
        )
    }
)
"""Every model by its name.

Sizes are those of the published configurations. What a paper leaves open (the order of GPT-3's
fused weight, Mixtral's router losses) follows Megatron-LM. Llama 4 is its language model.
"""

TINY = "-tiny"


def preset(name: str) -> Model:
    """Return the model called ``name``; with ``-tiny`` behind the name, its small variant.

    Raises UsageError for any other name.
    """
    model = PRESETS.get(name.removesuffix(TINY))
    if model is None:
        raise UsageError(
            f"no model is called {name!r}; known are {', '.join(PRESETS)}, each also with {TINY}"
            f"{nearest(name, [*PRESETS, *(known + TINY for known in PRESETS)])}"
        )
    return tiny(model) if name.endswith(TINY) else model


def tiny(model: Model) -> Model:
    """Return the same model with small numbers.

    Every choice is kept: grouped heads, ranks, groups of experts, dense layers and the others.
    """
    experts = model.experts
    return replace(
        model,
        name=model.name + TINY,
        layers=4,
        hidden=16,
        vocabulary=40,
        rows=0,
        ffn=24,
        attention=_tiny_attention(model.attention, model.hidden),
        experts=None if experts is None else _tiny_experts(experts),
        dense_layers=min(model.dense_layers, 2),
        positions=16 if model.positions else 0,
    )


def _tiny_attention(
    attention: Attention | LatentAttention, hidden: int
) -> Attention | LatentAttention:
    """Return attention with small numbers; heads are together as wide as the model if they were."""
    if isinstance(attention, LatentAttention):
        return replace(
            attention,
            heads=4,
            kv_rank=6,
            nope=4,
            rope=2,
            value=6,
            query_rank=10 if attention.query_rank else 0,
        )
    return replace(
        attention,
        heads=4,
        kv_heads=4 if attention.kv_heads == attention.heads else 2,
        head_dim=4 if attention.heads * attention.head_dim == hidden else 6,
        window=min(attention.window, 3),
        chunk=min(attention.chunk, 4),
        query_floor=min(attention.query_floor, 3),
    )


def _tiny_experts(experts: Experts) -> Experts:
    groups = min(experts.groups, 4)
    return replace(
        experts,
        routed=8,
        chosen=min(experts.chosen, 3),
        ffn=12,
        groups=groups,
        kept=2 if groups > 1 else 1,
    )
