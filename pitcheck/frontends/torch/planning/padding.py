"""Padding: the parts of a kept buffer that are communicated with the others and never read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from msgspec.structs import replace

from pitcheck.frontends.torch.planning.groups import with_communicators
from pitcheck.frontends.torch.rewrites.needed_elements import needed_elements
from pitcheck.frontends.torch.rewrites.split_flat_buffers import VIEWS
from pitcheck.frontends.torch.trace import Given, Trace, operands


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
    bare = with_communicators(bare)
    needed = needed_elements(bare)
    names -= {
        given.name
        for trace in bare
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
