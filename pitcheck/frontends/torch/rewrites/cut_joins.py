"""Parts of joins that lie in one of the tensors that were joined.

A flat buffer is joined and split over ranks, and parts of that are cut out again. A part does not
depend on what lies beside it, such as padding that lies behind parameters of any value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec

from pitcheck.frontends.torch.recording.tape import Kind
from pitcheck.frontends.torch.trace import Event, Ref, operands

MOVING = frozenset({"cat.default", "clone.default", "split.Tensor"})
"""The operators through which a part of a row is followed."""


class _Cut(NamedTuple):
    """The elements ``start`` to ``stop`` of a value of one dimension."""

    value: int
    start: int
    stop: int


def through_joins(events: Sequence[Event], kinds: Sequence[Kind]) -> list[Event]:
    """Return the events; a part of a join of rows is cut out of the row in which it lies.

    ``kinds`` has the shape and dtype of each value.
    """
    makers = {
        value: event
        for event in events
        if event.operator in MOVING and _moves_rows(event, kinds)
        for value in event.tensors
    }
    return [
        _cut(event, makers, kinds) if event.operator == "slice.Tensor" else event
        for event in events
    ]


def _moves_rows(event: Event, kinds: Sequence[Kind]) -> bool:
    """Return True if an event moves elements of rows; a join of several dtypes casts them, too."""
    values = [*event.tensors, *operands(event.arguments)]
    return all(
        len(kinds[value].shape) == 1 and kinds[value].dtype == kinds[values[0]].dtype
        for value in values
    )


def _cut(event: Event, makers: Mapping[int, Event], kinds: Sequence[Kind]) -> Event:
    """Return the cut of a row, out of the first tensor that has all of it behind the last join."""
    source, dim, start, stop, step = event.arguments
    if not (
        isinstance(source, Ref)
        and source.value in makers
        and (dim, step) == (0, 1)
        and isinstance(start, int)
        and isinstance(stop, int)
        and 0 <= start < stop
    ):
        return event
    at: _Cut | None = _Cut(source.value, start, min(stop, kinds[source.value].shape[0]))
    found = None
    while at is not None and (maker := makers.get(at.value)) is not None:
        at = _inside(at, maker, kinds)
        if at is not None and maker.operator == "cat.default":
            found = at
    if found is None:
        return event
    return msgspec.structs.replace(
        event, arguments=(Ref(found.value), 0, found.start, found.stop, 1)
    )


def _inside(cut: _Cut, maker: Event, kinds: Sequence[Kind]) -> _Cut | None:
    """Return the cut as one of an operand of what made the value; None if it lies in several."""
    rows = operands(maker.arguments)
    if maker.operator != "cat.default":
        size = maker.arguments[1] if maker.operator == "split.Tensor" else 0
        before = maker.outputs.index(cut.value) * size if isinstance(size, int) else 0
        return _Cut(rows[0], cut.start + before, cut.stop + before)
    ends = [0, *accumulate(kinds[row].shape[0] for row in rows)]
    for row, (begin, end) in zip(rows, pairwise(ends), strict=True):
        if begin <= cut.start and cut.stop <= end:
            return _Cut(row, cut.start - begin, cut.stop - begin)
    return None
