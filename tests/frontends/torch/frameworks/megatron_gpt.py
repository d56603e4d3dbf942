"""Megatron-core's own GPTModel as a pair of programs: on one rank, and on the ranks of a tensor
parallel and a data parallel group.

What Megatron needs beside PyTorch, and a CPU does not have, is replaced here; docs/pytorch.md says
what and why.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from pitcheck.torch import Input, Part, Program, Rank, Spec

INSTALLED = importlib.util.find_spec("megatron") is not None
VOCABULARY, WIDTH, HEADS, LENGTH, ROWS, LAYERS = 96, 64, 4, 8, 4, 2


@dataclass(frozen=True)
class Setup:
    """Sizes of the groups, and what the model is like. ``gated``: as Llama, with SwiGLU and RMSNorm
    and without biases; ``groups``: of queries.
    """

    tensor: int = 2
    sequence: bool = False
    data: int = 1
    tied: bool = False
    gated: bool = False
    groups: int = HEADS


Bug = Callable[[nn.Module], AbstractContextManager[Any]]
"""A function from the model of a parallel rank to the context in which its step runs."""


def spec(setup: Setup, bug: Bug = lambda _: nullcontext()) -> Spec:
    """The pair of programs; ``bug`` is planted into the parallel one."""
    _import()

    def reference() -> Program:
        with on_cpu():
            model = _model(Setup(tensor=1, tied=setup.tied, gated=setup.gated, groups=setup.groups))
        return Program(model, _step(model))

    def parallel(rank: Rank) -> Program:
        with on_cpu():
            model = _model(setup)
            wrapped, finish = _data_parallel(model)
        step = _step(wrapped, finish)

        def bugged(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
            with bug(model):
                return step(batch)

        return Program(model, bugged)

    tokens = Input((ROWS * setup.data, LENGTH), "int64", (0, VOCABULARY), split={0: "dp"})
    outputs = {"loss": Part(mean="dp")} if setup.data > 1 else {}
    return Spec(
        reference,
        parallel,
        {"dp": setup.data, "tp": setup.tensor},
        {"tokens": tokens, "labels": tokens},
        outputs,
    )


def _import() -> None:
    """Import Megatron. What it would compile runs as it is written, and its import does not take
    torch's compiler in.
    """
    with (
        patch.object(torch, "compile", lambda function=None, **_: function),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        importlib.import_module("megatron.core.models.gpt.gpt_layer_specs")
        importlib.import_module("megatron.core.distributed.finalize_model_grads")


def forgotten() -> None:
    """Undo what building a model on one rank leaves in this process."""
    if dist.is_initialized():
        importlib.import_module("megatron.core.parallel_state").destroy_model_parallel()
        dist.destroy_process_group()


@contextmanager
def on_cpu() -> Iterator[None]:
    """The device is the CPU, and has no random numbers of its own: nothing is dropped out."""
    from megatron.core.tensor_parallel.random import CudaRNGStatesTracker  # noqa: PLC0415

    with ExitStack() as stack:
        stack.enter_context(patch.object(torch.cuda, "current_device", lambda: "cpu"))
        stack.enter_context(patch.object(CudaRNGStatesTracker, "fork", lambda *_: nullcontext()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield


def _norm(config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> nn.Module:
    """PyTorch's norm, whose parameters say, as those of Megatron's FusedLayerNorm do, whether they
    see a part of the sequence alone.
    """
    norm = (nn.RMSNorm if config.normalization == "RMSNorm" else nn.LayerNorm)(hidden_size, eps=eps)
    for parameter in norm.parameters():
        parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
    return norm


class Norm:
    """A norm as layer specifications take it."""

    def __new__(cls, *args: Any, **kwargs: Any) -> nn.Module:  # type: ignore[misc]
        return _norm(*args, **kwargs)


def _model(setup: Setup) -> nn.Module:
    from megatron.core import parallel_state  # noqa: PLC0415
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: PLC0415
    from megatron.core.models.gpt.gpt_model import GPTModel  # noqa: PLC0415
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules  # noqa: PLC0415
    from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: PLC0415

    if not dist.is_initialized():
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=setup.tensor, create_gloo_process_groups=False
    )
    like_llama = {
        "gated_linear_unit": True,
        "activation_func": nn.functional.silu,
        "normalization": "RMSNorm",
        "add_bias_linear": False,
    }
    config = TransformerConfig(
        num_layers=LAYERS,
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_query_groups=setup.groups,
        tensor_model_parallel_size=setup.tensor,
        sequence_parallel=setup.sequence,
        params_dtype=torch.get_default_dtype(),
        use_cpu_initialization=True,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        gradient_accumulation_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
        apply_rope_fusion=False,
        **(like_llama if setup.gated else {}),
    )
    layer = get_gpt_layer_local_spec()
    layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = Norm
    block = TransformerBlockSubmodules([layer] * LAYERS, Norm)
    model = GPTModel(
        config,
        block,
        VOCABULARY,
        LENGTH,
        position_embedding_type="rope",
        share_embeddings_and_output_weights=setup.tied,
    )
    if config.params_dtype != torch.float32:
        channels = WIDTH // HEADS
        model.rotary_pos_emb.inv_freq = 1.0 / (
            10000 ** (torch.arange(0, channels, 2, dtype=config.params_dtype) / channels)
        )
    return model


def _data_parallel(model: Any) -> tuple[Any, Callable[[], None]]:
    """The model as Megatron trains it, and what follows on the backward pass."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig  # noqa: PLC0415
    from megatron.core.distributed.finalize_model_grads import finalize_model_grads  # noqa: PLC0415

    wrapped = DistributedDataParallel(model.config, DistributedDataParallelConfig(), model)
    return wrapped, lambda: finalize_model_grads([wrapped])


def _step(
    model: Any, finish: Callable[[], None] = lambda: None
) -> Callable[[Mapping[str, torch.Tensor]], torch.Tensor]:
    def step(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        with on_cpu():
            if hasattr(model, "zero_grad_buffer"):
                model.zero_grad_buffer()
            tokens = batch["tokens"]
            hidden = torch.tril(torch.ones(1, 1, LENGTH, LENGTH)) < 0.5
            losses = model(
                tokens, torch.arange(LENGTH).expand_as(tokens), hidden, labels=batch["labels"]
            )
            loss: torch.Tensor = losses.mean()
            loss.backward()  # type: ignore[no-untyped-call]
            finish()
            return loss

    return step
