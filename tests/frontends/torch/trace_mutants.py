"""Traces with one collective that is left out, run twice, run by other ranks, or of another kind, on all ranks that take part or on one of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from pitcheck.frontends.torch.trace import Event, Ref, Trace, Value

Key = tuple[tuple[int, ...], int]
"""A group, and how many collectives it ran before."""
Mutant = tuple[str, list[Trace]]
REDUCING = ("all_reduce", "reduce_scatter")


def mutants(traces: Sequence[Trace], groups: Sequence[tuple[int, ...]]) -> Iterator[Mutant]:
    """All mutants by name; ``groups`` are those that may be tried in place of a collective's own."""
    for key, (event, ranks) in collectives(traces).items():
        name = f"{event.operator} {key[1]} of {key[0]} ({event.source.rpartition('/')[2]}{' backward' if event.backward else ''})"
        yield f"{name}: dropped", changed(traces, key, ranks, alone)
        if event.operator == "all_reduce":
            yield f"{name}: dropped on rank {ranks[0]} alone", changed(traces, key, ranks[:1], alone)
            yield f"{name}: doubled", changed(traces, key, ranks, doubled)
        if event.operator in REDUCING:
            other = "avg" if event.arguments[1] == "sum" else "sum"
            yield f"{name}: {other}", changed(traces, key, ranks, lambda event, trace, other=other: [replace(event, arguments=(event.arguments[0], other))])
        regrouped = regrouping(key[0], groups)
        if regrouped:
            yield f"{name}: over other ranks", changed(traces, key, ranks, lambda event, trace, to=regrouped: [replace(event, group=to[trace.rank])])


def collectives(traces: Sequence[Trace]) -> dict[Key, tuple[Event, list[int]]]:
    """The collectives with the ranks that run them."""
    found: dict[Key, tuple[Event, list[int]]] = {}
    for trace in traces:
        counts: dict[tuple[int, ...], int] = defaultdict(int)
        for event in trace.events:
            if event.group:
                found.setdefault((event.group, counts[event.group]), (event, []))[1].append(trace.rank)
                counts[event.group] += 1
    return found


def regrouping(group: tuple[int, ...], groups: Sequence[tuple[int, ...]]) -> Mapping[int, tuple[int, ...]]:
    """By rank of a group another group of that size; empty where there is none."""
    others = {rank: next((g for g in groups if rank in g and g != group and len(g) == len(group)), None) for rank in group}
    return {} if None in others.values() else {rank: other for rank, other in others.items() if other is not None}


def changed(traces: Sequence[Trace], key: Key, ranks: Sequence[int], change) -> list[Trace]:
    """The traces in which ``change`` gives the events in place of one collective on some ranks. It may name a new value by the number that comes next."""
    return [_changed(trace, key, change) if trace.rank in ranks else trace for trace in traces]


def _changed(trace: Trace, key: Key, change) -> Trace:
    events: list[Event] = []
    seen = 0
    more: list[Value] = []
    for event in trace.events:
        if event.group == key[0]:
            seen += 1
        if event.group != key[0] or seen != key[1] + 1 or any(e.group == key[0] and e.outputs == event.outputs for e in events):
            events.append(event)
            continue
        for new in change(event, trace):
            own = Ref(len(trace.values))
            if new.outputs == (-1,):
                more.append(trace.values[event.outputs[0]])
            outputs = (own.value,) if new.outputs == (-1,) else new.outputs
            events.append(replace(new, outputs=outputs, arguments=tuple(own if argument == Ref(-1) else argument for argument in new.arguments)))
    return replace(trace, events=tuple(events), values=(*trace.values, *more))


def alone(event: Event, trace: Trace) -> list[Event]:
    """What a rank has where nobody communicates: itself, as often as there are members, or its own part of itself."""
    place, size = event.group.index(trace.rank), len(event.group)
    given = event.arguments[0]
    plain = replace(event, group=())
    if event.operator == "all_gather":
        return [replace(plain, operator="cat.default", arguments=((given,) * size, 0))]
    if event.operator == "reduce_scatter":
        rows = trace.values[event.outputs[0]].shape[0]
        outputs = tuple(event.outputs[0] if n == place else None for n in range(size))
        return [replace(plain, operator="split.Tensor", arguments=(given, rows, 0), outputs=outputs)]
    return [replace(plain, operator="clone.default", arguments=(given, None))]


def doubled(event: Event, trace: Trace) -> list[Event]:
    """The collective, and the collective of its result."""
    return [replace(event, outputs=(-1,)), replace(event, arguments=(Ref(-1), *event.arguments[1:]))]
