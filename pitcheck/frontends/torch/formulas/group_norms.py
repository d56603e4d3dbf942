"""Normalisation over groups of channels (Wu and He, *Group Normalization*, 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

Tensor = torch.Tensor


def group_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,  # noqa: N803  as PyTorch names it
    C: int,  # noqa: N803
    HxW: int,  # noqa: N803
    group: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise the channels of each group and all their places.

    Returns:
        The result; and mean and reciprocal deviation, of shape (N, group).
    """
    grouped = input.reshape(N, group, C // group, HxW)
    mean = grouped.mean([2, 3])
    reciprocal = (grouped.var([2, 3], correction=0) + eps).rsqrt()
    result = _normal(grouped, mean, reciprocal).reshape(N, C, HxW)
    if weight is not None:
        result = result * weight.view(C, 1)
    if bias is not None:
        result = result + bias.view(C, 1)
    return result.reshape(input.shape), mean, reciprocal


def group_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    N: int,  # noqa: N803
    C: int,  # noqa: N803
    HxW: int,  # noqa: N803
    group: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of input, weight and bias of :func:`group_norm`."""
    normal = _normal(input.reshape(N, group, C // group, HxW), mean, rstd)
    slope = grad_out.reshape(N, C, HxW)
    to_weight = (slope * normal.reshape(N, C, HxW)).sum([0, 2]) if output_mask[1] else None
    to_bias = slope.sum([0, 2]) if output_mask[2] else None
    if not output_mask[0]:
        return None, to_weight, to_bias
    inner = (slope if weight is None else slope * weight.view(C, 1)).reshape(normal.shape)
    along = (inner * normal).mean([2, 3], keepdim=True)
    through = inner - inner.mean([2, 3], keepdim=True) - normal * along
    return (through * rstd.view(N, group, 1, 1)).reshape(input.shape), to_weight, to_bias


def _normal(grouped: Tensor, mean: Tensor, reciprocal: Tensor) -> Tensor:
    shape = (*mean.shape, 1, 1)
    return (grouped - mean.view(shape)) * reciprocal.view(shape)
