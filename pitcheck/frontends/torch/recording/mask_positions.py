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


def selected(name: str, args: Sequence[Any], known: Known) -> Any:
    """Return what ``masked_select`` or ``masked_scatter`` gives for a mask that is known.

    Returns NotImplemented for another operator, or a mask that is not known.
    """
    mask = known(args[1]) if name in ("masked_select", "masked_scatter") else None
    if mask is None:
        return NotImplemented
    shape = torch.broadcast_shapes(args[0].shape, mask.shape)
    places = _positions(mask.expand(shape))
    whole = args[0].expand(shape)
    if name == "masked_select":
        return torch.ops.aten.index.Tensor(whole, places)
    count = len(places[0]) if places and places[0] is not None else 0
    return torch.ops.aten.index_put.default(whole, places, args[2].reshape(-1)[:count])
