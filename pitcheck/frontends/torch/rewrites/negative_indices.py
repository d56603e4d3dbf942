"""Known indices that count from the end of a dimension, as PyTorch's indexing allows them.

A plan counts from the front only. PyTorch has the numbers of these indices, so that the same places
can be named from the front.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from msgspec.structs import replace
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.frontends.torch.recording.tape import Tape
from pitcheck.frontends.torch.trace import Argument, Event, Ref

BY_INDICES = frozenset(
    f"{prefix}{name}"
    for prefix in ("", "_unsafe_")
    for name in ("index.Tensor", "index_put.default")
)
"""The operators whose second argument has an index, or nothing, for each dimension of the first."""
FILLED = "index_fill.int_Scalar"
"""The operator whose indices are of one dimension."""


def from_the_front(events: Sequence[Event], tape: Tape) -> list[Event]:
    """Return the events, in which known indices count from the front of their dimension."""
    return [_in_front(event, tape) for event in events]


def _in_front(event: Event, tape: Tape) -> Event:
    if event.operator in BY_INDICES:
        return _changed(event, tape)
    if event.operator != FILLED:
        return event
    base, dim, index, *others = event.arguments
    if not isinstance(base, Ref) or not isinstance(dim, int):
        return event
    front = _counted(index, tape.kinds[base.value].shape[dim], tape)
    return replace(event, arguments=(base, dim, front, *others))


def _changed(event: Event, tape: Tape) -> Event:
    base, indices, *others = event.arguments
    if not isinstance(base, Ref) or not isinstance(indices, tuple):
        return event
    found = [index for index in indices if isinstance(index, Ref)]
    if any(tape.kinds[index.value].dtype == torch.bool for index in found):
        return event  # a mask covers several dimensions
    sizes = tape.kinds[base.value].shape
    front = tuple(_counted(index, sizes[axis], tape) for axis, index in enumerate(indices))
    return event if front == indices else replace(event, arguments=(base, front, *others))


def _counted(index: Argument, size: int, tape: Tape) -> Argument:
    """Return an index from the front of a dimension; what is not known stays as it is."""
    known = tape.known.get(index.value) if isinstance(index, Ref) else None
    if known is None:
        return index
    with _disable_current_modes():
        if not bool((known < 0).any()):
            return index
        return Ref(tape.constant(torch.where(known < 0, known + size, known)))
