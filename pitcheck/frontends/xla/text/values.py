"""The values of attributes that are more than a number, a word or a list of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pad:
    """The padding of one dimension: elements before, behind and between; negative ones crop."""

    low: int
    high: int
    interior: int


@dataclass(frozen=True, slots=True)
class Range:
    """The part of one dimension that a slice takes: from ``start`` below ``limit``."""

    start: int
    limit: int
    stride: int


@dataclass(frozen=True, slots=True)
class WindowDimension:
    """One dimension of a window that moves over an array.

    Attributes:
        size: elements that the window covers, before it is dilated.
        stride: elements that it moves by.
        low: elements of padding before the array; negative ones crop.
        high: elements of padding behind the array.
        base_dilation: the distance of neighbours of the array; 1 leaves it as it is.
        window_dilation: the distance of elements that the window covers.
        reversal: True if the kernel is read backwards.
    """

    size: int
    stride: int = 1
    low: int = 0
    high: int = 0
    base_dilation: int = 1
    window_dilation: int = 1
    reversal: bool = False


@dataclass(frozen=True, slots=True)
class ConvolutionDimensions:
    """The meaning of the dimensions of a convolution's input, kernel and output.

    ``spatial`` dimensions stand in the order of the window's.
    """

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]
