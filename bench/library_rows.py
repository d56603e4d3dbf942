"""Rows of programs with the libraries on PyTorch that people train with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from framework_row import BOTH, DP2, DP3, EP2, PP2, RATE, TP2, Row

TITAN = "tests/frontends/torch/frameworks/titan"
OWN_TOKENS = "tokens of one rank"
OFFSET, UNSUMMED = "experts counted from another one", "outputs of experts not summed"


def _accelerated(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    return Row("accelerate", feature, "hf_accelerate", mesh, mistakes, options)


def _model(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    return Row("transformers", feature, "hf_transformers", mesh, mistakes, options)


def _adapted(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    return Row("peft", feature, "hf_peft", mesh, mistakes, options)


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


def _trained(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    return Row("transformers", f"Trainer, {feature}", "hf_trainer", mesh, mistakes, options)


def _megatron(feature: str, mesh: Mapping[str, int], *mistakes: str, **options: Any) -> Row:
    counted = "tests/frontends/torch/frameworks/megatron_gpt.py:spec"
    options = {"layers": 1, **options}
    return Row(
        "megatron-core", feature, "megatron_models", mesh, mistakes, options, counted=counted
    )


ROWS: tuple[Row, ...] = (
    # --- Accelerate
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
    _accelerated("DDP, gather_for_metrics", DP2, "loss of one rank", gathered="gather_for_metrics"),
    # --- Transformers
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
    *(
        Row("transformers", f"{name}, DDP", "hf_encoders", DP2, ("never synchronised",), options)
        for name, options in (
            ("BERT", {"model": "BERT"}),
            ("OPT, tied embeddings", {"model": "OPT"}),
            ("ViT", {"model": "ViT"}),
            ("Whisper", {"model": "Whisper"}),
        )
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
    # --- torchtitan
    _titan("FSDP2", DP2, "a mean over own tokens"),
    _titan("tensor and sequence parallelism", TP2, "a norm's gradient not summed"),
    _titan(
        "FSDP2, tensor and sequence parallelism", {"dp": 2, "tp": 2}, "a norm's gradient not summed"
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
            ("replicas of shards", BOTH, (OWN_TOKENS,)),
        )
    ),
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
    _mixed(
        "DeepSeek-V3, experts over ranks, tensor and sequence parallelism",
        {"dp": 2, "tp": 2},
        "gradients of experts halved",
        model="DeepSeek-V3",
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
)
