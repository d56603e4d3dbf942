"""Normalisation over a batch, on one device and with the statistics of several.

The statistics are taken over all dimensions but the second, that of the channels (Ioffe and
Szegedy, *Batch Normalization*, 2015). ``torch.nn.SyncBatchNorm`` gathers those of all ranks; its
operators have no kernels for CPUs.

>>> x = torch.tensor([[1.0], [3.0]])
>>> batch_norm(x, None, None, None, None, True, 0.1, 0.0)[0]
tensor([[-1.],
        [ 1.]])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Tensor = torch.Tensor


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise by the statistics of the batch, and change the running ones by them.

    Outside of training the running ones normalise, and the last two results are empty.

    Returns:
        The result; and the mean and the reciprocal deviation of each channel.
    """
    if not training and running_mean is not None and running_var is not None:
        kept = running_mean, (running_var + eps).rsqrt()
        return elementwise(input, weight, bias, *kept, eps), input.new_zeros(0), input.new_zeros(0)
    mean, reciprocal = statistics(input, eps)
    _change(running_mean, mean, momentum)
    if running_var is not None:
        _change(running_var, input.var(_others(input), correction=1), momentum)
    return elementwise(input, weight, bias, mean, reciprocal, eps), mean, reciprocal


def batch_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of input, weight and bias of :func:`batch_norm`."""
    mean, reciprocal = save_mean, save_invstd
    kept = not train and running_mean is not None
    if not train and running_var is not None:
        mean, reciprocal = running_mean, (running_var + eps).rsqrt()
    if mean is None or reciprocal is None:
        raise ValueError("batch norm has neither statistics of the batch nor running ones")
    total, along, to_weight, to_bias = reduced_gradients(
        grad_out, input, mean, reciprocal, weight, True, True, True
    )
    to_input = None
    if output_mask[0] and kept:
        scale = reciprocal if weight is None else reciprocal * weight
        to_input = grad_out * _by_channel(scale, input)
    elif output_mask[0]:
        count = torch.full((1,), input.numel() // input.size(1), dtype=torch.int32)
        to_input = to_inputs(grad_out, input, mean, reciprocal, weight, total, along, count)
    return to_input, to_weight if output_mask[1] else None, to_bias if output_mask[2] else None


def statistics(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the mean and the reciprocal deviation of each channel."""
    others = _others(input)
    return input.mean(others), (input.var(others, correction=0) + eps).rsqrt()


def variances(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """Return the mean and the variance of each channel.

    Ranks exchange these in the place of :func:`statistics`, of which they make variances again.
    """
    others = _others(input)
    return input.mean(others), input.var(others, correction=0)


def of_all_ranks(
    input: Tensor,  # noqa: ARG001  a parameter of the operator
    mean: Tensor,
    variance: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the statistics of all ranks, and change the running ones by them.

    ``mean`` and ``variance`` have a row for each rank, ``counts`` the elements that each channel
    has there.
    """
    total, rows = counts.sum(), counts.view(-1, 1)
    whole = (mean * rows).sum(0) / total
    squares = ((variance + (mean - whole).square()) * rows).sum(0)
    _change(running_mean, whole, momentum)
    _change(running_var, squares / (total - 1), momentum)
    return whole, (squares / total + eps).rsqrt()


def gathered_statistics(
    input: Tensor, mean: Tensor, invstd: Tensor, *more: Any
) -> tuple[Tensor, Tensor]:
    """Do as :func:`of_all_ranks` does, given reciprocal deviations in place of variances."""
    eps = more[3]
    return of_all_ranks(input, mean, invstd.square().reciprocal() - eps, *more)


def elementwise(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    invstd: Tensor,
    eps: float,  # noqa: ARG001  a parameter of the operator
) -> Tensor:
    """Return the normalised input, times a weight, plus a bias for each channel."""
    result = (input - _by_channel(mean, input)) * _by_channel(invstd, input)
    if weight is not None:
        result = result * _by_channel(weight, input)
    return result if bias is None else result + _by_channel(bias, input)


def reduced_gradients(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,  # noqa: ARG001  a parameter of the operator
    input_g: bool,  # noqa: ARG001
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return sums over a rank's elements of each channel.

    Returns:
        The sums of the gradient and of its product with the centred input; and the gradients of
        weight and bias, None for those that are not wanted.
    """
    others = _others(input)
    total = grad_out.sum(others)
    along = (grad_out * (input - _by_channel(mean, input))).sum(others)
    return total, along, along * invstd if weight_g else None, total.clone() if bias_g else None


def to_inputs(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    """Return the gradient of the input, given the sums over all ranks and their counts."""
    elements = count.sum()
    slope = invstd.square() * sum_dy_xmu / elements
    through = (
        grad_out
        - _by_channel(sum_dy / elements, input)
        - (input - _by_channel(mean, input)) * _by_channel(slope, input)
    )
    return through * _by_channel(invstd if weight is None else invstd * weight, input)


def _others(input: Tensor) -> list[int]:
    return [axis for axis in range(input.dim()) if axis != 1]


def _by_channel(values: Tensor, input: Tensor) -> Tensor:
    return values.view(1, -1, *(1 for _ in range(input.dim() - 2)))


def _change(running: Tensor | None, value: Tensor, momentum: float) -> None:
    if running is not None:
        running.copy_(running * (1 - momentum) + value * momentum)
