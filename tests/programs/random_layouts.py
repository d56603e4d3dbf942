"""Random models, batches and layouts that the rules accept, by seed."""

from __future__ import annotations

import random
from typing import Any

from msgspec.structs import replace
from programs.program_cases import Case

from pitcheck.errors import PlanError
from pitcheck.models.config import Attention, Batch, Experts, Model
from pitcheck.models.presets import preset
from pitcheck.programs.layout import Layout, check_layout

SMALL = (1, 12)
LARGE = (64, 512)
MOST_SHARDS = 16
"""Over more ranks nothing is sharded, since most shards of so small tensors would be
padding alone.
"""
SHAPES = ((2, 1), (4, 1), (4, 2), (4, 4), (8, 2), (8, 4), (6, 3))
"""Numbers of query heads and of key-value heads."""


def random_case(seed: int, ranks: tuple[int, int] = SMALL, layers: int = 5) -> Case:
    """A model of up to ``layers`` layers and a layout on at least ``ranks[0]`` and at most
    ``ranks[1]`` ranks, the same for the same arguments.
    """
    draw = random.Random(f"layout {seed} {ranks} {layers}")
    while True:
        model = _model(draw, layers)
        layout = _layout(draw, model, ranks[1])
        if not ranks[0] <= layout.ranks <= ranks[1]:
            continue
        model = (
            model.padded(layout.tp * draw.choice((1, 2))) if model.vocabulary % layout.tp else model
        )
        batch = _batch(draw, layout)
        try:
            check_layout(model, batch, layout)
        except PlanError:
            continue
        return Case(model, batch, layout)


def _model(draw: random.Random, most: int) -> Model:
    layers = draw.choice([n for n in (1, 2, 2, 3, 4, 5) if n <= most])
    heads, shared = draw.choice(SHAPES)
    family = draw.random()
    if family < 0.3:
        return _gpt(draw, layers, heads)
    if family < 0.6:
        return _mixture(draw, layers)
    fused = draw.random() < 0.3
    attention = Attention(heads, shared, draw.choice((2, 4)), fused=fused, bias=draw.random() < 0.3)
    return replace(
        preset("llama3-8b-tiny"),
        layers=layers,
        attention=_published(draw, attention, layers),
        vocabulary=draw.choice((40, 41)),
        fused_gate=draw.random() < 0.3,
        tied=draw.random() < 0.2,
    )


def _published(draw: random.Random, attention: Attention, layers: int) -> Attention:
    """Attention with some of the choices of Qwen3, gpt-oss and Llama 4."""
    fields: dict[str, Any] = {
        "qk_norm": draw.choice(("none", "none", "rms", "l2")),
        "rotary_pairs": draw.choice(("half", "interleaved")),
        "sinks": draw.random() < 0.2,
    }
    local = draw.choice(("", "", "window", "chunk"))
    if local:
        fields[local] = draw.choice((2, 3, 4))
        fields["global_every"] = draw.choice([0, *range(2, layers + 1)])
    if fields.get("global_every") and draw.random() < 0.6:
        fields |= {"global_rotary": False, "query_floor": draw.choice((0, 2, 3))}
    return replace(attention, **fields)


def _mixture(draw: random.Random, layers: int) -> Model:
    """Experts behind attention with key-value heads, or behind latent attention with some dense
    layers first.
    """
    base = preset(
        draw.choice(
            (
                "mixtral-8x7b-tiny",
                "deepseek-v2-lite-16b-tiny",
                "deepseek-v2-236b-tiny",
                "deepseek-v3-671b-tiny",
            )
        )
    )
    dense, every = min(base.dense_layers, layers - 1), draw.choice((1, 1, 2))
    kept = any((number + 1) % every == 0 for number in range(dense, layers))
    attention = base.attention
    return replace(
        base,
        layers=layers,
        dense_layers=dense,
        experts_every=every if kept else 1,
        attention=_published(draw, attention, layers)
        if isinstance(attention, Attention)
        else attention,
        experts=None if base.experts is None else _routed(draw, base.experts),
        vocabulary=draw.choice((40, 41)),
    )


def _routed(draw: random.Random, experts: Experts) -> Experts:
    """Experts with biases (gpt-oss) or scaled inputs (Llama 4), or neither."""
    choice = draw.choice(("", "", "bias", "scaled_input"))
    return replace(experts, router_bias=draw.random() < 0.2, **({choice: True} if choice else {}))


def _gpt(draw: random.Random, layers: int, heads: int) -> Model:
    base = preset("gpt3-175b-tiny")
    bias = draw.random() < 0.8
    attention = Attention(
        heads, heads, draw.choice((2, 3, 4)), fused=draw.random() < 0.6, bias=bias, rotary=False
    )
    return replace(
        base,
        layers=layers,
        vocabulary=39,
        attention=attention,
        bias=bias,
        positions=48,
        tied=draw.random() < 0.8,
    )


def _layout(draw: random.Random, model: Model, most: int) -> Layout:
    """A layout that fits the model more often than not."""
    sizes = {"dp": (1, 2, 3, 4), "tp": (1, 2, 3, 4, 8), "pp": (1, 2, 3, 4), "cp": (1, 1, 2, 3, 4)}
    many = most > SMALL[1]
    if many:
        sizes["dp"] = (2, 4, 8, 16, 32, 64, 24, 128) if model.experts is None else (2, 4, 8)
    fields: dict[str, Any] = {name: draw.choice(values) for name, values in sizes.items()}
    if fields["dp"] > 1:
        fields["zero"] = draw.choice((0, 1, 1, 2, 2, 3, 3)) if fields["dp"] <= MOST_SHARDS else 0
        halves = [n for n in range(2, fields["dp"]) if fields["dp"] % n == 0]
        if fields["zero"] == 3 and halves and draw.random() < 0.5:
            fields["replicas"] = draw.choice(halves)
        fields["bucket"] = draw.choice(
            (1, 150, 300, 500, 1000, 3000) if many else (1, 150, 300, 500, 1000, 40_000_000)
        )
    fields["microbatches"] = draw.choice((1, 2, 3, 4, 6))
    if fields["pp"] > 1:
        fields["schedule"] = draw.choice(
            ("gpipe", "1f1b", "interleaved", "interleaved", "zero-bubble")
        )
        if fields["schedule"] == "interleaved":
            fields |= {"virtual": 2, "microbatches": fields["pp"] * draw.choice((1, 2))}
    if fields["cp"] > 1:
        fields["context"] = draw.choice(("ring", "allgather", "ulysses"))
        fields["zigzag"] = draw.choice((None, None, True, False))
    if model.experts is not None:
        fields |= {"ep": draw.choice((1, 2, 4, 8)), "etp": draw.choice((1, 1, 2))}
    fields["sequence_parallel"] = fields["tp"] > 1 and draw.random() < 0.5
    fields["recompute"] = draw.random() < 0.3
    return Layout(**fields)


def _batch(draw: random.Random, layout: Layout) -> Batch:
    parts = layout.dp * layout.microbatches
    ways = layout.tp if layout.sequence_parallel else 1
    length = layout.cp * ways * (2 if layout.both_ends else 1)
    while length < 6:
        length *= 2
    return Batch(parts * draw.choice((1, 2)), length, groups=parts)
