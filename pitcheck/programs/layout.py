"""The layout of a training step over ranks, and the rules for what frameworks can run."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated
from typing import Literal as OneOf

import msgspec

from pitcheck.models.config import Attention, Batch, Model
from pitcheck.models.described import means
from pitcheck.models.rules import Range, Rule, broken, check_model
from pitcheck.programs.groups import cut_at, ends, kinds

PipelineSchedule = OneOf["gpipe", "1f1b", "interleaved", "zero-bubble"]
ContextParallel = OneOf["ring", "allgather", "ulysses"]


class Layout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sizes of the kinds of parallelism, and how each of them works.

    The first and the last stage share a tied embedding.

    Ranks are numbered with ``pp`` outermost, then ``dp``, ``cp``, ``tp``.

    Counted from the innermost rank, ``etp`` consecutive ranks share an expert and ``etp`` * ``ep``
    have all experts, whatever other kinds of parallelism they belong to (Liu et al. 2025, as
    Megatron-LM folds them). Ranks with the same experts are expert-data parallel.
    """

    dp: Annotated[int, means("Data-parallel ranks.", "at least 1")] = 1
    tp: Annotated[
        int,
        means(
            "Tensor-parallel ranks (Shoeybi et al. 2019).",
            "divides heads, widths and the rows of the embedding",
        ),
    ] = 1
    pp: Annotated[int, means("Pipeline ranks.", "`pp` * `virtual` is at most `layers`")] = 1
    cp: Annotated[
        int,
        means(
            "Context-parallel ranks, over which a sequence is cut.",
            "divides the length, in zig-zag order twice",
        ),
    ] = 1
    ep: Annotated[
        int,
        means(
            "The ranks of a stage over which experts are spread.",
            "1 without experts; `ep` * `etp` divides `dp` * `cp` * `tp`; 1 if `tp` > 1 without "
            "`sequence_parallel`",
        ),
    ] = 1
    etp: Annotated[
        int,
        means(
            "The ranks over which the width of each expert is cut.",
            "1 without experts; divides the width of an expert",
        ),
    ] = 1
    microbatches: Annotated[
        int,
        means(
            "Micro-batches per step and data-parallel rank.",
            "`dp` * `microbatches` divides `sequences`; divisible by `pp` if interleaved",
        ),
    ] = 1
    sequence_parallel: Annotated[
        bool,
        means(
            "Activations between tensor-parallel regions are cut along the sequence over `tp` "
            "(Korthikanti et al. 2022).",
            "no effect with `tp` 1",
        ),
    ] = False
    schedule: Annotated[
        PipelineSchedule,
        means(
            'The order of forward and backward passes of a pipeline. "interleaved" has `virtual` '
            'stages per rank (Narayanan et al. 2021), "zero-bubble" computes gradients of weights '
            "separately (Qi et al. 2023).",
            '"interleaved" needs `pp` and `virtual` of at least 2',
        ),
    ] = "1f1b"
    virtual: Annotated[
        int, means("Stages per pipeline rank.", 'above 1 with "interleaved" alone')
    ] = 1
    zero: Annotated[
        int,
        means(
            "The stage of ZeRO, which shards over `dp` (Rajbhandari et al. 2020): 1 optimizer "
            "state, 2 also gradients, 3 also parameters (FSDP).",
            "from 0 to 3; no effect with `dp` 1",
        ),
    ] = 0
    replicas: Annotated[
        int,
        means(
            "Equal parts of `dp`: parameters are sharded within each, and gradients are summed "
            "over them (HSDP).",
            "divides `dp` and is less; above 1 with `zero` 3 alone",
        ),
    ] = 1
    bucket: Annotated[
        int,
        means(
            "Elements that close a flat buffer of gradients, with `zero` 1 and 2.",
            "at least 1; no effect with other `zero`",
        ),
    ] = 40_000_000
    flat_buckets: Annotated[
        bool,
        means(
            "Cut such a buffer, and its moments, evenly over `dp` at any element, instead of "
            "cutting every parameter in it.",
            "with `zero` 1 and 2 alone; not with experts; no effect with `dp` 1",
        ),
    ] = False
    context: Annotated[
        ContextParallel,
        means(
            "How attention sees the keys and values of other `cp` ranks.", "no effect with `cp` 1"
        ),
    ] = "ring"
    zigzag: Annotated[
        bool | None,
        means(
            "Each context-parallel rank has an early and a late part of a sequence. Left out: in a "
            "ring only.",
            "no effect with `cp` 1",
        ),
    ] = None
    recompute: Annotated[bool, means("Layers are computed again in the backward pass.")] = False

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.pp * self.dp * self.cp * self.tp

    @property
    def stages(self) -> int:
        """The number of pipeline stages, virtual ones counted."""
        return self.pp * self.virtual

    @property
    def both_ends(self) -> bool:
        """True if a context-parallel rank has an early and a late part of each sequence."""
        return self.cp > 1 and (self.context == "ring" if self.zigzag is None else self.zigzag)


def check_layout(model: Model, batch: Batch, layout: Layout) -> None:
    """Raise ImpossibleError for a layout that cannot run ``model`` on ``batch``.

    The error names the field, the rule and the value. Options that cut over an axis of one rank
    are accepted: ``without_idle_options`` leaves them out.
    """
    check_model(model, batch)
    for place, holds, rule in _rules(model, batch, layout):
        if not holds:
            raise broken(rule, f"layout.{place}")


def _rules(model: Model, batch: Batch, layout: Layout) -> Iterator[Rule]:
    sizes = ("dp", "tp", "pp", "cp", "ep", "etp", "microbatches", "virtual", "replicas", "bucket")
    for field in sizes:
        size = getattr(layout, field)
        yield field, size >= 1, Range(f"must be at least 1, not {size}")
    yield from _batch_rules(batch, layout)
    yield from _tensor_rules(model, batch, layout)
    yield from _context_rules(model, batch, layout)
    yield from _pipeline_rules(model, layout)
    yield from _sharding_rules(model, layout)
    yield from _expert_rules(model, batch, layout)


def _batch_rules(batch: Batch, layout: Layout) -> Iterator[Rule]:
    parts = layout.dp * layout.microbatches
    rule = (
        f"{batch.sequences} sequences cannot be cut evenly into {parts} = dp {layout.dp} * "
        f"microbatches {layout.microbatches}"
    )
    yield "microbatches", batch.sequences % parts == 0, rule


def _tensor_rules(model: Model, batch: Batch, layout: Layout) -> Iterator[Rule]:
    tp, attention = layout.tp, model.attention
    yield (
        "tp",
        attention.heads % tp == 0,
        f"{attention.heads} attention heads cannot be cut evenly over tp {tp}",
    )
    if isinstance(attention, Attention):
        kv = attention.kv_heads
        yield (
            "tp",
            kv % tp == 0 or tp % kv == 0,
            f"tp {tp} and {kv} key-value heads: neither divides the other",
        )
        whole = not attention.fused or kv % tp == 0
        yield (
            "tp",
            whole,
            f"a fused weight cannot be cut below its {kv} key-value heads, over tp {tp}: use "
            f"separate weights",
        )
    dense = model.has_dense_layers
    yield (
        "tp",
        not dense or model.ffn % tp == 0,
        f"a feed-forward part of width {model.ffn} cannot be cut evenly over tp {tp}",
    )
    rows = model.embedding_rows
    yield (
        "tp",
        rows % tp == 0,
        f"an embedding of {rows} rows cannot be cut evenly over tp {tp}: pad it (rows) to a "
        f"multiple of {tp}",
    )
    width = model.hidden
    yield (
        "tp",
        not model.predicted or width % tp == 0,
        f"the map of {width} columns before the predicting layer cannot be cut evenly over tp {tp}",
    )
    own = batch.length // layout.cp
    fits = not layout.sequence_parallel or own % tp == 0
    yield (
        "sequence_parallel",
        fits,
        f"{own} tokens of a sequence on a rank cannot be cut evenly over tp {tp}",
    )


def _context_rules(model: Model, batch: Batch, layout: Layout) -> Iterator[Rule]:
    cp = layout.cp
    if cp == 1:
        return
    parts, why = (
        (2 * cp, f"2 * cp = {2 * cp} (in zig-zag order a rank has one early and one late part)")
        if layout.both_ends
        else (cp, f"cp {cp}")
    )
    yield (
        "cp",
        batch.length % parts == 0,
        f"a sequence of {batch.length} tokens cannot be cut evenly into {why}",
    )
    heads = model.attention.heads // layout.tp
    fits = layout.context != "ulysses" or heads % cp == 0
    yield (
        "cp",
        fits,
        f"{heads} attention heads of a rank cannot be cut evenly over cp {cp}, as ulysses does",
    )
    if isinstance(model.attention, Attention) and layout.context == "ulysses":
        kv = max(model.attention.kv_heads // layout.tp, 1)
        yield (
            "cp",
            kv % cp == 0 or cp % kv == 0,
            f"cp {cp} and {kv} key-value heads of a rank: neither divides the other, as ulysses "
            f"needs",
        )


def _pipeline_rules(model: Model, layout: Layout) -> Iterator[Rule]:
    stages = layout.stages
    yield (
        "pp",
        stages <= model.layers,
        f"{model.layers} layers cannot fill {stages} stages = pp {layout.pp} * virtual "
        f"{layout.virtual}",
    )
    interleaved = layout.schedule == "interleaved"
    yield (
        "virtual",
        interleaved or layout.virtual == 1,
        f"{layout.virtual} stages per rank need the schedule interleaved, not {layout.schedule}",
    )
    yield (
        "virtual",
        not interleaved or layout.virtual > 1,
        "the schedule interleaved needs at least 2 stages per rank, not 1",
    )
    yield (
        "pp",
        not interleaved or layout.pp > 1,
        "the schedule interleaved needs pp of at least 2, not 1",
    )
    groups = not interleaved or layout.microbatches % layout.pp == 0
    yield (
        "microbatches",
        groups,
        f"the schedule interleaved runs micro-batches in groups of pp {layout.pp}, which does not "
        f"divide {layout.microbatches}",
    )


def _sharding_rules(model: Model, layout: Layout) -> Iterator[Rule]:
    yield "zero", 0 <= layout.zero <= 3, f"the stages of ZeRO are 0, 1, 2, 3, not {layout.zero}"
    yield (
        "replicas",
        layout.dp % layout.replicas == 0,
        f"dp {layout.dp} cannot form {layout.replicas} equal parts",
    )
    yield (
        "replicas",
        layout.replicas == 1 or layout.zero == 3,
        f"{layout.replicas} replicas of shards need zero 3, not {layout.zero}",
    )
    yield (
        "replicas",
        layout.replicas == 1 or layout.replicas < layout.dp,
        f"{layout.replicas} replicas leave nothing of dp {layout.dp} to shard over",
    )
    flat = layout.flat_buckets
    yield (
        "flat_buckets",
        not flat or layout.zero in (1, 2),
        f"are those of zero 1 and 2, not of zero {layout.zero}",
    )
    yield (
        "flat_buckets",
        not flat or model.experts is None,
        f"are built for dense models, and {model.name} has experts",
    )
    both = layout.pp > 1 and (model.tied or model.predicted > 0)
    yield (
        "flat_buckets",
        not flat or not both,
        f"are not built where both ends of a pipeline share an embedding, as those of "
        f"{model.name} do",
    )


def _expert_rules(model: Model, batch: Batch, layout: Layout) -> Iterator[Rule]:
    experts = model.experts
    for field in ("ep", "etp"):
        size = getattr(layout, field)
        yield (
            field,
            size == 1 or experts is not None,
            f"the model {model.name} has no experts to spread over {field} {size}",
        )
    if experts is None:
        return
    ep, etp, tp = layout.ep, layout.etp, layout.tp
    yield (
        "ep",
        experts.routed % ep == 0,
        f"{experts.routed} experts cannot be spread evenly over ep {ep}",
    )
    yield (
        "etp",
        experts.ffn % etp == 0,
        f"an expert of width {experts.ffn} cannot be cut evenly over etp {etp}",
    )
    shared = experts.shared * experts.ffn
    yield (
        "tp",
        shared % tp == 0,
        f"shared experts of width {shared} cannot be cut evenly over tp {tp}",
    )
    inside = layout.dp * layout.cp * tp
    yield (
        "ep",
        inside % (ep * etp) == 0,
        f"ep {ep} * etp {etp} does not divide the {inside} ranks of a stage = dp {layout.dp} * cp "
        f"{layout.cp} * tp {tp}",
    )
    same = tp > 1 and not layout.sequence_parallel
    yield (
        "ep",
        not same or ep == 1,
        f"tensor-parallel ranks have the same tokens without sequence_parallel, which ep {ep} "
        f"would send several times",
    )
    yield (
        "etp",
        not same or tp % etp == 0,
        f"tensor-parallel ranks have the same tokens without sequence_parallel: etp {etp} must "
        f"divide tp {tp}",
    )
    yield from _grid_rules(model, layout)
    parts = layout.dp * layout.microbatches
    grouped = Fraction(experts.auxiliary) and experts.auxiliary_over == "group"
    rule = (
        f"the balance loss is taken over {batch.groups} groups of sequences, which is no "
        f"multiple of dp {layout.dp} * microbatches {layout.microbatches}"
    )
    yield "microbatches", not grouped or batch.groups % parts == 0, rule


def _grid_rules(model: Model, layout: Layout) -> Iterator[Rule]:
    """Yield the rules by which groups of expert-parallel ranks are products of mesh axes.

    A group that ends within an axis must end after a whole number of the axis's parts.
    """
    low = 1
    for kind, size in reversed(kinds(model, layout)):
        for end in cut_at(size, low, ends(layout)):
            fits = end % low == 0 and low * size % end == 0
            yield (
                "ep",
                fits,
                f"{end} consecutive ranks (etp {layout.etp} * ep {layout.ep}) end within {kind} "
                f"{size} of every {low} ranks at no whole part",
            )
        low *= size
