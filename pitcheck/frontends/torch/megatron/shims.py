"""The parts of PyTorch and of Megatron-core that a machine without CUDA has to replace.

Each says why. docs/pytorch.md has the same list for readers.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.optimizer import clip_grads, optimizer
from megatron.core.tensor_parallel import random as generators
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from torch.testing._internal.distributed.fake_pg import FakeStore

from pitcheck.frontends.torch.megatron.cuda import CpuForCuda, Event, Stream, entered
from pitcheck.frontends.torch.patches.patching import Patch, patched, replaced


def start_group() -> None:
    """Start a process group of one rank if there is none, as on the reference's side."""
    if not dist.is_initialized():
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)


@contextmanager
def shims() -> Iterator[None]:
    """Replace what a machine without CUDA lacks."""
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(patched(_patches()))
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(CpuForCuda())
        yield


def _patches() -> Iterator[Patch]:
    # Buffers are made on the current device.
    yield torch.cuda, "current_device", lambda: "cpu"
    yield torch.cuda, "set_device", _nothing
    # Streams and events say when kernels run. Here operators run one after the other.
    yield torch.cuda, "Stream", Stream
    yield torch.cuda, "Event", Event
    yield torch.cuda, "stream", entered
    for name in ("current_stream", "default_stream"):
        yield torch.cuda, name, Stream
    yield torch.Tensor, "record_stream", _nothing
    for name in ("synchronize", "empty_cache"):
        yield torch.cuda, name, _nothing
    for name in ("range_push", "range_pop"):
        yield torch.cuda.nvtx, name, _nothing
    # Draws come from the CPU's generator, so seeds and states are its.
    for owner in (torch.cuda, torch.cuda.random):
        yield owner, "get_rng_state", _state
        yield owner, "set_rng_state", _set_state
        yield owner, "manual_seed", _seed
        yield owner, "manual_seed_all", _seed
    yield generators, "_get_cuda_rng_state", _state
    yield generators, "_set_cuda_rng_state", _set_state
    # Without Transformer Engine its name is not defined, and asked for.
    if not hasattr(moe_utils, "te_general_gemm"):
        yield moe_utils, "te_general_gemm", None
    # Megatron's fused norms need Apex or Transformer Engine, its wrapper of PyTorch's refuses
    # sequence parallelism.
    yield WrappedTorchNorm, "__new__", staticmethod(_norm)
    # Multi-latent attention names the widths of keys and values, which Transformer Engine's
    # attention takes and Megatron's does not.
    yield DotProductAttention, "__init__", _attention(DotProductAttention.__init__)
    # Megatron reads the norm of all gradients as a number, and compares it with the largest one
    # allowed. Here it stays a tensor, and the factor is the smaller one of the quotient and 1.
    yield clip_grads, "l2_norm_impl", _norm_of_all
    yield optimizer, "get_grad_norm_fp32", _unread(clip_grads.get_grad_norm_fp32)
    yield optimizer, "clip_grad_by_total_norm_fp32", _clip
    # A group of gloo would connect to other processes.
    yield parallel_state, "create_group", _group(parallel_state.create_group)
    yield from _without_engine()


def _without_engine() -> Iterator[Patch]:
    """Yield what makes modules see that Transformer Engine is missing.

    Some take it to be there if the file can be imported in which Megatron wraps it.
    """
    if "transformer_engine" in sys.modules:
        return
    for name, module in list(sys.modules.items()):
        if name.startswith("megatron.core.") and getattr(module, "HAVE_TE", False) is True:
            yield module, "HAVE_TE", False


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


def _state(*_: Any, **__: Any) -> torch.Tensor:
    return torch.get_rng_state()


def _set_state(state: torch.Tensor, *_: Any, **__: Any) -> None:
    torch.set_rng_state(state)


def _seed(seed: int) -> None:
    # torch.manual_seed calls this function.
    torch.default_generator.manual_seed(seed)


def _norm(_: type, config: Any, hidden_size: int, eps: float = 1e-5, **__: Any) -> torch.nn.Module:
    """Return PyTorch's norm, whose parameters say if they see a part of the sequence alone.

    Those of the fused norms say the same. Raises NotImplementedError for a norm that PyTorch lacks.
    """
    kinds = {"LayerNorm": torch.nn.LayerNorm, "RMSNorm": torch.nn.RMSNorm}
    if config.normalization not in kinds or config.layernorm_zero_centered_gamma:
        raise NotImplementedError(
            f"PyTorch has no norm for normalization={config.normalization!r} with "
            f"layernorm_zero_centered_gamma={config.layernorm_zero_centered_gamma}"
        )
    norm: torch.nn.Module = kinds[config.normalization](hidden_size, eps=eps)
    for parameter in norm.parameters():
        parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
    return norm


def _attention(original: Callable[..., None]) -> Callable[..., None]:
    def init(
        attention: Any,
        *args: Any,
        k_channels: int | None = None,  # noqa: ARG001  keys have it
        v_channels: int | None = None,
        **kwargs: Any,
    ) -> None:
        original(attention, *args, **kwargs)
        if v_channels is not None:
            heads = attention.num_attention_heads_per_partition
            attention.hidden_size_per_partition = heads * v_channels

    return init


def _norm_of_all(
    _: int, __: torch.Tensor, lists: Sequence[Sequence[torch.Tensor]], *___: Any
) -> tuple[torch.Tensor, None]:
    """Return the norm of all tensors, of shape (1,), as the kernel of the same name does."""
    norms = [torch.linalg.vector_norm(tensor) for tensors in lists for tensor in tensors]
    return torch.linalg.vector_norm(torch.stack(norms)).reshape(1), None


def _unread(original: Callable[..., Any]) -> Callable[..., Any]:
    def norm(*args: Any, **kwargs: Any) -> Any:
        with replaced(torch.Tensor, "item", lambda tensor: tensor.reshape(())):
            return original(*args, **kwargs)

    return norm


def _clip(
    parameters: Iterable[torch.Tensor],
    max_norm: float,
    total_norm: torch.Tensor,
    use_decoupled_grad: bool = False,
) -> None:
    """Multiply gradients by the largest norm allowed over the norm of all, unless that is above 1.

    They are multiplied in place.
    """
    factor = (max_norm / (total_norm + 1.0e-6)).clamp(max=1.0)
    name = "decoupled_grad" if use_decoupled_grad else "grad"
    for gradient in (getattr(parameter, name, None) for parameter in parameters):
        if gradient is not None:
            gradient.detach().mul_(factor)


def _group(original: Callable[..., Any]) -> Callable[..., Any]:
    def create(ranks: Any = None, timeout: Any = None, backend: Any = None, **rest: Any) -> Any:
        return original(ranks, timeout, None if backend == "gloo" else backend, **rest)

    return create
