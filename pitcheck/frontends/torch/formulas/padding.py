"""Padding by elements of the tensor itself, which an index names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Tensor = torch.Tensor
Sizes = Sequence[int]


def reflected(input: Tensor, padding: Sizes) -> Tensor:
    """Continue each dimension by its mirror image, without its first and last element twice."""
    return _read(input, padding, _mirror)


def reflected_backward(grad_output: Tensor, input: Tensor, padding: Sizes) -> Tensor:
    """Return the gradient of the input of :func:`reflected`."""
    return _added(grad_output, input, padding, _mirror)


def repeated(input: Tensor, padding: Sizes) -> Tensor:
    """Continue each dimension by its first and last element."""
    return _read(input, padding, _nearest)


def repeated_backward(grad_output: Tensor, input: Tensor, padding: Sizes) -> Tensor:
    """Return the gradient of the input of :func:`repeated`."""
    return _added(grad_output, input, padding, _nearest)


def _mirror(place: int, size: int) -> int:
    return -place if place < 0 else min(place, 2 * (size - 1) - place)


def _nearest(place: int, size: int) -> int:
    return min(max(place, 0), size - 1)


def _indices(
    input: Tensor, padding: Sizes, source: Callable[[int, int], int]
) -> list[tuple[int, Tensor]]:
    """Return each padded dimension, and the element that each of its places has."""
    found = []
    for number in range(len(padding) // 2):
        axis = input.dim() - 1 - number
        before, after = padding[2 * number : 2 * number + 2]
        size = input.shape[axis]
        places = [source(place, size) for place in range(-before, size + after)]
        found.append((axis, torch.tensor(places, device=input.device)))
    return found


def _read(input: Tensor, padding: Sizes, source: Callable[[int, int], int]) -> Tensor:
    for axis, index in _indices(input, padding, source):
        input = input.index_select(axis, index)
    return input


def _added(
    slope: Tensor, input: Tensor, padding: Sizes, source: Callable[[int, int], int]
) -> Tensor:
    for axis, index in _indices(input, padding, source):
        sizes = [*slope.shape]
        sizes[axis] = input.shape[axis]
        empty = torch.zeros(sizes, dtype=slope.dtype, device=slope.device)
        slope = empty.index_add(axis, index, slope)
    return slope
