"""The rows of ``docs/frameworks.md``: programs with frameworks, each with its planted mistakes.

Nothing is imported here, so that the page can be held against this table where no framework is
installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """A program at one mesh with some options, and the mistakes that are planted into it.

    ``framework``: the name of its distribution. ``program``: the module in
    ``programs/frameworks``, whose function ``spec`` takes the mesh, a mistake and the ``options``.
    ``reason``: a property of the program that keeps its verdict from being equivalent.
    ``counted``: the file and the functions whose lines are counted, by default ``spec`` of the
    program.
    """

    framework: str
    feature: str
    program: str
    mesh: Mapping[str, int]
    mistakes: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    counted: str = ""

    @property
    def at(self) -> str:
        """The mesh as the page has it."""
        return ", ".join(f"{axis}={size}" for axis, size in self.mesh.items())


DP2, DP3, DP4, TP2, TP4, PP2, PP4 = (
    {"dp": 2},
    {"dp": 3},
    {"dp": 4},
    {"tp": 2},
    {"tp": 4},
    {"pp": 2},
    {"pp": 4},
)
CP2 = {"cp": 2}
EP2 = {"ep": 2}
"""Experts over data parallel ranks."""
BOTH = {"rep": 2, "dp": 2}
"""Replicas of sharded parameters."""
STEPPED = ("SGD", "AdamW", "fused AdamW", "foreach Adam", "Adagrad", "RMSprop", "NAdam")
TESTED = "tests/frontends/torch/parallelism/test_"
TITAN = "tests/frontends/torch/frameworks/titan"
RATE = "another learning rate on one rank"
OWN_TOKENS = "tokens of one rank"
NOTHING = "a hook that reduces nothing"
OFFSET, UNSUMMED = "experts counted from another one", "outputs of experts not summed"


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


def _accelerated(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    return Row("accelerate", feature, "hf_accelerate", mesh, mistakes, options)


def _model(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    return Row("transformers", feature, "hf_transformers", mesh, mistakes, options)


def _adapted(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    return Row("peft", feature, "hf_peft", mesh, mistakes, options)


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


def _titan(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    name, counted = f"Llama 3, {feature}", f"{TITAN}.py:spec"
    return Row("torchtitan", name, "titan_llama", mesh, mistakes, options, counted=counted)


def _mixed(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    counted = f"{TITAN}_experts.py:spec"
    return Row("torchtitan", feature, "titan_moe", mesh, mistakes, options, counted=counted)


def _staged(schedule: str, mesh: Mapping[str, int]) -> Row:
    mistakes = ("gradients divided as of a mean", "a micro-batch taken twice")
    name, options = f"Llama 3, pipeline_llm, {schedule}", {"schedule": schedule}
    return Row("torchtitan", name, "titan_pipeline", mesh, mistakes, options)


def _routed(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    return Row("transformers", feature, "hf_experts", mesh, mistakes, options)


def _ring(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    return Row(
        "torch", f"context_parallel, {feature}", "context_parallels", mesh, mistakes, options
    )


def _trained(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    return Row("transformers", f"Trainer, {feature}", "hf_trainer", mesh, mistakes, options)


def _megatron(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    counted = "tests/frontends/torch/frameworks/megatron_gpt.py:spec"
    options = {"layers": 1, **options}
    return Row(
        "megatron-core", feature, "megatron_models", mesh, mistakes, options, counted=counted
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
    # --- accelerate
    _accelerated("DDP", DP2, RATE, "model not prepared"),
    _accelerated("DDP", DP3, "model not prepared"),
    _accelerated("DDP, SGD", DP2, RATE, optimizer="SGD"),
    _accelerated(
        "DDP, accumulate", DP2, "loss divided twice", "plain backward", micro=2, optimizer="SGD"
    ),
    _accelerated("DDP, clip_grad_norm_", DP2, RATE, clip=1.0),
    _accelerated(
        "DDP, accumulate, clip_grad_norm_",
        DP2,
        "clipped on every micro-batch's own gradients",
        micro=2,
        clip=1.0,
    ),
    _accelerated("DDP, gather", DP2, "loss of one rank", gathered="gather"),
    _accelerated("FSDP2", DP2, RATE, kind="FSDP2"),
    _accelerated("FSDP2, uneven shards", DP3, RATE, kind="FSDP2"),
    _accelerated(
        "FSDP2, accumulate",
        DP2,
        "loss divided twice",
        "plain backward",
        kind="FSDP2",
        micro=2,
        optimizer="SGD",
    ),
    _accelerated("FSDP2, clip_grad_norm_", DP2, RATE, kind="FSDP2", clip=1.0),
    _accelerated("FSDP2, gather", DP2, "loss of one rank", kind="FSDP2", gathered="gather"),
    _accelerated("FSDP1", DP2, RATE, kind="FSDP1"),
    _accelerated("FSDP1, use_orig_params", DP2, RATE, kind="FSDP1", original=True),
    _accelerated("FSDP1, clip_grad_norm_", DP2, RATE, kind="FSDP1", clip=1.0),
    # --- transformers
    _model("Llama, its tensor parallel plan", TP2, "a rowwise layer not reduced"),
    _model("Llama, FSDP2 by its plan", DP2, "sums not divided"),
    _model("Llama, SDPA", TP2, "a rowwise layer not reduced", model="Llama, SDPA"),
    _model("Qwen2, its tensor parallel plan", TP2, "a rowwise layer not reduced", model="Qwen2"),
    _model("Qwen3, its tensor parallel plan", TP2, "a rowwise layer not reduced", model="Qwen3"),
    _model(
        "Mistral, its tensor parallel plan", TP2, "a rowwise layer not reduced", model="Mistral"
    ),
    _model("Gemma, its tensor parallel plan", TP2, "a rowwise layer not reduced", model="Gemma"),
    _model(
        "Granite, its tensor parallel plan", TP2, "a rowwise layer not reduced", model="Granite"
    ),
    # --- PEFT
    _adapted("LoRA, DistributedDataParallel", DP2, "another scale on one rank"),
    _adapted("LoRA, FSDP2", DP2, "sums not divided", kind="FSDP2"),
    _adapted("LoRA, tensor parallelism", TP2, "another scale on one rank", kind="TP"),
    # --- DeepSpeed
    *(
        Row("deepspeed", f"ZeRO-0, {name}", "zero_deepspeed", DP2, (RATE,), {"optimizer": name})
        for name in ("SGD", "AdamW")
    ),
    *(
        Row(
            "deepspeed",
            f"ZeRO-{stage}{feature}",
            "zero_deepspeed",
            mesh,
            mistakes,
            {"stage": stage, **options},
        )
        for stage in (1, 2)
        for feature, mesh, mistakes, options in (
            (", SGD", DP2, (RATE, "sums not divided"), {"optimizer": "SGD"}),
            ("", DP2, (RATE, "parameters not gathered"), {}),
            ("", DP3, ("sums not divided",), {}),
            (", accumulation, SGD", DP2, ("sums not divided",), {"optimizer": "SGD", "micro": 2}),
        )
    ),
    Row(
        "deepspeed",
        "Ulysses, DistributedAttention",
        "ulysses_deepspeed",
        {"sp": 2},
        (
            "a group of one rank",
            "gradients not summed",
            "heads of one rank in another order",
        ),
    ),
    # --- FSDP2 with a scaler
    *(
        Row("torch", f"FSDP2, GradScaler, {name}", "scaled_fsdp2", mesh, mistakes, options)
        for name, mesh, mistakes, options in (
            ("SGD", DP2, ("gradients divided twice",), {"optimizer": "SGD"}),
            ("AdamW", DP2, ("another scale on one rank",), {}),
        )
    ),
    # --- DTensor
    _distributed("sequence parallelism", {"dp": 1, "tp": 2}, "gradients of norms not summed"),
    _distributed("sequence parallelism and FSDP2", {"dp": 2, "tp": 2}, "loss not scaled"),
    # --- torchtitan
    _titan("FSDP2", DP2, "a mean over own tokens"),
    _titan("tensor and sequence parallelism", TP2, "a norm's gradient not summed"),
    _titan(
        "FSDP2, tensor and sequence parallelism", {"dp": 2, "tp": 2}, "a norm's gradient not summed"
    ),
    # --- more of DistributedDataParallel and FSDP2
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
    _sharded("fused AdamW", DP2, "a shard not updated", optimizer="fused AdamW"),
    # --- mixtures of experts of transformers
    _routed("Mixtral, its expert and FSDP2 plans", DP2, OFFSET),
    _routed("Mixtral, experts by all-to-all within tensor parallelism", TP2, OFFSET),
    _routed(
        "Mixtral, experts by all-reduce within tensor parallelism",
        TP2,
        UNSUMMED,
        ep_implementation="all_reduce",
    ),
    _routed("Mixtral, its tensor parallel plan", TP2, UNSUMMED, expert_parallel=False),
    _routed(
        "Qwen3-MoE, its tensor parallel plan",
        TP2,
        UNSUMMED,
        model="Qwen3Moe",
        expert_parallel=False,
    ),
    _routed("Qwen3-MoE, its expert and FSDP2 plans", DP2, OFFSET, model="Qwen3Moe"),
    _routed("gpt-oss, its expert and FSDP2 plans", DP2, OFFSET, model="GptOss"),
    _routed("DeepSeek-V3, its expert and FSDP2 plans", DP2, OFFSET, model="DeepseekV3"),
    _routed(
        "DeepSeek-V3, its tensor parallel plan",
        TP2,
        "shared expert not summed",
        UNSUMMED,
        model="DeepseekV3",
        expert_parallel=False,
    ),
    # --- more of accelerate
    _accelerated("DDP, gather_for_metrics", DP2, "loss of one rank", gathered="gather_for_metrics"),
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
    # --- the Trainer of transformers
    _trained("DDP, max_grad_norm", DP2, "tokens of one rank", clip=1.0, optim="sgd"),
    _trained(
        "DDP, gradient accumulation, max_grad_norm",
        DP2,
        "tokens of one rank",
        "loss not divided",
        micro=2,
        clip=1.0,
        optim="sgd",
    ),
    _trained("DDP, max_grad_norm, AdamW", DP2, RATE, clip=1.0, optim="adamw_torch"),
    # --- attention with biases
    *(
        Row("transformers", f"{name}, DDP", "hf_encoders", DP2, ("never synchronised",), options)
        for name, options in (
            ("BERT", {"model": "BERT"}),
            ("OPT, tied embeddings", {"model": "OPT"}),
            ("ViT", {"model": "ViT"}),
            ("Whisper", {"model": "Whisper"}),
        )
    ),
    _titan("replicas of shards", BOTH, "replicas not synchronised"),
    _titan("FSDP2, all recomputed", DP2, "a mean over own tokens", recomputed="full"),
    _titan("FSDP2, products recomputed", DP2, "a mean over own tokens", recomputed="selective"),
    _titan(
        "tensor parallelism, a loss over columns",
        TP2,
        "exponentials summed over own columns",
        sequence=False,
    ),
    _titan(
        "tensor and sequence parallelism, a loss over columns, all recomputed",
        TP2,
        "largest of own columns",
        recomputed="full",
    ),
    _titan(
        "tensor and sequence parallelism, full_dtensor",
        TP2,
        "largest of own columns",
        backend="full_dtensor",
    ),
    _titan("FSDP2, clipping, AdamW", DP2, "a mean over own tokens", clipped=True),
    *(
        Row("torchtitan", f"Llama 3, Trainer.train_step, {feature}", "titan_trainer", *rest)
        for feature, *rest in (
            ("FSDP2", DP2, (OWN_TOKENS, RATE)),
            ("FSDP2, accumulation", DP2, (OWN_TOKENS, RATE), {"micro": 2}),
            ("FSDP2, tensor and sequence parallelism", {"dp": 2, "tp": 2}, (OWN_TOKENS,)),
            ("replicas of shards", BOTH, (OWN_TOKENS,)),
            ("1F1B", PP2, (RATE,), {"layers": 2}),
        )
    ),
    *(_staged(name, PP2) for name in ("1F1B", "Interleaved1F1B")),
    _staged("1F1B", {"pp": 2, "dp": 2}),
    _mixed(
        "Qwen3-MoE, experts over ranks",
        DP2,
        "gradients of experts halved",
        "tokens of the place beside",
        "a mean over own tokens",
    ),
    _mixed(
        "DeepSeek-V3, experts over ranks",
        DP2,
        "gradients of experts halved",
        "tokens of the place beside",
        model="DeepSeek-V3",
    ),
    _mixed(
        "Qwen3-MoE, experts over ranks, biases of experts, AdamW",
        DP2,
        "biases by the tokens of a rank",
        balanced=True,
    ),
    _mixed(
        "Qwen3-MoE, experts over ranks, tensor and sequence parallelism",
        {"dp": 2, "tp": 2},
        "gradients of experts halved",
    ),
    # --- Megatron-core
    _megatron("GPT, tensor parallelism", TP2, "an input's gradient not summed"),
    _megatron(
        "GPT, tensor and sequence parallelism",
        TP2,
        "a norm's gradient not summed",
        "largest of own logits",
        sequence=True,
    ),
    _megatron(
        "GPT, DistributedDataParallel",
        DP2,
        "gradients summed, not averaged",
        "gradients not summed",
    ),
    _megatron(
        "GPT, DistributedDataParallel, 2 micro-batches", DP2, "micro-batches not averaged", micro=2
    ),
    _megatron("GPT, a loss per token", DP2, "tokens of one rank", micro=2, per_token=True),
    _megatron(
        "GPT, pipeline with tied embeddings",
        PP2,
        "tied gradients not summed",
        "a gradient sent twice",
        layers=2,
        micro=2,
        tied=True,
    ),
    _megatron(
        "GPT, interleaved pipeline",
        PP2,
        "micro-batches not averaged",
        layers=4,
        chunks=2,
        micro=2,
    ),
    _megatron(
        "GPT, multi-latent attention, mended",
        TP2,
        "as it is published",
        latent=True,
        mended=True,
    ),
    _megatron("GPT, experts by all-to-all", EP2, "experts swapped", experts=4),
    _mixed(
        "DeepSeek-V3, experts over ranks, tensor and sequence parallelism",
        {"dp": 2, "tp": 2},
        "gradients of experts halved",
        model="DeepSeek-V3",
    ),
)
