"""Concatenation on a GPU: up to four arrays in one launch, where CuPy takes one for each.

>>> parts, start = parts_of((Operand((2, 1), (8, 8)), Operand((2, 3), (24, 8))), 1, 0, 4)
>>> parts["size"].tolist(), parts["row"].tolist(), start
([8], [4], 4)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.device.kernels import Kernels
from pitcheck.algebra.device.layouts import LAYOUT, Operand, grid_of, operand, planned

MOST_PARTS = 4
PART = np.dtype([("layout", LAYOUT), ("row", np.uint64), ("start", np.uint64)], align=True)
PARTS = np.dtype([("size", np.uint64), ("row", np.uint64), ("of", PART, MOST_PARTS)], align=True)
_NAMES = {1: "join_bytes", 8: "join_words"}


def concatenated(kernels: Kernels, arrays: Sequence[Any], axis: int) -> Any:
    """Return arrays of one dtype, and of one shape but for ``axis``, concatenated along it."""
    xp, first = kernels.xp, arrays[0]
    operands = tuple(map(operand, arrays))
    name = _NAMES.get(first.dtype.itemsize)
    if name is None or any(x.dtype != first.dtype for x in arrays) or not _followed(operands):
        return xp.concatenate(arrays, axis=axis)
    total = sum(x.shape[axis] for x in arrays)
    shape = (*first.shape[:axis], total, *first.shape[axis + 1 :])
    out = xp.empty(shape, dtype=first.dtype)
    moved = out.view(np.uint8) if name == "join_bytes" else out.view(np.uint64)
    start = 0
    for place in range(0, len(arrays), MOST_PARTS):
        here = arrays[place : place + MOST_PARTS]
        parts, start = parts_of(operands[place : place + MOST_PARTS], axis, start, total)
        size = int(parts["size"][0])
        given = [x.view(moved.dtype) for x in here]
        given += [given[0]] * (MOST_PARTS - len(given))
        if size:
            kernels.run(name, grid_of(size)[:1], (*given, moved, parts))
    return out


def _followed(operands: Sequence[Operand]) -> bool:
    return all(_plan(each) is not None for each in operands)


def _plan(own: Operand) -> NDArray[np.void] | None:
    """Return the layout of all elements of an array; None if it has too many axes."""
    return planned((Operand((1, *own.shape), (0, *own.strides), own.itemsize),)).layout


@lru_cache(maxsize=1 << 12)
def parts_of(
    operands: tuple[Operand, ...], axis: int, start: int, total: int
) -> tuple[NDArray[np.void], int]:
    """Return up to four parts as a struct, and where the next one starts along the axis.

    The first starts at ``start`` of ``total`` places.
    """
    result = np.zeros(1, PARTS)
    behind = prod(operands[0].shape[axis + 1 :])
    result["row"] = total * behind
    for place, own in enumerate(operands):
        part = result["of"][0, place : place + 1]
        part["layout"], part["row"] = _plan(own), own.shape[axis] * behind
        part["start"] = start * behind
        start += own.shape[axis]
    result["size"] = sum(prod(own.shape) for own in operands)
    return result, start
