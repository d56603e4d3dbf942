"""Batches of sends and receives, which begin together: what they read is computed before."""

from __future__ import annotations

from msgspec.structs import replace

from pitcheck.frontends.torch.trace import Event, Trace, operands


def with_whole_batches(trace: Trace) -> Trace:
    """Return a trace; what a member of a batch reads is computed before the first member.

    A read of a view, or of memory that was written in pieces, is recorded as operators right before
    the send that reads it. The program has written that memory before the batch. An operator that
    needs what the batch receives stays behind it.
    """
    last = {
        event.batch: place for place, event in enumerate(trace.events) if event.batch is not None
    }
    found: list[Event] = []
    behind: list[Event] = []
    made: set[int] = set()
    end = -1
    for place, event in enumerate(trace.events):
        if event.batch is not None:
            end = max(end, last[event.batch])
        if end < place or not (event.meets or made & set(operands(event.arguments))):
            found.append(event)
        else:
            behind.append(event)
            made.update(event.tensors)
        if end <= place:
            found += behind
            behind, made = [], set()
    return replace(trace, events=tuple(found))
