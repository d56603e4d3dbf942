"""Formulas over windows that move along a picture: pooling, and columns of all windows.

Dimensions in front of those that a window has are kept as they are.

>>> average_pool(torch.tensor([[[[1.0, 3.0], [5.0, 7.0]]]]), [1, 2])
tensor([[[[2.],
          [6.]]]])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, prod

import torch

Tensor = torch.Tensor
Sizes = Sequence[int]


@dataclass(frozen=True)
class Windows:
    """The windows of a kernel along the last dimensions of a tensor.

    ``before`` and ``after``: the elements that are added at both ends of each dimension. ``count``:
    how many windows each dimension has.
    """

    shape: Sizes
    kernel: Sizes
    stride: Sizes
    before: Sizes
    after: Sizes
    dilation: Sizes
    count: Sizes

    @staticmethod
    def of(
        shape: Sizes,
        kernel: Sizes,
        stride: Sizes = (),
        padding: Sizes = (0,),
        dilation: Sizes = (1,),
        ceil_mode: bool = False,
    ) -> Windows:
        """Return the windows over dimensions of ``shape``, as PyTorch counts them."""
        kernel = _each(kernel, len(shape))
        stride = _each(stride or kernel, len(shape))
        padding, dilation = _each(padding, len(shape)), _each(dilation, len(shape))
        count, after = [], []
        for size, wide, jump, pad, step in zip(
            shape, kernel, stride, padding, dilation, strict=True
        ):
            rest = size + 2 * pad - step * (wide - 1) - 1
            number = (rest + (jump - 1 if ceil_mode else 0)) // jump + 1
            if ceil_mode and (number - 1) * jump >= size + pad:
                number -= 1  # a window must not begin in the padding at the end
            count.append(number)
            after.append(max(pad, (number - 1) * jump + step * (wide - 1) + 1 - size - pad))
        return Windows(tuple(shape), kernel, stride, padding, after, dilation, count)

    @property
    def padded(self) -> list[int]:
        """The sizes with what is added at both ends."""
        return [sum(each) for each in zip(self.shape, self.before, self.after, strict=True)]

    def places(self) -> Iterator[list[slice]]:
        """Yield, for each place of the kernel, where its elements of all windows lie."""
        for place in product(*map(range, self.kernel)):
            yield [
                slice(step * at, step * at + (number - 1) * jump + 1, jump)
                for step, at, number, jump in zip(
                    self.dilation, place, self.count, self.stride, strict=True
                )
            ]

    def taken(self, input: Tensor, fill: float = 0) -> list[Tensor]:
        """Return the elements of all windows, one tensor for each place of the kernel."""
        pads = [
            pad
            for each in reversed(list(zip(self.before, self.after, strict=True)))
            for pad in each
        ]
        padded = torch.constant_pad_nd(input, pads, fill) if any(pads) else input
        return [_cut(padded, cuts) for cuts in self.places()]

    def added(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the sums of what windows have of each element; the reverse of :meth:`taken`."""
        total: Tensor | None = None
        for part, cuts in zip(parts, self.places(), strict=True):
            spread = _spread(part, self.padded, cuts)
            total = spread if total is None else total + spread
        inner = [slice(at, at + size) for at, size in zip(self.before, self.shape, strict=True)]
        return _cut(total if total is not None else parts[0], inner)


def max_pool(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    ceil_mode: bool = False,
    dims: int = 2,
) -> tuple[Tensor, Tensor]:
    """Return the greatest element of each window.

    Returns:
        The elements; and their places in the flattened picture.
    """
    shape = input.shape[-dims:]
    windows = Windows.of(shape, kernel_size, stride, padding, dilation, ceil_mode)
    values, which = torch.stack(windows.taken(input, -inf), -1).max(-1)
    places = torch.arange(prod(shape), device=input.device).reshape(1, *shape)
    table = torch.stack(windows.taken(places.expand(1, *shape)), -1).expand(*which.shape, -1)
    return values, table.gather(-1, which.unsqueeze(-1)).squeeze(-1)


def max_pool_backward(
    grad_output: Tensor,
    input: Tensor,
    kernel_size: Sizes,  # noqa: ARG001  the places say where a gradient goes
    stride: Sizes,  # noqa: ARG001
    padding: Sizes,  # noqa: ARG001
    dilation: Sizes,  # noqa: ARG001
    ceil_mode: bool,  # noqa: ARG001
    indices: Tensor,
    dims: int = 2,
) -> Tensor:
    """Return the gradient of the input of :func:`max_pool`."""
    front = input.shape[:-dims]
    flat = torch.zeros(
        (*front, prod(input.shape[-dims:])), dtype=grad_output.dtype, device=input.device
    )
    places, slopes = (each.reshape(*front, -1) for each in (indices, grad_output))
    return flat.scatter_add(-1, places, slopes).reshape(input.shape)


def average_pool(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    dims: int = 2,
) -> Tensor:
    """Return the mean of each window."""
    shape = input.shape[-dims:]
    windows = Windows.of(shape, kernel_size, stride, padding, (1,), ceil_mode)
    total = torch.stack(windows.taken(input), -1).sum(-1)
    return total / _divisors(windows, padding, count_include_pad, divisor_override, input)


def average_pool_backward(
    grad_output: Tensor,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    dims: int = 2,
) -> Tensor:
    """Return the gradient of the input of :func:`average_pool`."""
    windows = Windows.of(input.shape[-dims:], kernel_size, stride, padding, (1,), ceil_mode)
    share = grad_output / _divisors(
        windows, padding, count_include_pad, divisor_override, grad_output
    )
    return windows.added([share] * prod(windows.kernel))


def columns(
    input: Tensor, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> Tensor:
    """Return the elements of each window as a column, (..., channels * kernel, windows)."""
    windows = Windows.of(input.shape[-2:], kernel_size, stride, padding, dilation)
    stacked = torch.stack(windows.taken(input), -3)
    front = input.shape[:-3]
    return stacked.reshape(*front, -1, prod(windows.count))


def from_columns(
    input: Tensor,
    output_size: Sizes,
    kernel_size: Sizes,
    dilation: Sizes,
    padding: Sizes,
    stride: Sizes,
) -> Tensor:
    """Return the sums of what columns have of each element; the reverse of :func:`columns`."""
    windows = Windows.of(output_size, kernel_size, stride, padding, dilation)
    places = prod(windows.kernel)
    parts = input.reshape(*input.shape[:-2], -1, places, *windows.count)
    return windows.added([parts.select(-3, place) for place in range(places)])


def _divisors(
    windows: Windows, padding: Sizes, with_padding: bool, given: int | None, like: Tensor
) -> Tensor | int:
    """Return what sums of windows are divided by: a number, or one for each window."""
    if given is not None:
        return given
    padding = _each(padding, len(windows.shape))
    along = []
    for axis, count in enumerate(windows.count):
        first, last = (
            (-padding[axis], windows.shape[axis] + padding[axis])
            if with_padding
            else (0, windows.shape[axis])
        )
        starts = [at * windows.stride[axis] - padding[axis] for at in range(count)]
        along.append([min(at + windows.kernel[axis], last) - max(at, first) for at in starts])
    counts = [prod(each) for each in product(*along)]
    if len(set(counts)) == 1:
        return counts[0]
    return torch.tensor(counts, device=like.device).reshape(*windows.count).to(like.dtype)


def _each(sizes: Sizes, dims: int) -> list[int]:
    """Return one size for each dimension."""
    return [*sizes] * dims if len(sizes) == 1 else [*sizes]


def _cut(tensor: Tensor, cuts: Sequence[slice]) -> Tensor:
    for dim, cut in enumerate(cuts, tensor.dim() - len(cuts)):
        tensor = torch.ops.aten.slice.Tensor(tensor, dim, cut.start, cut.stop, cut.step or 1)
    return tensor


def _spread(tensor: Tensor, shape: Sizes, cuts: Sequence[slice]) -> Tensor:
    """Return zeros of ``shape`` in which a tensor stands where :func:`_cut` takes it from."""
    first = tensor.dim() - len(cuts)
    for dim, cut in enumerate(cuts, first):
        sizes = [*tensor.shape]
        sizes[dim] = shape[dim - first]
        tensor = torch.ops.aten.slice_backward(tensor, sizes, dim, cut.start, cut.stop, cut.step)
    return tensor
