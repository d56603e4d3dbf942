"""Rows of programs that need nothing but PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from framework_row import BOTH, CP2, DP2, DP3, DP4, PP2, PP4, RATE, TP2, Row

STEPPED = ("SGD", "AdamW", "fused AdamW", "foreach Adam", "Adagrad", "RMSprop", "NAdam")
TESTED = "tests/frontends/torch/parallelism/test_"
NOTHING = "a hook that reduces nothing"


def _replicated(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    name = f"DistributedDataParallel{f', {feature}' if feature else ''}"
    return Row("torch", name, "ddp", mesh, mistakes, options)


def _sharded(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    return Row(
        "torch", f"FSDP2{f', {feature}' if feature else ''}", "fsdp2", mesh, mistakes, options
    )


def _flat(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    return Row(
        "torch", f"FSDP1{f', {feature}' if feature else ''}", "fsdp1", mesh, mistakes, options
    )


def _layered(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    name = f"DistributedDataParallel, {feature}"
    return Row("torch", name, "replicated_models", mesh, mistakes, options)


def _by_hand(feature: str, name: str, mesh: Mapping[str, int], counted: str, *mistakes: str) -> Row:
    return Row("torch", feature, "by_hand", mesh, mistakes, {"name": name}, counted=counted)


def _piped(schedule: str, mesh: Mapping[str, int], chunks: int = 1, rows: int = 8) -> Row:
    mistakes = ("gradients divided as of a mean", "a micro-batch left out")
    options = {"schedule": f"Schedule{schedule}", "chunks": chunks, "rows": rows}
    said = f", {chunks} stages a rank" if chunks > 1 else ""
    return Row("torch", f"pipelining, {schedule}{said}", "pipelines", mesh, mistakes, options)


def _distributed(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    return Row("torch", f"DTensor, {feature}", "dtensors", mesh, mistakes, options)


def _ring(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    return Row(
        "torch", f"context_parallel, {feature}", "context_parallels", mesh, mistakes, options
    )


ROWS: tuple[Row, ...] = (
    # --- plain torch.distributed
    _by_hand(
        "data parallelism by hand",
        "data parallel",
        DP2,
        "docs/examples/data_parallel.py:reference,parallel",
        "gradients not averaged",
    ),
    _by_hand(
        "tensor parallelism by hand",
        "tensor parallel",
        TP2,
        "docs/examples/tensor_parallel.py:reference,parallel",
        "input gradient not summed",
        "a mean for a sum",
    ),
    _by_hand(
        "accumulation over tokens that count",
        "accumulation",
        DP2,
        f"{TESTED}accumulation.py:spec,of_whole_batch",
        "mean of means",
        "tokens of one rank",
    ),
    _by_hand(
        "attention, one projection",
        "fused attention",
        TP2,
        f"{TESTED}fused_attention.py:spec",
        "gradients not added up",
    ),
    _by_hand(
        "attention, one projection by parts",
        "fused attention, rows by part",
        TP2,
        f"{TESTED}fused_attention.py:spec",
        "rows in another order",
    ),
    _by_hand(
        "attention, functional collectives",
        "fused attention, functional",
        TP2,
        f"{TESTED}fused_attention.py:spec",
        "gradients not added up",
    ),
    _by_hand(
        "optimizer state by rows",
        "optimizer state by rows",
        DP2,
        f"{TESTED}sharded_optimizer.py:spec,by_hand,Sharded",
        "parameters not gathered",
        "gradients in another order",
        "gradients not divided",
    ),
    _by_hand(
        "ring attention by hand",
        "ring attention",
        {"cp": 2},
        f"{TESTED}ring_attention.py:spec",
        "sums not rescaled",
    ),
    _by_hand(
        "ring attention by hand",
        "ring attention over three",
        {"cp": 3},
        f"{TESTED}ring_attention.py:spec",
        "gradients sent the other way",
    ),
    _by_hand(
        "experts, all-to-all by counts",
        "experts by counts",
        {"ep": 2},
        f"{TESTED}experts.py:spec,in_place",
        "tokens combined in another order",
        "weights of other tokens",
    ),
    _by_hand(
        "experts, all-to-all in equal parts",
        "experts in equal parts",
        {"ep": 2},
        f"{TESTED}experts.py:spec,in_place",
        "tokens combined in another order",
    ),
    _by_hand(
        "clipping of replicas",
        "clipping",
        DP2,
        f"{TESTED}clipping.py:replicated,summed,clipped",
        "before gradients are summed",
        "by the matrices alone",
    ),
    _by_hand(
        "clipping of shards",
        "clipping of shards",
        DP2,
        f"{TESTED}clipping.py:fully_sharded,clipped",
        "by the shards of a rank",
    ),
    _by_hand(
        "log-sum-exp over columns",
        "log of a sum over columns",
        TP2,
        "tests/frontends/torch/programs/test_torch_causes.py:log_of_sum",
        "largest of own columns",
    ),
    # --- DistributedDataParallel
    _replicated("", DP2, "never synchronised", "a parameter left out"),
    _replicated("", DP3, "never synchronised"),
    _replicated("", DP4, "a parameter left out"),
    _replicated("two axes", {"outer": 2, "inner": 2}, "replicas of one axis only"),
    _replicated("a bucket for each parameter", DP2, "a parameter left out", bucket=1e-5),
    _replicated("gradients as views of buckets", DP2, "never synchronised", views=True),
    _replicated("hook: float16", DP2, "never synchronised", hook="fp16"),
    _replicated(
        "no_sync",
        DP2,
        "the last micro-batch not synchronised",
        "loss not divided by micro-batches",
        micro=2,
    ),
    _replicated("no_sync", DP3, "the last micro-batch not synchronised", micro=4),
    *(_replicated(name, DP2, RATE, optimizer=name) for name in STEPPED),
    _replicated(
        "clipping, AdamW", DP2, "clipped before gradients are whole", optimizer="AdamW", clip=1.0
    ),
    _replicated(
        "no_sync, clipping, AdamW",
        DP2,
        "loss not divided by micro-batches",
        optimizer="AdamW",
        clip=1.0,
        micro=2,
    ),
    _replicated(
        "ZeroRedundancyOptimizer",
        DP2,
        "parameters of one rank not sent",
        "never synchronised",
        optimizer="AdamW",
        sharded=True,
    ),
    _replicated(
        "ZeroRedundancyOptimizer", DP3, "never synchronised", optimizer="AdamW", sharded=True
    ),
    _replicated("static_graph", DP2, NOTHING, "a parameter left out", static_graph=True),
    _replicated("static_graph", DP3, NOTHING, static_graph=True),
    _replicated(
        "find_unused_parameters",
        DP2,
        "never synchronised",
        "a parameter left out",
        find_unused_parameters=True,
    ),
    _replicated(
        "find_unused_parameters, a bucket for each parameter",
        DP2,
        "a parameter left out",
        find_unused_parameters=True,
        bucket=1e-5,
        views=True,
    ),
    _replicated("hook: bfloat16", DP2, "never synchronised", hook="bf16"),
    _layered("a computed buffer", DP2, "another table on the first rank", model="rotated"),
    _layered("convolutions", DP2, NOTHING, model="convolutions"),
    _layered("SyncBatchNorm", DP2, "statistics of each rank", NOTHING, model="batch norm"),
    _layered("GradScaler", DP2, NOTHING, RATE, scaled=True),
    _layered("recomputation", DP2, NOTHING, model="recomputation"),
    _layered("reentrant recomputation", DP2, NOTHING, model="reentrant recomputation"),
    _layered("weight norm", DP2, NOTHING, model="weight norm"),
    _layered("LoRA by hand", DP2, "another scale on one rank", NOTHING, model="adapted"),
    *(
        _layered(name, DP2, RATE, optimizer=name)
        for name in ("Adafactor", "Muon", "Adamax", "RAdam", "Adadelta")
    ),
    _layered("ASGD", DP2, NOTHING, optimizer="ASGD"),
    # --- FSDP2
    _sharded("", DP2, "sums not divided"),
    _sharded("uneven shards", DP3, "sums not divided"),
    _sharded("", DP4, "sums not divided"),
    _sharded("uneven shards", {"dp": 2}, "sums not divided", hidden=7),
    _sharded("a rank without rows", DP4, "sums not divided", hidden=9),
    _sharded("replicas of shards", BOTH, "replicas not synchronised", "sums not divided"),
    _sharded("not resharded after forward", DP2, "sums not divided", reshard=False),
    _sharded("recomputation", DP2, "sums not divided", recomputed=True),
    _sharded("products in bfloat16", DP2, "sums not divided", mixed="bf16"),
    _sharded(
        "accumulation",
        DP2,
        "loss not divided by micro-batches",
        micro=2,
    ),
    *(
        _sharded(name, DP2, "a shard not updated", optimizer=name)
        for name in STEPPED
        if name != "fused AdamW"
    ),
    _sharded("uneven shards, AdamW", DP3, "a shard not updated", optimizer="AdamW"),
    _sharded("clipping, AdamW", DP2, "clipped by the norm of a shard", optimizer="AdamW", clip=1.0),
    _sharded(
        "uneven shards, clipping, AdamW",
        DP3,
        "clipped by the norm of a shard",
        optimizer="AdamW",
        clip=1.0,
    ),
    _sharded("replicas of shards, AdamW", BOTH, "replicas not synchronised", optimizer="AdamW"),
    *(
        Row("torch", f"FSDP2, GradScaler, {name}", "scaled_fsdp2", mesh, mistakes, options)
        for name, mesh, mistakes, options in (
            ("SGD", DP2, ("gradients divided twice",), {"optimizer": "SGD"}),
            ("AdamW", DP2, ("another scale on one rank",), {}),
        )
    ),
    _sharded("fused AdamW", DP2, "a shard not updated", optimizer="fused AdamW"),
    # --- FSDP1
    _flat("", DP2, "never synchronised", "sums not divided"),
    _flat("", DP3, "sums not divided"),
    _flat("", DP4, "never synchronised"),
    _flat("one flat parameter", DP3, "sums not divided", wrapped=False, hidden=7),
    _flat("use_orig_params", DP2, "sums not divided", original=True),
    _flat("use_orig_params", DP3, "sums not divided", original=True),
    _flat(
        "use_orig_params, one flat parameter",
        DP3,
        "sums not divided",
        original=True,
        wrapped=False,
    ),
    _flat("SHARD_GRAD_OP", DP2, "sums not divided", strategy="SHARD_GRAD_OP"),
    _flat("NO_SHARD", DP2, "sums not divided", strategy="NO_SHARD"),
    _flat("NO_SHARD, use_orig_params", DP2, "sums not divided", strategy="NO_SHARD", original=True),
    _flat("HYBRID_SHARD", BOTH, "replicas not synchronised", strategy="HYBRID_SHARD"),
    _flat(
        "no_sync",
        DP2,
        "never synchronised",
        "loss not divided by micro-batches",
        micro=2,
    ),
    *(_flat(name, DP2, RATE, optimizer=name) for name in ("SGD", "AdamW", "fused AdamW")),
    _flat("use_orig_params, AdamW", DP2, RATE, optimizer="AdamW", original=True),
    _flat(
        "clipping, AdamW",
        DP2,
        "clipped by the norm of a shard",
        optimizer="AdamW",
        clip=1.0,
    ),
    _flat(
        "clipping, AdamW",
        DP3,
        "clipped by the norm of a shard",
        optimizer="AdamW",
        clip=1.0,
        hidden=7,
    ),
    _flat(
        "use_orig_params, clipping, AdamW",
        DP2,
        "clipped by the norm of a shard",
        optimizer="AdamW",
        clip=1.0,
        original=True,
    ),
    # --- pipelining
    *(_piped(name, PP2) for name in ("GPipe", "1F1B")),
    _piped("1F1B", PP4),
    *(_piped(name, PP2, 2) for name in ("Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble")),
    # --- DTensor
    _distributed("sequence parallelism", {"dp": 1, "tp": 2}, "gradients of norms not summed"),
    _distributed("sequence parallelism and FSDP2", {"dp": 2, "tp": 2}, "loss not scaled"),
    # --- context_parallel
    _ring(
        "all-gather",
        CP2,
        "gradients not averaged",
        "positions not divided",
        balanced=False,
    ),
    _ring("all-gather", {"cp": 4}, "gradients not averaged", balanced=False),
    _ring("all-to-all", CP2, "gradients not averaged", balanced=False, rotation="alltoall"),
    _ring("all-gather, balanced", CP2, "targets in the order of the batch"),
    _ring(
        "all-to-all, balanced",
        CP2,
        "targets in the order of the batch",
        "positions not divided",
        rotation="alltoall",
    ),
)
