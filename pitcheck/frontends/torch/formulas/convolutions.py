"""Convolutions of any number of dimensions, as a product of matrices for each place of the kernel.

A transposed convolution is the derivative of a convolution for its input, and the other way around.

>>> x, weight = torch.ones(1, 1, 3), torch.tensor([[[1.0, 2.0]]])
>>> convolution(x, weight, None, [1], [0], [1], False, [0], 1)
tensor([[[3., 3.]]])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import torch

from pitcheck.frontends.torch.formulas.windows import Windows

Tensor = torch.Tensor
Sizes = Sequence[int]


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Tensor:
    """Return a convolution, of shape (batch, channels, *places)."""
    if transposed:
        shape = [
            (size - 1) * jump - 2 * pad + step * (kernel - 1) + more + 1
            for size, kernel, jump, pad, step, more in zip(
                input.shape[2:],
                weight.shape[2:],
                stride,
                padding,
                dilation,
                output_padding,
                strict=True,
            )
        ]
        windows = _windows(shape, weight, input, stride, padding, dilation)
        result = _spread_out(input, weight, windows, groups)
    else:
        windows = Windows.of(input.shape[2:], weight.shape[2:], stride, padding, dilation)
        result = _gathered(input, weight, windows, groups)
    return result if bias is None else result + bias.view(-1, *(1 for _ in windows.shape))


def convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sizes | None,  # noqa: ARG001  a parameter of the operator
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,  # noqa: ARG001  the gradient has the shape that it gives
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of input, weight and bias."""
    wide, narrow = (grad_output, input) if transposed else (input, grad_output)
    windows = _windows(wide.shape[2:], weight, narrow, stride, padding, dilation)
    to_input = to_weight = to_bias = None
    if output_mask[0]:
        moved = _gathered if transposed else _spread_out
        to_input = moved(grad_output, weight, windows, groups)
    if output_mask[1]:
        slope = _columns(narrow, groups)
        products = [
            (slope @ _columns(part, groups).mT).sum(0).reshape(weight.shape[:2])
            for part in windows.taken(wide)
        ]
        to_weight = torch.stack(products, -1).reshape(weight.shape)
    if output_mask[2]:
        to_bias = grad_output.sum([0, *range(2, grad_output.dim())])
    return to_input, to_weight, to_bias


def _windows(
    shape: Sizes, weight: Tensor, narrow: Tensor, stride: Sizes, padding: Sizes, dilation: Sizes
) -> Windows:
    """Return the windows over ``shape``, as many as ``narrow`` has places.

    A transposed convolution may leave room for more behind them.
    """
    windows = Windows.of(shape, weight.shape[2:], stride, padding, dilation)
    return replace(windows, count=narrow.shape[2:])


def _gathered(input: Tensor, weight: Tensor, windows: Windows, groups: int) -> Tensor:
    """Return the sums over each window, of shape (batch, channels out, *windows)."""
    terms = (
        _by_group(part, groups) @ _columns(taken, groups)
        for part, taken in zip(_parts(weight), windows.taken(input), strict=True)
    )
    total = next(terms)
    for term in terms:
        total = total + term
    return total.reshape(input.shape[0], weight.shape[0], *windows.count)


def _spread_out(slope: Tensor, weight: Tensor, windows: Windows, groups: int) -> Tensor:
    """Return what windows add to each element of what they move over."""
    channels = weight.shape[1] * groups
    columns = _columns(slope, groups)
    return windows.added(
        [
            (_by_group(part, groups).mT @ columns).reshape(slope.shape[0], channels, *windows.count)
            for part in _parts(weight)
        ]
    )


def _parts(weight: Tensor) -> Iterator[Tensor]:
    """Yield the weights of each place of the kernel."""
    for place in product(*map(range, weight.shape[2:])):
        part = weight
        for at in place:
            part = part.select(2, at)
        yield part


def _by_group(matrix: Tensor, groups: int) -> Tensor:
    """Return the weights of all groups, (groups, channels out, channels in)."""
    return matrix.reshape(groups, -1, matrix.shape[1])


def _columns(tensor: Tensor, groups: int) -> Tensor:
    """Return a tensor as (batch, groups, channels of a group, places)."""
    return tensor.reshape(tensor.shape[0], groups, tensor.shape[1] // groups, -1)
