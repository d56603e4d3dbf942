"""Attention by the kernels of GPUs, as the kernel of a CPU.

The kernels compute the same. Those of a GPU return more, which only their backward pass reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from pitcheck.errors import UnsupportedError

Tensor = torch.Tensor


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Return the attention, and what its backward pass reads.

    ``query``, ``key`` and ``value`` are of shape (batch, heads, length, size).

    Returns:
        The attention; the logarithm of the sums, of shape (batch, heads, length); the ends of
        sequences, which are None; the lengths; and tensors that only dropout and debugging use.

    Raises UnsupportedError if it is causal and lengths differ, or if its mask is asked for.
    """
    _check(query, key, is_causal, return_debug_mask)
    out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, dropout_p, is_causal, attn_mask=None, scale=scale
    )
    state, unused = (query.new_empty(shape, dtype=torch.uint64) for shape in ((2,), ()))
    mask = query.new_empty((0,))
    return out, sums, None, None, query.shape[2], key.shape[2], state, unused, mask


def flash_attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,  # noqa: ARG001  as PyTorch names what the kernel does not use
    cum_seq_k: Tensor | None,  # noqa: ARG001
    max_q: int,  # noqa: ARG001
    max_k: int,  # noqa: ARG001
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor | None = None,  # noqa: ARG001
    philox_offset: Tensor | None = None,  # noqa: ARG001
    *,
    scale: float | None = None,
) -> Sequence[Tensor]:
    """Return the gradients of query, key and value of :func:`flash_attention`.

    ``out`` and ``logsumexp`` may be those of more keys than ``key`` has.
    """
    _check(query, key, is_causal, False)
    gradients: Sequence[Tensor] = (
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad_out,
            query,
            key,
            value,
            out,
            logsumexp,
            dropout_p,
            is_causal,
            attn_mask=None,
            scale=scale,
        )
    )
    return gradients


def _check(query: Tensor, key: Tensor, is_causal: bool, mask: bool) -> None:
    if is_causal and query.shape[2] != key.shape[2]:
        raise UnsupportedError(
            f"flash attention of {query.shape[2]} queries and {key.shape[2]} keys is causal; "
            f"kernels differ in which keys a query then sees: give it equally many, or a mask"
        )
    if mask:
        raise UnsupportedError("flash attention is asked for its mask (return_debug_mask)")


def _of_gpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    """Return what the kernel of a CPU returns, by that of a GPU; NotImplemented with a mask."""
    if attn_mask is not None:
        return NotImplemented
    return torch.ops.aten._scaled_dot_product_flash_attention(
        query, key, value, dropout_p, is_causal, scale=scale
    )[:2]


def _backward_of_gpu(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    if attn_mask is not None:
        return NotImplemented
    unused = query.new_empty((0,))
    return torch.ops.aten._scaled_dot_product_flash_attention_backward(
        grad_out,
        query,
        key,
        value,
        out,
        logsumexp,
        None,
        None,
        query.shape[2],
        key.shape[2],
        dropout_p,
        is_causal,
        unused,
        unused,
        scale=scale,
    )


OF_GPUS: Mapping[OpOverload, Callable[..., Any]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default: _of_gpu,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _backward_of_gpu,
}
"""The kernels of a CPU, run as those of a GPU, for which DTensor has rules."""
