"""Convolutions as one product of matrices: patches of the input times the kernel."""

from __future__ import annotations

import string
from collections.abc import Sequence
from fractions import Fraction
from typing import cast

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import NUMPY, Array
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.structure import (
    flipped,
    joined,
    padded,
    permuted,
    reshaped,
    sliced,
)
from pitcheck.frontends.xla.lowering.windows.window_reductions import placements, window_of
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape
from pitcheck.frontends.xla.text.values import ConvolutionDimensions, Pad, WindowDimension
from pitcheck.plan.model import Attribute

MOST_JOINED = 256
"""The parts of the input that are put together along one dimension."""


def convolution(b: Building, instruction: Instruction, operands: Sequence[Array]) -> Array | None:
    """Return a convolution; None if the opcode is another.

    Raises:
        UnsupportedError: for one of integers, or of too large a window.
        PlanError: for operands that do not fit together.
    """
    if instruction.opcode != "convolution" or not isinstance(instruction.shape, ArrayShape):
        return None
    if "conv_kind" in instruction.attributes:
        raise unsupported(b, "a convolution of a stated kind")
    dims = cast("ConvolutionDimensions", instruction.attributes["dim_labels"])
    x, kernel = _arranged(b, operands, dims)
    window = window_of(b, instruction, x.rank - 2)
    features = instruction.get("feature_group_count", 1)
    batches = instruction.get("batch_group_count", 1)
    _check(b, x, kernel, window, (features, batches), instruction.shape)
    zero = b.filled(ArrayShape(x.shape.element, ()), Fraction(0))
    counts = []
    for number, each in enumerate(window):
        axis = 2 + 2 * number
        x = padded(b, x, axis, Pad(each.low, each.high, each.base_dilation - 1), zero)
        count = placements(b, x.sizes[axis], each)
        x = _patches(b, x, axis, each, count)
        counts.append(count)
        if each.reversal:
            kernel = flipped(b, kernel, 2 + number)
    result = _product(b, x, kernel, features, batches, counts, instruction.shape)
    order = (dims.output_batch, dims.output_feature, *dims.output_spatial)
    return permuted(b, result, tuple(order.index(d) for d in range(len(order))))


def _arranged(
    b: Building, operands: Sequence[Array], dims: ConvolutionDimensions
) -> tuple[Array, Array]:
    """Return the input by batch, feature and space, and the kernel by output, input and space."""
    x, kernel = operands
    rank = 2 + len(dims.input_spatial)
    if x.rank != rank or kernel.rank != rank:
        raise PlanError(f"convolution of {x.shape} and {kernel.shape} has other labels", b.place)
    return (
        permuted(b, x, (dims.input_batch, dims.input_feature, *dims.input_spatial)),
        permuted(
            b,
            kernel,
            (dims.kernel_output_feature, dims.kernel_input_feature, *dims.kernel_spatial),
        ),
    )


def _check(
    b: Building,
    x: Array,
    kernel: Array,
    window: Sequence[WindowDimension],
    groups: tuple[int, int],
    shape: ArrayShape,
) -> None:
    """Raise an error unless input, kernel, window and groups fit together."""
    if {x.shape.element, kernel.shape.element, shape.element} & NUMPY.keys():
        raise unsupported(b, f"a convolution of {x.shape.element} and {kernel.shape.element}")
    features, batches = groups
    fits = (
        kernel.sizes[2:] == tuple(each.size for each in window)
        and min(groups) >= 1
        and x.sizes[1] == features * kernel.sizes[1]
        and kernel.sizes[0] % (features * batches) == 0
        and x.sizes[0] % batches == 0
    )
    if not fits or (features > 1 and batches > 1):
        raise PlanError(
            f"convolution of {x.shape} and {kernel.shape} in {features} groups of features and "
            f"{batches} of batches: the sizes do not fit",
            b.place,
        )


def _patches(b: Building, x: Array, axis: int, window: WindowDimension, count: int) -> Array:
    """Return ``x`` with two dimensions in the place of one: windows, and elements of a window.

    Slices are put together along the one that is smaller.
    """
    reach, width = (count - 1) * window.stride + 1, (window.size - 1) * window.window_dilation + 1
    if min(count, window.size) > MOST_JOINED:
        raise unsupported(b, f"a convolution with {count} windows of {window.size} elements")
    head, tail = x.sizes[:axis], x.sizes[axis + 1 :]
    if count < window.size:
        parts = [
            sliced(b, x, axis, first, first + width, window.window_dilation)
            for first in range(0, reach, window.stride)
        ]
        rows = [reshaped(b, part, (*head, 1, window.size, *tail)) for part in parts]
        return joined(b, rows, axis)
    parts = [
        sliced(b, x, axis, first, first + reach, window.stride)
        for first in range(0, width, window.window_dilation)
    ]
    columns = [reshaped(b, part, (*head, count, 1, *tail)) for part in parts]
    return joined(b, columns, axis + 1)


def _product(
    b: Building,
    x: Array,
    kernel: Array,
    features: int,
    batches: int,
    counts: Sequence[int],
    shape: ArrayShape,
) -> Array:
    """Return the sums over the elements of windows and over features, group by group.

    A group of features has its features of the input and of the output, one of batches its part of
    the batch and of the output's features.
    """
    batch, channels = x.sizes[0] // batches, kernel.sizes[1]
    groups = features * batches
    outputs = kernel.sizes[0] // groups
    spatial = len(counts)
    if 2 * spatial > len(string.ascii_uppercase):
        raise unsupported(b, f"a convolution of {spatial} dimensions")
    kernel = reshaped(b, kernel, (groups, outputs, *kernel.sizes[1:]))
    letters = string.ascii_uppercase
    windows, inside = letters[:spatial], letters[spatial : 2 * spatial]
    pairs = "".join(first + second for first, second in zip(windows, inside, strict=True))
    if features == 1:
        x = reshaped(b, x, (groups, batch, channels, *x.sizes[2:]))
        sides = f"gnc{pairs},goc{inside}->ngo{windows}"
    else:
        x = reshaped(b, x, (batch, groups, channels, *x.sizes[2:]))
        sides = f"ngc{pairs},goc{inside}->ngo{windows}"
    wide = ArrayShape(shape.element, (batch, groups, outputs, *counts))
    attributes: dict[str, Attribute] = {"equation": sides}
    found = b.array("einsum", (x.name, kernel.name), wide, attributes)
    return reshaped(b, found, (batch, groups * outputs, *counts))
