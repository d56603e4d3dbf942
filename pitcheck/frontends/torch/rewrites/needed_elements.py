"""The elements on which results depend, through views, joins, cuts and collectives.

Elements are counted in flattened tensors. Any other operator needs its operands as wholes.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import prod

from pitcheck.frontends.torch.rewrites.split_flat_buffers import EACH, VIEWS, WHOLE, Key
from pitcheck.frontends.torch.trace import Event, Intervals, Ref, Trace, operands

POINT_TO_POINT = ("send", "receive")
EVERYTHING: Intervals = ((0, sys.maxsize),)
"""All elements of the operand of a member, which may be larger than that of another one."""
Demands = dict[tuple[Key, int], Intervals]
"""The elements of its operand that a rank must have for the others of a collective."""


def needed_elements(traces: Sequence[Trace]) -> dict[int, dict[int, Intervals]]:
    """Return for each rank the elements of values on which a result of any rank depends."""
    keys = {trace.rank: _keys(trace) for trace in traces}
    demands: Demands = {}
    while True:
        before = dict(demands)
        found = {trace.rank: _of_rank(trace, keys[trace.rank], demands) for trace in traces}
        if demands == before:
            return found


def _keys(trace: Trace) -> list[Key | None]:
    counts: dict[tuple[tuple[int, ...], str], int] = defaultdict(int)
    found: list[Key | None] = []
    for event in trace.events:
        group = event.group, event.communicator
        collective = bool(event.group) and event.operator not in POINT_TO_POINT
        found.append((*group, counts[group]) if collective else None)
        counts[group] += collective
    return found


def _of_rank(trace: Trace, keys: Sequence[Key | None], demands: Demands) -> dict[int, Intervals]:
    """Return the elements that a rank needs; add to ``demands`` what it needs of others."""
    needed: dict[int, Intervals] = {}

    def need(value: int, elements: Iterable[tuple[int, int]]) -> None:
        if merged := union(needed.get(value, ()), elements):
            needed[value] = merged

    for result in trace.results:
        need(result.value, _whole(trace, result.value))
    for event, key in zip(reversed(trace.events), reversed(keys), strict=True):
        if key is not None:
            _demand(trace, event, key, needed, demands)
            asked = demands.get((key, trace.rank), ())
            for value in operands(event.arguments):
                need(value, within(asked, 0, _size(trace, value)))
        elif event.operator in POINT_TO_POINT:
            for value in operands(event.arguments):
                need(value, _whole(trace, value))
        elif any(out in needed for out in event.tensors):
            for value, elements in _operands(trace, event, needed):
                need(value, elements)
    return needed


def _demand(
    trace: Trace, event: Event, key: Key, needed: dict[int, Intervals], demands: Demands
) -> None:
    """Add what a collective needs of the operand of each member."""
    wanted = [(out, needed[out]) for out in event.tensors if out in needed]
    place = event.group.index(trace.rank)
    for out, elements in wanted:
        size = prod(trace.values[out].shape)
        for number, member in enumerate(event.group):
            if event.operator == "all_gather":
                own = size // len(event.group)
                theirs = moved(within(elements, number * own, (number + 1) * own), -number * own)
            elif event.operator in WHOLE:
                theirs = elements
            elif event.operator == "reduce_scatter":
                theirs = moved(elements, place * size)
            else:
                theirs = EVERYTHING
            demands[key, member] = union(demands.get((key, member), ()), theirs)


def _operands(
    trace: Trace, event: Event, needed: dict[int, Intervals]
) -> Iterator[tuple[int, Intervals]]:
    """Yield each operand of an event of one rank with the elements that its outputs need."""
    moves = _moves(trace, event)
    if moves is None:
        yield from ((value, _whole(trace, value)) for value in operands(event.arguments))
        return
    for value, out, offset in moves:
        size = prod(trace.values[value].shape)
        yield value, within(moved(needed.get(out, ()), offset), 0, size)


def _moves(trace: Trace, event: Event) -> list[tuple[int, int, int]] | None:
    """Return operand, output and the distance from elements of the output to the operand's.

    None for an operator that does more than to move neighbouring elements, or that computes each of
    several operands.
    """
    arguments, outs = event.arguments, event.outputs
    first = arguments[0] if arguments else None
    if isinstance(first, Ref) and outs:
        shape = trace.values[first.value].shape
        if len(operands(arguments)) > 1:
            return None
        moves = event.operator in (*VIEWS, "wait") or event.operator in EACH
        if moves and outs[0] is not None:
            return [(first.value, outs[0], 0)]
        starts = _starts(event, shape)
        if starts is not None:
            row = prod(shape[1:])
            return [
                (first.value, out, start * row)
                for out, start in zip(outs, starts, strict=True)
                if out is not None
            ]
    if event.operator == "cat.default" and isinstance(first, tuple) and outs[0] is not None:
        dim, values = arguments[1], [part.value for part in first if isinstance(part, Ref)]
        shape = trace.values[outs[0]].shape
        if len(values) == len(first) and isinstance(dim, int) and dim % len(shape) == 0:
            ends = (0, *accumulate(prod(trace.values[value].shape) for value in values))
            return [(value, outs[0], -end) for value, end in zip(values, ends, strict=False)]
    return None


def _starts(event: Event, shape: tuple[int, ...]) -> list[int] | None:
    """Return the first row of everything that is cut out along the first dimension.

    None for an event that does something else.
    """
    arguments = event.arguments
    if event.operator == "slice.Tensor" and arguments[4] == 1:
        dim, start = arguments[1], arguments[2]
        found = [start] if isinstance(start, int) and start >= 0 else None
    elif event.operator == "split_with_sizes.default" and isinstance(arguments[1], tuple):
        dim = arguments[2]
        sizes = [size for size in arguments[1] if isinstance(size, int)]
        found = [0, *accumulate(sizes)][:-1]
    elif event.operator == "split.Tensor" and isinstance(arguments[1], int):
        dim, found = arguments[2], list(range(0, shape[0] if shape else 0, arguments[1]))
    else:
        return None
    plain = shape and isinstance(dim, int) and dim % len(shape) == 0
    return found if plain and found is not None and len(found) == len(event.outputs) else None


def _whole(trace: Trace, value: int) -> Intervals:
    return ((0, _size(trace, value)),)


def _size(trace: Trace, value: int) -> int:
    """Return the number of elements, and 1 for an empty value, which is needed or not as well."""
    return max(prod(trace.values[value].shape), 1)


def union(*several: Iterable[tuple[int, int]]) -> Intervals:
    """Return the elements of all intervals, as sorted intervals that do not touch.

    >>> union([(0, 2), (5, 6)], [(1, 3)])
    ((0, 3), (5, 6))
    """
    found: list[tuple[int, int]] = []
    for start, stop in sorted(interval for intervals in several for interval in intervals):
        if start >= stop:
            continue
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return tuple(found)


def within(elements: Intervals, first: int, last: int) -> Intervals:
    """Return the elements from ``first`` to ``last`` (exclusive)."""
    cut = ((max(start, first), min(stop, last)) for start, stop in elements)
    return tuple((start, stop) for start, stop in cut if start < stop)


def moved(elements: Intervals, by: int) -> Intervals:
    """Return intervals that begin and end so many elements later."""
    return tuple((start + by, stop + by) for start, stop in elements)
