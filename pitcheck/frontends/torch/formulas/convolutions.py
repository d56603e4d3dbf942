"""Convolutions of any number of dimensions, as a product of matrices for each place of the kernel.

Transposed convolutions have no formula.

>>> x, weight = torch.ones(1, 1, 3), torch.tensor([[[1.0, 2.0]]])
>>> convolution(x, weight, None, [1], [0], [1], False, [0], 1)
tensor([[[3., 3.]]])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import torch

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
    output_padding: Sizes,  # noqa: ARG001  of transposed convolutions alone
    groups: int,
) -> Any:
    """Return a convolution, of shape (batch, channels, *places); NotImplemented if transposed."""
    if transposed:
        return NotImplemented
    padded = _padded(input, padding)
    shape = _result_places(padded, weight, stride, dilation)
    result: Tensor | None = None
    for place, cuts in _places(weight, shape, stride, dilation):
        term = _by_group(_weight(weight, place), groups) @ _columns(_cut(padded, cuts), groups)
        result = term if result is None else result + term
    if result is None:
        return NotImplemented
    whole = result.reshape(input.shape[0], weight.shape[0], *shape)
    return whole if bias is None else whole + bias.view(-1, *(1 for _ in shape))


def convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sizes | None,  # noqa: ARG001  a parameter of the operator
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,  # noqa: ARG001  of transposed convolutions alone
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    """Return the gradients of input, weight and bias; NotImplemented if transposed."""
    if transposed:
        return NotImplemented
    padded, shape = _padded(input, padding), grad_output.shape[2:]
    places = list(_places(weight, shape, stride, dilation))
    slope = _columns(grad_output, groups)
    to_input = to_weight = to_bias = None
    if output_mask[0]:
        spread = [
            _spread(
                (_by_group(_weight(weight, place), groups).mT @ slope).reshape(
                    *input.shape[:2], *shape
                ),
                padded.shape[2:],
                cuts,
            )
            for place, cuts in places
        ]
        inner = [slice(pad, pad + size) for pad, size in zip(padding, input.shape[2:], strict=True)]
        to_input = _cut(_added(spread), inner)
    if output_mask[1]:
        products = [
            (slope @ _columns(_cut(padded, cuts), groups).mT).sum(0).reshape(weight.shape[:2])
            for _, cuts in places
        ]
        to_weight = torch.stack(products, -1).reshape(weight.shape)
    if output_mask[2]:
        to_bias = grad_output.sum([0, *range(2, grad_output.dim())])
    return to_input, to_weight, to_bias


def _added(terms: Sequence[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _padded(input: Tensor, padding: Sizes) -> Tensor:
    pads = [pad for each in reversed(padding) for pad in (each, each)]
    return torch.constant_pad_nd(input, pads) if any(pads) else input


def _result_places(padded: Tensor, weight: Tensor, stride: Sizes, dilation: Sizes) -> list[int]:
    return [
        (size - step * (kernel - 1) - 1) // jump + 1
        for size, kernel, jump, step in zip(
            padded.shape[2:], weight.shape[2:], stride, dilation, strict=True
        )
    ]


def _places(
    weight: Tensor, shape: Sizes, stride: Sizes, dilation: Sizes
) -> Iterator[tuple[tuple[int, ...], list[slice]]]:
    """Yield every place of the kernel, with the part of the padded input that it is multiplied by.

    ``shape`` has the places of the result.
    """
    for place in product(*map(range, weight.shape[2:])):
        starts = [step * at for step, at in zip(dilation, place, strict=True)]
        yield (
            place,
            [
                slice(start, start + (size - 1) * jump + 1, jump)
                for start, size, jump in zip(starts, shape, stride, strict=True)
            ],
        )


def _weight(weight: Tensor, place: tuple[int, ...]) -> Tensor:
    for at in place:
        weight = weight.select(2, at)
    return weight


def _by_group(matrix: Tensor, groups: int) -> Tensor:
    """Return the weights of all groups, (groups, channels out, channels in)."""
    return matrix.reshape(groups, -1, matrix.shape[1])


def _columns(tensor: Tensor, groups: int) -> Tensor:
    """Return a tensor as (batch, groups, channels of a group, places)."""
    return tensor.reshape(tensor.shape[0], groups, tensor.shape[1] // groups, -1)


def _cut(tensor: Tensor, cuts: Sequence[slice]) -> Tensor:
    for dim, cut in enumerate(cuts, 2):
        tensor = torch.ops.aten.slice.Tensor(tensor, dim, cut.start, cut.stop, cut.step or 1)
    return tensor


def _spread(tensor: Tensor, shape: Sizes, cuts: Sequence[slice]) -> Tensor:
    """Return zeros in which a tensor stands where :func:`_cut` takes it from."""
    for dim, cut in enumerate(cuts, 2):
        sizes = [*tensor.shape]
        sizes[dim] = shape[dim - 2]
        tensor = torch.ops.aten.slice_backward(tensor, sizes, dim, cut.start, cut.stop, cut.step)
    return tensor
