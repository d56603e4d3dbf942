"""Pictures at another resolution: each dimension is multiplied by a matrix of known shares.

The derivative is the product with the matrix's transpose. Shares are exact fractions: integers over
one common divisor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import torch

Tensor = torch.Tensor
Sizes = Sequence[int]
Shares = Sequence[Sequence[Fraction]]
MOST_SCALE = 1 << 10
"""The greatest divisor of a scale that is given as a number with a fraction."""


def adaptive_average_pool(input: Tensor, output_size: Sizes) -> Tensor:
    """Return means of parts of a picture, so many along each dimension."""
    first = input.dim() - len(output_size)
    for axis, (size, count) in enumerate(zip(input.shape[first:], output_size, strict=True), first):
        input = _along(input, axis, _means(size, count))
    return input


def adaptive_average_pool_backward(grad_output: Tensor, input: Tensor) -> Tensor:
    """Return the gradient of the input of :func:`adaptive_average_pool`, of a picture."""
    for axis in range(1, grad_output.dim()):
        size, count = input.shape[axis], grad_output.shape[axis]
        if size != count:
            grad_output = _along(grad_output, axis, _turned(_means(size, count)))
    return grad_output


def linear(input: Tensor, output_size: Sizes, align_corners: bool, *scales: float | None) -> Any:
    """Interpolate linearly along the last dimensions; NotImplemented for a scale of many digits."""
    return _resampled(input, input.shape, output_size, scales, align_corners, turned=False)


def linear_backward(
    grad_output: Tensor,
    output_size: Sizes,
    input_size: Sizes,
    align_corners: bool,
    *scales: float | None,
) -> Any:
    """Return the gradient of the input of :func:`linear`."""
    return _resampled(grad_output, input_size, output_size, scales, align_corners, turned=True)


def nearest(input: Tensor, output_size: Sizes, *scales: float | None) -> Any:
    """Take the nearest element; NotImplemented for a scale of many digits."""
    return _resampled(input, input.shape, output_size, scales, None, turned=False)


def nearest_backward(
    grad_output: Tensor, output_size: Sizes, input_size: Sizes, *scales: float | None
) -> Any:
    """Return the gradient of the input of :func:`nearest`."""
    return _resampled(grad_output, input_size, output_size, scales, None, turned=True)


def _resampled(
    tensor: Tensor,
    input_size: Sizes,
    output_size: Sizes,
    scales: Sequence[float | None],
    align_corners: bool | None,
    turned: bool,
) -> Any:
    """Return a product along each dimension; ``align_corners`` is None for the nearest element."""
    dims = len(output_size)
    factors = [*scales, *[None] * (dims - len(scales))]
    matrices = []
    for size, count, scale in zip(input_size[-dims:], output_size, factors, strict=True):
        step = _step(size, count, scale)
        if step is None:
            return NotImplemented
        if align_corners is None:
            matrices.append(_nearest(size, count, step))
        else:
            matrices.append(_between(size, count, step, align_corners))
    for axis, matrix in enumerate(matrices, tensor.dim() - dims):
        tensor = _along(tensor, axis, _turned(matrix) if turned else matrix)
    return tensor


def _step(size: int, count: int, scale: float | None) -> Fraction | None:
    """Return the distance of elements of the result; None if it is no short fraction.

    If the size stays or doubles, some of PyTorch's kernels copy elements whatever the scale is, and
    others do not: another scale than that of the sizes has no meaning then.
    """
    by_sizes = Fraction(size, count)
    if scale is None or size == 1:
        return by_sizes
    step = Fraction(1 / scale).limit_denominator(MOST_SCALE)
    if float(step) != 1 / scale or (by_sizes in (1, Fraction(1, 2)) and step != by_sizes):
        return None
    return step


def _means(size: int, count: int) -> Shares:
    def share(at: int, place: int) -> Fraction:
        first, last = at * size // count, -(-(at + 1) * size // count)
        return Fraction(1, last - first) if first <= place < last else Fraction(0)

    return _matrix(size, count, share)


def _nearest(size: int, count: int, step: Fraction) -> Shares:
    return _matrix(size, count, lambda at, place: Fraction(place == min(int(at * step), size - 1)))


def _between(size: int, count: int, step: Fraction, align_corners: bool) -> Shares:
    def share(at: int, place: int) -> Fraction:
        if align_corners:
            source = Fraction(at * (size - 1), max(count - 1, 1))
        else:
            source = max((at + Fraction(1, 2)) * step - Fraction(1, 2), Fraction(0))
        source = min(source, Fraction(size - 1))
        return max(1 - abs(source - place), Fraction(0))

    return _matrix(size, count, share)


def _matrix(size: int, count: int, share: Callable[[int, int], Fraction]) -> Shares:
    """Return the share that each element of the result has of each element."""
    return [[share(at, place) for place in range(size)] for at in range(count)]


def _turned(shares: Shares) -> Shares:
    return list(zip(*shares, strict=True))


def _along(tensor: Tensor, axis: int, shares: Shares) -> Tensor:
    """Multiply a dimension by a matrix."""
    divisor = lcm(*(share.denominator for row in shares for share in row))
    whole = [[int(share * divisor) for share in row] for row in shares]
    matrix = torch.tensor(whole, device=tensor.device).to(tensor.dtype)
    moved = tensor.movedim(axis, -1) @ matrix.mT
    return (moved if divisor == 1 else moved / divisor).movedim(-1, axis)
