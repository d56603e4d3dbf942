"""The places in memory where a kernel finds the operands of every element of its result.

A layout is the struct ``Layout`` of ``kernels/residues.cuh``. Neighbouring axes are one where all
operands allow it, so most layouts have one axis or two. Layouts are functions of shapes and strides
alone, and are remembered.

>>> x, y = Operand((2, 3, 4), (96, 32, 8)), Operand((2, 1, 4), (32, 32, 8))
>>> plan = planned((x, y))
>>> plan.shape, plan.size, int(plan.layout["axes"][0])
((2, 3, 4), 12, 2)
>>> plan.layout["stride"][0, :, :2].tolist()[:2]
[[4, 1], [0, 1]]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST_AXES = 8
MOST_OPERANDS = 4
_NARROW = 1 << 32
BLOCK = (256,)
"""The threads of every launch."""
_BLOCKS = 1 << 12
_REMEMBERED = 1 << 12

LAYOUT = np.dtype(
    [
        ("size", np.uint64),
        ("levels", np.uint64),
        ("axes", np.int32),
        ("narrow", np.int32),
        ("extent", np.uint64, MOST_AXES),
        ("magic", np.uint64, MOST_AXES),
        ("level", np.int64, MOST_OPERANDS),
        ("stride", np.int64, (MOST_OPERANDS, MOST_AXES)),
    ],
    align=True,
)


class Operand(NamedTuple):
    """Shape, and strides in bytes, of an array (levels, ...)."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int = 8


def operand(array: Any) -> Operand:
    """Return the operand that an array is."""
    return Operand(array.shape, array.strides, array.dtype.itemsize)


@dataclass(frozen=True)
class Plan:
    """A launch over (levels, ...) elements: shape and size of its result, places, and grid.

    ``layout`` is None if the operands have more axes than a kernel can follow: they must be copied.
    ``size`` counts the elements of one level.
    """

    shape: tuple[int, ...]
    size: int
    layout: NDArray[np.void] | None
    grid: tuple[int, int]

    @property
    def innermost(self) -> int:
        """The step of the first operand along the last axis, in elements, without its sign.

        It is as far as anything if the operand stands still.
        """
        if self.layout is None:
            return _NARROW
        place = int(self.layout["axes"][0]) - 1
        return abs(int(self.layout["stride"][0, 0, place])) or _NARROW


@lru_cache(maxsize=_REMEMBERED)
def planned(operands: tuple[Operand, ...]) -> Plan:
    """Return the plan for operands that broadcast against each other.

    Raises:
        ValueError: if they do not.
    """
    shape = np.broadcast_shapes(*(each.shape for each in operands))
    size = prod(shape[1:])
    strides = [broadcast_strides(each, shape) for each in operands]
    layout = laid_out(shape[0], shape[1:], [s[1:] for s in strides], [s[0] for s in strides])
    return Plan(shape, size, layout, grid_of(size, shape[0]))


@lru_cache(maxsize=_REMEMBERED)
def planned_along(operands: tuple[Operand, ...], axes: tuple[int, ...]) -> tuple[Plan, Plan]:
    """Return the plans for the axes that stay and for ``axes``, which a reduction takes away.

    Raises:
        ValueError: if the operands do not broadcast against each other.
    """
    shape = np.broadcast_shapes(*(each.shape for each in operands))
    strides = [broadcast_strides(each, shape) for each in operands]
    gone = sorted(axis % len(shape) for axis in axes)
    stay = [axis for axis in range(1, len(shape)) if axis not in gone]
    plans = []
    for chosen in (stay, gone):
        extents = tuple(shape[axis] for axis in chosen)
        size = prod(extents)
        own = [tuple(s[axis] for axis in chosen) for s in strides]
        layout = laid_out(shape[0], extents, own, [s[0] for s in strides])
        plans.append(Plan((shape[0], *extents), size, layout, grid_of(size, shape[0])))
    return plans[0], plans[1]


def broadcast_strides(own: Operand, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of an operand in elements, 0 along every axis that it lacks or repeats."""
    missing = len(shape) - len(own.shape)
    steps = (
        0 if extent == 1 else stride // own.itemsize
        for extent, stride in zip(own.shape, own.strides, strict=True)
    )
    return (*(0,) * missing, *steps)


def laid_out(
    levels: int,
    extents: Sequence[int],
    strides: Sequence[Sequence[int]],
    of_levels: Sequence[int],
) -> NDArray[np.void] | None:
    """Return a layout of given extents and strides; None if it has too many axes."""
    axes = merged(extents, strides)
    if len(axes) > MOST_AXES:
        return None
    size = prod(extents)
    result = np.zeros(1, LAYOUT)
    result["size"], result["levels"] = size, levels
    result["axes"], result["narrow"] = len(axes), size < _NARROW
    result["level"][0, : len(of_levels)] = of_levels
    for place, (extent, steps) in enumerate(axes):
        result["extent"][0, place] = extent
        result["magic"][0, place] = -(-(1 << 64) // extent) if extent > 1 else 0
        result["stride"][0, : len(steps), place] = steps
    return result


def merged(
    extents: Sequence[int], strides: Sequence[Sequence[int]]
) -> list[tuple[int, tuple[int, ...]]]:
    """Return (extent, strides) of few axes with the same elements, one axis at least."""
    axes: list[tuple[int, tuple[int, ...]]] = []
    for place, extent in enumerate(extents):
        steps = tuple(own[place] for own in strides)
        if extent == 1:
            continue
        if axes and axes[-1][1] == tuple(step * extent for step in steps):
            axes[-1] = (axes[-1][0] * extent, steps)
        else:
            axes.append((extent, steps))
    return axes or [(1, (0,) * len(strides))]


def grid_of(size: int, levels: int = 1) -> tuple[int, int]:
    """Return blocks for so many threads in each level: enough to fill a card, and no more."""
    return max(1, min(_BLOCKS, -(-size // BLOCK[0]))), max(1, min(levels, 1 << 15))
