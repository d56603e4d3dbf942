"""Operators that are recorded as the plain operators that they consist of.

They are those over lists of tensors, the steps of fused optimizers, and those of fully sharded data
parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from torch._ops import OpOverload

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.formulas import (
    activations,
    alignments,
    attention,
    batch_norms,
    convolutions,
    embeddings,
    group_norms,
    losses,
    padding,
    resampling,
    triangles,
    windows,
)
from pitcheck.frontends.torch.formulas.loss_scaling import check_and_unscale, update_scale
from pitcheck.frontends.torch.recording.fused_optimizers import FUSED


def all_gather_copy_in(
    all_gather_inputs: Sequence[torch.Tensor],
    all_gather_output: torch.Tensor,
    inp_split_sizes: Sequence[int],
    all_gather_input_numel: int,
    rank: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Write flattened shards in a row into the rank's part of the buffer to be gathered."""
    mine = all_gather_output.narrow(0, all_gather_input_numel * rank, all_gather_input_numel)
    for part, shard in zip(
        torch.split(mine, list(inp_split_sizes)), all_gather_inputs, strict=True
    ):
        part.copy_(shard)
    return mine, all_gather_output


def split_with_sizes_copy(
    all_gather_output: torch.Tensor,
    all_gather_input_split_sizes: Sequence[int],
    dim: int = 0,
    *,
    out: Sequence[torch.Tensor],
) -> None:
    """Copy the parts of a gathered buffer to tensors of their own."""
    for part, target in zip(
        torch.split(all_gather_output, list(all_gather_input_split_sizes), dim), out, strict=True
    ):
        target.copy_(part)


def sharded_chunk_cat(
    tensors: Sequence[torch.Tensor], dim: int, num_chunks: int, *, out: torch.Tensor
) -> None:
    """Do as :func:`chunk_cat` does, into a buffer."""
    chunk_cat(tensors, dim, num_chunks, out=out)


def chunk_cat(
    tensors: Sequence[torch.Tensor], dim: int, num_chunks: int, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Cut tensors into equal chunks, the last padded with zeros, and join them chunk by chunk.

    Row ``i`` of the result has the i-th chunk of every tensor.
    """
    rows = []
    for tensor in tensors:
        size = -(-tensor.shape[dim] // num_chunks)
        missing = size * num_chunks - tensor.shape[dim]
        if missing:
            rest = list(tensor.shape)
            rest[dim] = missing
            padded = torch.cat(
                [tensor, torch.zeros(rest, dtype=tensor.dtype, device=tensor.device)], dim
            )
        else:
            padded = tensor
        rows.append(
            padded.reshape(*tensor.shape[:dim], num_chunks, size * prod(tensor.shape[dim + 1 :]))
        )
    joined = rows[0] if len(rows) == 1 else torch.cat(rows, dim + 1)
    if out is None:
        return joined
    return out.copy_(joined.view(out.shape))


def copy_(tensor: torch.Tensor, data: torch.Tensor) -> None:
    """Write new contents to an unsharded parameter."""
    tensor.copy_(data)


def fill(tensor: torch.Tensor, value: Any) -> torch.Tensor:
    """Fill a tensor. The new contents do not depend on the old ones."""
    if isinstance(value, torch.Tensor):
        return tensor.copy_(value)
    return tensor.copy_(torch.full((), value, dtype=tensor.dtype, device=tensor.device))


def zero(tensor: torch.Tensor) -> torch.Tensor:
    """Fill a tensor with zeros."""
    return fill(tensor, 0)


def weight_norm(
    v: torch.Tensor, g: torch.Tensor, dim: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a weight of direction ``v`` and length ``g``, by slices along ``dim``.

    Returns:
        The weight, and the lengths of ``v``.
    """
    norms = torch.linalg.vector_norm(v, 2, _others(v, dim), True)
    return v * (g / norms), norms


def weight_norm_backward(
    grad_w: torch.Tensor,
    saved_v: torch.Tensor,
    saved_g: torch.Tensor,
    saved_norms: torch.Tensor,
    dim: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of ``v`` and ``g`` of :func:`weight_norm`."""
    along = (grad_w * saved_v).sum(_others(saved_v, dim), True)
    return (saved_g / saved_norms) * (
        grad_w - saved_v * (along / (saved_norms * saved_norms))
    ), along / saved_norms


def scatter_add(out: torch.Tensor, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    """Add rows to those of a tensor; torchtitan fixes the order in which they are added."""
    return out.scatter_add(0, index, src)


def _others(tensor: torch.Tensor, dim: int) -> list[int]:
    return [other for other in range(tensor.dim()) if other != dim % tensor.dim()]


def dot(x: torch.Tensor, other: torch.Tensor) -> Any:
    """Return the product of two vectors; NotImplemented for complex ones."""
    return NotImplemented if x.is_complex() else x.dot(other)


def greatest_of_one(x: torch.Tensor, k: int, dim: int = -1, *_: bool, **__: bool) -> Any:
    """Return the only elements along a dimension and their places, which are known to be 0.

    Returns NotImplemented for any other dimension. No order matters.
    """
    if k != 1 or x.dim() == 0 or x.shape[dim] != 1:
        return NotImplemented
    return x.clone(), torch.zeros(x.shape, dtype=torch.int64)


def asserted(condition: torch.Tensor, message: str = "a condition does not hold") -> None:
    """Abort unless a condition holds, which must be known or a test for infinity or NaN.

    Raises RuntimeError if it does not hold.
    """
    if not condition:
        raise RuntimeError(message)


PICTURES: dict[str, Callable[..., Any]] = {
    **{
        f"{name}{dims}d{kind}{ending}": partial(getattr(windows, f"{own}{ending}"), dims=dims)
        for name, kind, own in (
            ("max_pool", "_with_indices", "max_pool"),
            ("avg_pool", "", "average_pool"),
        )
        for dims in (2, 3)
        for ending in ("", "_backward")
    },
    **{
        f"_adaptive_avg_pool{dims}d{ending}": getattr(resampling, f"adaptive_average_pool{ending}")
        for dims in (2, 3)
        for ending in ("", "_backward")
    },
    **{
        f"upsample_{kind}d{ending}": getattr(resampling, f"{own}{ending}")
        for own, kinds in (
            ("nearest", ("nearest1", "nearest2", "nearest3")),
            ("linear", ("linear1", "bilinear2", "trilinear3")),
        )
        for kind in kinds
        for ending in ("", "_backward")
    },
    **{
        f"{name}_pad{dims}d{ending}": getattr(padding, f"{own}{ending}")
        for name, own in (("reflection", "reflected"), ("replication", "repeated"))
        for dims in (1, 2, 3)
        for ending in ("", "_backward")
    },
    "im2col": windows.columns,
    "col2im": windows.from_columns,
}
"""Pooling, resampling and padding of pictures, by the names of their operators."""

DECOMPOSED: dict[tuple[str, str], Callable[..., Any]] = {
    ("aten", "_assert_async"): asserted,
    ("aten", "_amp_foreach_non_finite_check_and_unscale_"): check_and_unscale,
    ("aten", "_amp_update_scale_"): update_scale,
    **{
        ("aten", f"{name}{ending}"): change(getattr(activations, f"{name}{part}"))
        for name in ("leaky_relu", "elu", "hardtanh", "hardswish", "mish")
        for ending, part, change in (
            ("", "", lambda function: function),
            ("_", "", activations.in_place),
            ("_backward", "_backward", lambda function: function),
        )
    },
    ("aten", "celu"): activations.celu,
    ("aten", "celu_"): activations.in_place(activations.celu),
    ("aten", "xlogy"): activations.xlogy,
    ("aten", "_prelu_kernel"): activations.prelu,
    ("aten", "_prelu_kernel_backward"): activations.prelu_backward,
    ("aten", "_scaled_dot_product_flash_attention"): attention.flash_attention,
    ("aten", "_scaled_dot_product_flash_attention_backward"): attention.flash_attention_backward,
    ("aten", "binary_cross_entropy"): losses.binary_cross_entropy,
    ("aten", "binary_cross_entropy_backward"): losses.binary_cross_entropy_backward,
    ("aten", "convolution"): convolutions.convolution,
    ("aten", "convolution_backward"): convolutions.convolution_backward,
    ("aten", "embedding_renorm_"): embeddings.embedding_renorm,
    ("aten", "native_group_norm"): group_norms.group_norm,
    ("aten", "native_group_norm_backward"): group_norms.group_norm_backward,
    ("aten", "smooth_l1_loss"): losses.smooth_l1_loss,
    ("aten", "smooth_l1_loss_backward"): losses.smooth_l1_loss_backward,
    ("aten", "huber_loss"): losses.huber_loss,
    ("aten", "huber_loss_backward"): losses.huber_loss_backward,
    ("aten", "linalg_solve_triangular"): triangles.solve_triangular,
    ("aten", "topk"): greatest_of_one,
    ("aten", "vdot"): dot,
    ("aten", "native_batch_norm"): batch_norms.batch_norm,
    ("aten", "native_batch_norm_backward"): batch_norms.batch_norm_backward,
    ("aten", "batch_norm_stats"): batch_norms.statistics,
    ("aten", "batch_norm_gather_stats_with_counts"): batch_norms.gathered_statistics,
    ("aten", "batch_norm_elemt"): batch_norms.elementwise,
    ("aten", "batch_norm_backward_reduce"): batch_norms.reduced_gradients,
    ("aten", "batch_norm_backward_elemt"): batch_norms.to_inputs,
    ("fsdp", "all_gather_copy_in"): all_gather_copy_in,
    ("fsdp", "split_with_sizes_copy"): split_with_sizes_copy,
    ("aten", "split_with_sizes_copy"): split_with_sizes_copy,
    ("fsdp", "chunk_cat"): sharded_chunk_cat,
    ("aten", "_chunk_cat"): chunk_cat,
    ("fsdp", "copy_"): copy_,
    ("aten", "fill_"): fill,
    ("aten", "zero_"): zero,
    **{("aten", name): function for name, function in PICTURES.items()},
    ("aten", "_ctc_loss"): alignments.ctc_loss,
    ("aten", "_ctc_loss_backward"): alignments.ctc_loss_backward,
    **FUSED,
    ("torchtitan", "deterministic_scatter_add"): scatter_add,
    ("aten", "_weight_norm_interface"): weight_norm,
    ("aten", "_weight_norm_interface_backward"): weight_norm_backward,
}
"""The functions that run an operator by plain ones, by its namespace and name."""

RENAMED = {"norm": "linalg_vector_norm"}
"""The names of operators for one tensor that differ from those for lists."""


def decompose_foreach(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run a ``_foreach_`` operator tensor by tensor; return its results, None if it is in place.

    Raises UnsupportedError for an operator that has no form for single tensors.
    """
    name = func._schema.name.split("::")[1].removeprefix("_foreach_")
    plain = name.removesuffix("_")
    packet = getattr(torch.ops.aten, RENAMED.get(plain, plain) + "_" * name.endswith("_"), None)
    if (
        packet is None
        or not args
        or any(isinstance(value, list | tuple) for value in kwargs.values())
        or func._overloadname.endswith("out")
    ):
        raise UnsupportedError(f"{func} is not known")
    results = []
    for index, first in enumerate(args[0]):
        rest = [arg[index] if isinstance(arg, list | tuple) else arg for arg in args[1:]]
        if plain in ("addcmul", "addcdiv") and len(rest) > 2:
            factor = args[3][index].item() if isinstance(args[3], torch.Tensor) else rest[2]
            results.append(packet(first, *rest[:2], value=factor))
        else:
            results.append(packet(first, *rest, **kwargs))
    return None if name.endswith("_") else results
