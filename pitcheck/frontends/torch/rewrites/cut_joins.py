"""Parts of joins that lie in one of the tensors that were joined.

A flat buffer is joined, and parts of it are cut out again. A part does not depend on what lies
beside it, such as padding that lies behind parameters of any value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec

from pitcheck.frontends.torch.recording.tape import Kind
from pitcheck.frontends.torch.trace import Event, Ref, operands


class _Cut(NamedTuple):
    """The elements ``start`` to ``stop`` of a value of one dimension."""

    value: int
    start: int
    stop: int


def through_joins(events: Sequence[Event], kinds: Sequence[Kind]) -> list[Event]:
    """Return the events; a part of a join of rows is cut out of the row in which it lies.

    ``kinds`` has the shape and dtype of each value.
    """
    joins = {
        event.tensors[0]: event
        for event in events
        if event.operator == "cat.default" and _moves_rows(event, kinds)
    }
    return [
        _cut(event, joins, kinds) if event.operator == "slice.Tensor" else event for event in events
    ]


def _moves_rows(event: Event, kinds: Sequence[Kind]) -> bool:
    """Return True for a join of rows; one of several dtypes casts them, which is more."""
    values = [*event.tensors, *operands(event.arguments)]
    return len(event.tensors) == 1 and all(
        len(kinds[value].shape) == 1 and kinds[value].dtype == kinds[values[0]].dtype
        for value in values
    )


def _cut(event: Event, joins: Mapping[int, Event], kinds: Sequence[Kind]) -> Event:
    source, dim, start, stop, step = event.arguments
    if not (
        isinstance(source, Ref)
        and source.value in joins
        and dim == 0
        and step == 1
        and isinstance(start, int)
        and isinstance(stop, int)
        and 0 <= start < stop
    ):
        return event
    cut = _Cut(source.value, start, min(stop, kinds[source.value].shape[0]))
    while cut.value in joins:
        inner = _inside(cut, joins[cut.value], kinds)
        if inner is None:
            break
        cut = inner
    if cut.value == source.value:
        return event
    return msgspec.structs.replace(event, arguments=(Ref(cut.value), 0, cut.start, cut.stop, 1))


def _inside(cut: _Cut, join: Event, kinds: Sequence[Kind]) -> _Cut | None:
    """Return the part as one of a tensor that was joined, None if it lies in several."""
    rows = operands(join.arguments)
    ends = [0, *accumulate(kinds[row].shape[0] for row in rows)]
    for row, (begin, end) in zip(rows, pairwise(ends), strict=True):
        if begin <= cut.start and cut.stop <= end:
            return _Cut(row, cut.start - begin, cut.stop - begin)
    return None
