"""Padding: the parts of a kept buffer that are communicated with the others and never read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from math import prod

from msgspec.structs import replace

from pitcheck.frontends.torch.planning.groups import with_communicators
from pitcheck.frontends.torch.rewrites.split_flat_buffers import VIEWS, Key, without_flat_buffers
from pitcheck.frontends.torch.trace import Event, Given, Trace, operands

POINT_TO_POINT = ("send", "receive")


def without_padding(traces: Sequence[Trace], known: Collection[str]) -> list[Trace]:
    """Return the traces with zeros for the parts of kept buffers on which no result depends.

    No result of any rank may depend on them. ``known`` are the names of the reference's state. A
    buffer that is read as a whole has no padding; it is state.
    """
    names = {
        given.name for trace in traces for given in trace.given if _is_part(trace, given, known)
    }
    if not names:
        return list(traces)
    bare = [
        replace(
            trace, results=tuple(result for result in trace.results if result.name not in names)
        )
        for trace in traces
    ]
    apart = without_flat_buffers(with_communicators(bare), through=True)
    needed = _needed(apart)
    names -= {
        given.name
        for trace in apart
        for given in trace.given
        if given.role == "kept" and given.value in needed[trace.rank]
    }
    return [_zeroed(trace, names) for trace in traces]


def _is_part(trace: Trace, given: Given, known: Collection[str]) -> bool:
    """Return True if only parts are read of a buffer that the reference does not have."""
    if given.role != "kept" or given.idle or given.name in known:
        return False
    whole, size = {given.value}, prod(trace.values[given.value].shape)
    for event in trace.events:
        if whole.isdisjoint(operands(event.arguments)):
            continue
        if event.operator in VIEWS:
            whole.update(event.tensors)
        elif event.operator != "slice.Tensor" or any(
            number is None or prod(trace.values[number].shape) >= size for number in event.outputs
        ):
            return False
    return whole.isdisjoint(result.value for result in trace.results if result.name != given.name)


def _needed(traces: Sequence[Trace]) -> dict[int, set[int]]:
    """Return for each rank the values on which a result of any rank depends.

    A collective is needed by all of its members or by none.
    """
    keys = {trace.rank: _keys(trace) for trace in traces}
    live: set[Key] = set()
    while True:
        before = len(live)
        needed = {trace.rank: _of_rank(trace, keys[trace.rank], live) for trace in traces}
        if len(live) == before:
            return needed


def _keys(trace: Trace) -> list[Key | None]:
    counts: dict[tuple[tuple[int, ...], str], int] = defaultdict(int)
    found: list[Key | None] = []
    for event in trace.events:
        group = event.group, event.communicator
        collective = bool(event.group) and event.operator not in POINT_TO_POINT
        found.append((*group, counts[group]) if collective else None)
        counts[group] += collective
    return found


def _of_rank(trace: Trace, keys: Sequence[Key | None], live: set[Key]) -> set[int]:
    """Return the values that a rank needs if the collectives in ``live`` are needed.

    Adds the collectives that the rank itself needs to ``live``.
    """
    needed = {result.value for result in trace.results}
    for event, key in zip(reversed(trace.events), reversed(keys), strict=True):
        wanted = not needed.isdisjoint(event.tensors)
        if wanted and key is not None:
            live.add(key)
        if wanted or _is_sent(event) or key in live:
            needed.update(operands(event.arguments))
    return needed


def _is_sent(event: Event) -> bool:
    return event.operator in POINT_TO_POINT


def _zeroed(trace: Trace, names: Collection[str]) -> Trace:
    given = tuple(
        Given(own.value, "constant", "", number=0.0)
        if own.role == "kept" and own.name in names
        else own
        for own in trace.given
    )
    return replace(
        trace,
        given=given,
        results=tuple(
            result
            for result in trace.results
            if result.kind != "updated" or result.name not in names
        ),
    )
