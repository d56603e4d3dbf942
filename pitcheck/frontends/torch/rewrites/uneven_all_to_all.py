"""All-to-alls whose parts have different sizes, as sends and receives in one batch.

Plans have only all-to-alls of equal parts. No rank can decide alone: one whose own parts are equal
may take part in an exchange in which those of others are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from pitcheck.errors import PlanError
from pitcheck.frontends.torch.trace import Argument, Event, Ref, Trace, Value

Call = tuple[tuple[int, ...], str, int]
"""The ranks and the name of a group, and the number of its all-to-all."""


def with_even_parts(traces: Sequence[Trace]) -> list[Trace]:
    """Return the traces without all-to-alls in which some member has parts of different sizes.

    Raises PlanError for sizes that do not add up.
    """
    uneven = {
        call
        for trace in traces
        for event, call in _calls(trace)
        if call is not None and _is_uneven(event)
    }
    return [_Rewriting(trace).without(uneven) for trace in traces] if uneven else list(traces)


def _calls(trace: Trace) -> Iterator[tuple[Event, Call | None]]:
    """Yield all events, each with the all-to-all that it takes part in, or None."""
    counts: Counter[tuple[tuple[int, ...], str]] = Counter()
    for event in trace.events:
        if event.operator != "all_to_all":
            yield event, None
            continue
        group = event.group, event.communicator
        yield event, (*group, counts[group])
        counts[group] += 1


def _is_uneven(event: Event) -> bool:
    return any(isinstance(sizes, tuple) and len(set(sizes)) > 1 for sizes in event.arguments[1:])


def part_sizes(event: Event, name: str, sizes: Argument, rows: int) -> tuple[int, ...]:
    """Return the rows of every member's part of an all-to-all; equal ones if none are stated.

    Raises PlanError for sizes that do not add up to ``rows``.
    """
    members = len(event.group)
    if not isinstance(sizes, tuple):
        if rows % members:
            raise PlanError(
                f"{event.source}: an all_to_all of {members} ranks with {rows} rows, which are "
                f"not cut into equal parts"
            )
        return (rows // members,) * members
    found = tuple(size for size in sizes if isinstance(size, int))
    if len(found) != members or sum(found) != rows:
        raise PlanError(
            f"{event.source}: an all_to_all of {members} ranks with {rows} rows has {name} "
            f"{list(found)}; they must be one per rank, and add up"
        )
    return found


class _Rewriting:
    """The rewriting of one trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._values = list(trace.values)
        self._events: list[Event] = []

    def without(self, calls: set[Call]) -> Trace:
        """Return the trace with sends and receives in the place of these calls."""
        for number, (event, call) in enumerate(_calls(self._trace)):
            if call in calls:
                # Batches that the program launched itself have numbers above 0.
                self._exchange(event, -1 - number)
            else:
                self._events.append(event)
        return msgspec.structs.replace(
            self._trace, values=tuple(self._values), events=tuple(self._events)
        )

    def _exchange(self, event: Event, batch: int) -> None:
        x, sent, received = event.arguments
        (output,) = event.outputs
        if not isinstance(x, Ref) or output is None:
            raise PlanError(f"{event.source}: an all_to_all without a tensor")
        parts = self._parts(
            event, x.value, part_sizes(event, "sizes sent", sent, self._rows(x.value))
        )
        tag = f"all_to_all of {', '.join(map(str, event.group))}"
        got: dict[int, int] = {}
        for member, rank in enumerate(event.group):
            if rank == self._trace.rank and member in parts:
                got[member] = parts[member]
            elif member in parts:
                self._event(event, "send", (Ref(parts[member]), rank, tag), None, batch)
        for member, (rank, size) in enumerate(
            zip(
                event.group,
                part_sizes(event, "sizes received", received, self._rows(output)),
                strict=True,
            )
        ):
            if rank == self._trace.rank and size != (
                self._rows(got[member]) if member in got else 0
            ):
                raise PlanError(
                    f"{event.source}: an all_to_all in which rank {rank} receives {size} rows of "
                    f"itself, and sends itself another number"
                )
            if rank != self._trace.rank and size:
                got[member] = self._value(size, output)
                self._event(event, "receive", (rank, tag), got[member], batch)
        self._event(
            event, "cat.default", (tuple(Ref(got[member]) for member in sorted(got)), 0), output
        )

    def _parts(self, event: Event, x: int, sizes: Sequence[int]) -> dict[int, int]:
        """Return the part for every member that is sent any rows."""
        parts, begin = {}, 0
        for member, size in enumerate(sizes):
            if size:
                parts[member] = self._value(size, x)
                self._event(
                    event, "slice.Tensor", (Ref(x), 0, begin, begin + size, 1), parts[member]
                )
            begin += size
        return parts

    def _rows(self, value: int) -> int:
        return self._values[value].shape[0]

    def _value(self, rows: int, like: int) -> int:
        known = self._values[like]
        self._values.append(Value((rows, *known.shape[1:]), known.dtype))
        return len(self._values) - 1

    def _event(
        self,
        origin: Event,
        operator: str,
        arguments: tuple[Argument, ...],
        output: int | None,
        batch: int | None = None,
    ) -> None:
        outputs = () if output is None else (output,)
        group = origin.group if batch is not None else ()
        self._events.append(
            Event(
                operator,
                arguments,
                outputs,
                group,
                origin.source,
                origin.module,
                origin.backward,
                batch,
                origin.communicator if group else "",
            )
        )
