"""The rules that sizes and choices of a model and its batch obey."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import chain

from pitcheck.errors import ImpossibleError, RangeError
from pitcheck.models.config import (
    GATE_ALPHA,
    GATE_LIMIT,
    PREDICTED_WEIGHT,
    QUERY_SCALE,
    Attention,
    Batch,
    Model,
)

Rule = tuple[str, bool, str]
"""(field, True if the rule holds, the rule with the values)."""


class Range(str):
    """The text of a rule about one field alone: no other field can mend a value that breaks it."""

    __slots__ = ()


def broken(rule: str, place: str) -> ImpossibleError:
    """Return the error for a broken rule: a RangeError if the rule is about one field alone."""
    return (RangeError if isinstance(rule, Range) else ImpossibleError)(rule, place)


def check_model(model: Model, batch: Batch) -> None:
    """Raise ImpossibleError for sizes that break a rule of the model or of its batch.

    The error names the field, the rule and the value.
    """
    for place, holds, rule in chain(
        _rational_rules(model),
        _model_rules(model),
        _attention_rules(model),
        _expert_rules(model),
        _batch_rules(model, batch),
    ):
        if not holds:
            raise broken(rule, place)


def _rational_rules(model: Model) -> Iterator[Rule]:
    """Yield the rules that later ones rely on: texts that stand for numbers do."""
    given = {
        f"model.{field}": getattr(model, field)
        for field in ("norm_eps", "gate_alpha", "gate_limit", "predicted_weight")
    }
    if model.experts is not None:
        given |= {
            f"model.experts.{field}": getattr(model.experts, field)
            for field in ("scale", "bias_rate", "auxiliary", "z")
        }
    if isinstance(model.attention, Attention):
        given["model.attention.query_scale"] = model.attention.query_scale
    for place, text in given.items():
        yield place, _is_rational(text), Range(f"must be a rational such as 1/1000, not {text!r}")


def _is_rational(text: str) -> bool:
    try:
        Fraction(text)
    except (ValueError, ZeroDivisionError):
        return False
    return True


def _model_rules(model: Model) -> Iterator[Rule]:
    for field in ("layers", "hidden", "vocabulary", "ffn"):
        size = getattr(model, field)
        yield f"model.{field}", size >= 1, Range(f"must be at least 1, not {size}")
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
        "model.dense_layers",
        model.dense_layers == 0 or model.experts is not None,
        f"{model.dense_layers} layers without experts, in a model that has none: leave it out",
    )
    yield (
        "model.experts",
        model.experts is None
        or model.predicted > 0
        or any(map(model.is_mixture, range(model.layers))),
        f"no layer of {model.layers} has experts, with experts_every {model.experts_every} and "
        f"{model.dense_layers} dense layers",
    )
    dense = model.has_dense_layers or (model.experts is not None and model.experts.shared > 0)
    for field in ("bias", "fused_gate"):
        yield (
            f"model.{field}",
            dense or not getattr(model, field),
            "is about dense feed-forward parts, and no layer has one; experts have other fields",
        )
    yield "model.norm_eps", Fraction(model.norm_eps) >= 0, f"is {model.norm_eps}, below 0"
    yield (
        "model.experts_every",
        model.experts_every >= 1 and (model.experts_every == 1 or model.experts is not None),
        f"must be at least 1, and 1 without experts, not {model.experts_every}",
    )
    yield from _activation_rules(model)
    yield (
        "model.predicted",
        model.predicted in (0, 1),
        f"one multi-token prediction module is known, not {model.predicted}",
    )
    yield (
        "model.predicted_weight",
        model.predicted > 0 or Fraction(model.predicted_weight) == Fraction(PREDICTED_WEIGHT),
        f"{model.predicted_weight} weighs the loss of multi-token prediction, and predicted is 0",
    )


def _activation_rules(model: Model) -> Iterator[Rule]:
    yield (
        "model.activation",
        model.activation != "gelu" or model.experts is None,
        "experts have a gate, which gelu has not: use swiglu or clamped-swiglu",
    )
    yield (
        "model.fused_gate",
        model.activation != "gelu" or not model.fused_gate,
        "fuses the gate with the up projection, and gelu has no gate",
    )
    for field, default in (("gate_alpha", GATE_ALPHA), ("gate_limit", GATE_LIMIT)):
        given = getattr(model, field)
        yield (
            f"model.{field}",
            Fraction(given) == Fraction(default) or model.activation == "clamped-swiglu",
            f"{given} needs the activation clamped-swiglu, not {model.activation}",
        )
    limit = model.gate_limit
    yield "model.gate_limit", Fraction(limit) > 0, Range(f"must be above 0, not {limit}")


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
        for field in ("heads", "kv_heads", "head_dim"):
            size = getattr(attention, field)
            yield f"model.attention.{field}", size >= 1, Range(f"must be at least 1, not {size}")
        yield (
            "model.attention.head_dim",
            attention.head_dim % 2 == 0 or not attention.rotary,
            f"rotary pairs need an even size, not {attention.head_dim}",
        )
        yield from _local_rules(model, attention)
    else:
        yield (
            "model.attention.rope",
            attention.rope % 2 == 0,
            f"rotary pairs need an even size, not {attention.rope}",
        )


def _local_rules(model: Model, attention: Attention) -> Iterator[Rule]:
    place, every = "model.attention", attention.global_every
    for field in ("window", "chunk"):
        size = getattr(attention, field)
        yield f"{place}.{field}", size >= 0, Range(f"must be at least 0, not {size}")
    yield (
        f"{place}.chunk",
        not (attention.window and attention.chunk),
        f"a local layer has a window ({attention.window}) or a chunk ({attention.chunk}), not both",
    )
    yield (
        f"{place}.global_every",
        every == 0 or (2 <= every <= model.layers and attention.is_local),
        f"must be 0, or 2 to {model.layers} (the layers) with a window or a chunk, not {every}",
    )
    yield (
        f"{place}.global_every",
        not every or not model.predicted,
        "no published model says whether the layer of multi-token prediction is local: use 0",
    )
    yield (
        f"{place}.global_rotary",
        attention.global_rotary or (attention.rotary and every > 0),
        "leaves out the rotary embedding of every global layer: it needs rotary and global_every",
    )
    yield (
        f"{place}.rotary_pairs",
        attention.rotary_pairs == "half" or attention.rotary,
        f"{attention.rotary_pairs} is about rotary embedding, and the model has none",
    )
    yield from _query_rules(model, attention)
    yield (
        f"{place}.qk_norm",
        attention.qk_norm != "l2" or attention.rotary,
        "l2 is a norm of layers with rotary embedding, and the model has none",
    )


def _query_rules(model: Model, attention: Attention) -> Iterator[Rule]:
    """Yield the rules of the factors by which queries grow along a sequence."""
    place, floor, scale = "model.attention", attention.query_floor, attention.query_scale
    yield f"{place}.query_floor", floor >= 0, Range(f"must be at least 0, not {floor}")
    yield (
        f"{place}.query_floor",
        floor <= 0 or any(map(model.scales_queries, range(model.layers))),
        f"{floor} scales queries of layers without rotary embedding, and the model has none",
    )
    yield (
        f"{place}.query_scale",
        floor > 0 or Fraction(scale) == Fraction(QUERY_SCALE),
        f"{scale} needs query_floor above 0",
    )
    yield f"{place}.query_scale", Fraction(scale) > 0, Range(f"must be above 0, not {scale}")


def _expert_rules(model: Model) -> Iterator[Rule]:
    experts = model.experts
    if experts is None:
        return
    for field, least in (("routed", 1), ("chosen", 1), ("ffn", 1), ("groups", 1), ("shared", 0)):
        size = getattr(experts, field)
        yield (
            f"model.experts.{field}",
            size >= least,
            Range(f"must be at least {least}, not {size}"),
        )
    yield (
        "model.experts.groups",
        experts.groups < 1 or experts.routed % experts.groups == 0,
        f"{experts.routed} experts cannot form {experts.groups} equal groups",
    )
    yield (
        "model.experts.kept",
        1 <= experts.kept <= experts.groups,
        f"{experts.kept} of {experts.groups} groups cannot be kept",
    )
    eligible = experts.kept * (experts.routed // max(experts.groups, 1))
    yield (
        "model.experts.chosen",
        1 <= experts.chosen <= eligible,
        f"{experts.chosen} experts are chosen of {eligible} in the groups kept",
    )
    yield (
        "model.experts.scaled_input",
        not (experts.scaled_input and experts.bias),
        "an expert with biases does not give 0 for the input 0 of a token that did not choose it",
    )
    yield (
        "model.experts.group_score",
        experts.group_score == "max" or experts.kept < experts.groups,
        f"{experts.group_score} ranks groups, and all {experts.groups} of them are kept",
    )
    pairs = (
        experts.group_score != "top2" or experts.groups == 1 or experts.routed >= 2 * experts.groups
    )
    yield (
        "model.experts.group_score",
        pairs,
        f"groups of {experts.routed // max(experts.groups, 1)} have no two best members",
    )


def _batch_rules(model: Model, batch: Batch) -> Iterator[Rule]:
    for field in ("sequences", "length", "groups"):
        size = getattr(batch, field)
        yield f"batch.{field}", size >= 1, Range(f"must be at least 1, not {size}")
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
