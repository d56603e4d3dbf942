"""Reading and writing by masks that are known while a program is recorded.

Such a mask stands for the positions at which it holds, which are constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

Known = Callable[[torch.Tensor], torch.Tensor | None]
"""A function that returns the numbers of a tensor, or None if they are not known."""
INDEXED = {"index": 1, "index_put": 1, "index_put_": 1, "_index_put_impl_": 1}
"""The place of the indices among the arguments, by operator."""


def with_positions(name: str, args: Sequence[Any], known: Known) -> list[Any] | None:
    """Return the arguments of an operator on indices, with positions in place of known masks.

    Returns None if nothing is to change. A single value that is written wherever a mask holds needs
    no positions.
    """
    place = INDEXED.get(name)
    if place is None or (name != "index" and args[2].numel() == 1):
        return None
    masks = [index for index in args[place] if index is not None and index.dtype == torch.bool]
    numbers = [known(mask) for mask in masks]
    if not masks or any(found is None for found in numbers):
        return None
    remaining = iter(numbers)
    indices: list[torch.Tensor | None] = []
    for index in args[place]:
        if index is not None and index.dtype == torch.bool:
            indices.extend(_positions(next(remaining)))
        else:
            indices.append(index)
    return [*args[:place], indices, *args[place + 1 :]]


def _positions(mask: torch.Tensor | None) -> list[torch.Tensor | None]:
    with _disable_current_modes():
        # Each has memory of its own, as a constant of the program has.
        return [] if mask is None else [places.clone() for places in mask.nonzero().unbind(1)]
