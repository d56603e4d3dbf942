"""Traces with one mistake in their communication: left out, done twice, over other ranks, scaled,
of another kind, with another peer or another buffer.

Where all ranks communicate alike, a mistake is made at the same place of all of them, of one group,
or of one rank; else of one group, or of one rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from msgspec.structs import replace

from pitcheck.frontends.torch.trace import Event, Ref, Trace, Value

Group = tuple[int, ...]
Place = Mapping[int, int]
"""By rank the number of its event."""
Draft = Callable[["Rank", Event], None]
"""Says what a rank does in place of an event."""

REDUCING = ("all_reduce", "reduce_scatter")
SAME_SHAPE = ("all_reduce", "broadcast")
PASSING = ("send", "receive")
OTHER_KINDS = {
    "sum": ("avg", "max"),
    "avg": ("sum", "min"),
    "max": ("min", "sum"),
    "min": ("max", "sum"),
    "product": ("sum", "max"),
}


@dataclass(frozen=True)
class Mutant:
    """``kind``: what is done, in one word; ``name``: that, and where."""

    kind: str
    name: str
    traces: list[Trace]


class Rank:
    """A trace in the making, event by event."""

    def __init__(self, trace: Trace) -> None:
        self.number = trace.rank
        self.values = list(trace.values)
        self.events: list[Event] = []
        self.unwaited: set[int] = set()
        self._trace = trace

    def new(self, like: Value) -> int:
        """A value that the trace did not have."""
        self.values.append(like)
        return len(self.values) - 1

    def alone(
        self,
        event: Event,
        operator: str,
        *arguments: object,
        outputs: tuple[int | None, ...] | None = None,
    ) -> None:
        """An operator of this rank alone in place of an event, whose results nobody has to wait
        for.
        """
        self.unwaited.update(value for value in event.outputs if value is not None)
        self.events.append(
            replace(
                event,
                operator=operator,
                arguments=arguments,
                outputs=event.outputs if outputs is None else outputs,
                group=(),
            )
        )

    def held(self, event: Event, value: int) -> None:
        """Give a buffer the contents that it held before."""
        self.alone(event, "clone.default", Ref(value), None)

    def changed(self, at: int, draft: Draft | None) -> Trace:
        """The trace with another event at one place; None: without it."""
        for number, event in enumerate(self._trace.events):
            if number == at:
                if draft is not None:
                    draft(self, event)
            elif event.operator == "wait" and event.arguments[0].value in self.unwaited:
                self.alone(event, "clone.default", event.arguments[0], None)
            else:
                self.events.append(event)
        return replace(self._trace, values=tuple(self.values), events=tuple(self.events))


def mutants(traces: Sequence[Trace], mesh: Mapping[str, int]) -> Iterator[Mutant]:
    """All of them. ``mesh``: the size of every axis."""
    groupings = list(_groupings(mesh))
    for family in _families(traces):
        yield from _of_collective(traces, family, groupings)
    yield from _of_pairs(traces)


# --- collectives


@dataclass(frozen=True)
class Family:
    """The collectives that stand at one place of all ranks that have them."""

    place: Place
    events: Mapping[int, Event]

    @property
    def event(self) -> Event:
        """The event of the first rank."""
        return self.events[min(self.events)]

    @property
    def groups(self) -> list[Group]:
        """Those that run it."""
        return list(dict.fromkeys(event.group for event in self.events.values()))


def _families(traces: Sequence[Trace]) -> list[Family]:
    found = {
        trace.rank: [
            n
            for n, event in enumerate(trace.events)
            if event.group and event.operator not in PASSING
        ]
        for trace in traces
    }
    kinds = {
        tuple((trace.events[n].operator, len(trace.events[n].group)) for n in found[trace.rank])
        for trace in traces
    }
    places: list[dict[int, int]] = []
    if len(kinds) == 1:
        places = [
            dict(zip(found, numbers, strict=True)) for numbers in zip(*found.values(), strict=True)
        ]
    else:
        of: dict[tuple[Group, int], dict[int, int]] = defaultdict(dict)
        for trace in traces:
            counts: dict[Group, int] = defaultdict(int)
            for number in found[trace.rank]:
                group = trace.events[number].group
                of[group, counts[group]][trace.rank] = number
                counts[group] += 1
        places = list(of.values())
    events = {trace.rank: trace.events for trace in traces}
    return [
        Family(place, {rank: events[rank][number] for rank, number in place.items()})
        for place in places
    ]


def _of_collective(
    traces: Sequence[Trace], family: Family, groupings: Sequence[Mapping[int, Group]]
) -> Iterator[Mutant]:
    event, members = family.event, len(family.event.group)
    first = family.groups[0]
    everywhere, here, one = list(family.place), list(first), [first[0]]

    def mutant(kind: str, ranks: Sequence[int], what: str, draft: Draft) -> Mutant:
        where = "everywhere" if ranks == everywhere else f"on ranks {ranks}"
        return Mutant(
            kind,
            f"{_said(event)}: {what} {where}",
            _changed(traces, {rank: family.place[rank] for rank in ranks}, draft),
        )

    if members > 1:
        yield mutant("dropped", everywhere, "dropped", dropped)
        if len(family.groups) > 1:
            yield mutant("dropped", here, "dropped", dropped)
        yield mutant("dropped", one, "dropped", dropped)
        if event.operator != "all_to_all" or event.arguments[1:] == (None, None):
            yield mutant("doubled", everywhere, "doubled", doubled)
        for other in OTHER_KINDS[event.arguments[1]] if event.operator in REDUCING else ():
            yield mutant("kind", everywhere, f"{event.arguments[1]} is {other}", _of_kind(other))
        if event.operator in REDUCING:
            yield mutant("kind", one, "another kind", _of_kind(OTHER_KINDS[event.arguments[1]][0]))
        if event.operator not in SAME_SHAPE:
            yield mutant(
                "regrouped",
                everywhere,
                "members in another order",
                lambda rank, event: rank.events.append(replace(event, group=event.group[::-1])),
            )
    yield mutant("scaled", everywhere, "times 2", _scaled(2.0))
    yield mutant("scaled", one, "times 0.5", _scaled(0.5))
    for grouping in groupings:
        same = all(len(grouping[rank]) == members for rank in everywhere)
        if any(grouping[rank] != family.events[rank].group for rank in everywhere) and (
            same or event.operator == "all_reduce"
        ):
            yield mutant(
                "regrouped", everywhere, f"over {sorted(set(grouping.values()))}", _over(grouping)
            )
    if len(family.groups) > 1:
        yield mutant("regrouped", one, "in the next group", _over({one[0]: family.groups[1]}))
    yield from _other_operands(traces, family, mutant)


def _other_operands(
    traces: Sequence[Trace], family: Family, mutant: Callable[..., Mutant]
) -> Iterator[Mutant]:
    """The operand of the collective of that kind before it, which has the same shape."""
    before: dict[int, Ref] = {}
    for trace in traces:
        place = family.place.get(trace.rank)
        if place is None:
            continue
        event = trace.events[place]
        like = trace.values[event.arguments[0].value]
        for other in trace.events[:place]:
            if (
                other.operator == event.operator
                and other.arguments[0] != event.arguments[0]
                and trace.values[other.arguments[0].value] == like
            ):
                before[trace.rank] = other.arguments[0]
    if len(before) == len(family.place):
        operands = dict(before)
        yield mutant(
            "stale",
            list(family.place),
            "stale operand",
            lambda rank, event: rank.events.append(_given(event, operands[rank.number])),
        )


def _given(event: Event, operand: Ref) -> Event:
    return replace(event, arguments=(operand, *event.arguments[1:]))


def _groupings(mesh: Mapping[str, int]) -> Iterator[Mapping[int, Group]]:
    """By rank its group along every set of axes, none among them: itself alone."""
    sizes = tuple(mesh.values())
    grid = np.arange(int(np.prod(sizes))).reshape(sizes)
    axes = [axis for axis, size in enumerate(sizes) if size > 1]
    for count in range(len(axes) + 1):
        for chosen in combinations(axes, count):
            rows = (
                np.moveaxis(grid, chosen, range(-count, 0))
                .reshape(-1, int(np.prod([sizes[axis] for axis in chosen], dtype=int)))
                .tolist()
            )
            yield {rank: tuple(row) for row in rows for rank in row}


def dropped(rank: Rank, event: Event) -> None:
    """Replace a collective by what a rank has if nobody communicates.

    That is its own value, as often as there are members, or its own part of it.
    """
    place, size = event.group.index(rank.number), len(event.group)
    given = event.arguments[0]
    if event.operator == "all_gather":
        rank.alone(event, "cat.default", (given,) * size, 0)
    elif event.operator == "reduce_scatter":
        rows = rank.values[event.outputs[0]].shape[0]
        rank.alone(
            event,
            "split.Tensor",
            given,
            rows,
            0,
            outputs=tuple(event.outputs[0] if n == place else None for n in range(size)),
        )
    elif (
        event.operator == "all_to_all"
        and rank.values[given.value].shape != rank.values[event.outputs[0]].shape
    ):
        shape, dtype = rank.values[event.outputs[0]].shape, rank.values[event.outputs[0]].dtype
        rank.alone(event, "full.default", shape, 0, dtype, None, None, None)
    else:
        rank.held(event, given.value)


def doubled(rank: Rank, event: Event) -> None:
    """The collective, and the collective of its result; where that has another shape the collective
    again, of which the first is for nothing.
    """
    given, own = event.arguments[0], rank.values[event.outputs[0]]
    between = rank.new(own)
    rank.events.append(replace(event, outputs=(between,)))
    rank.events.append(
        _given(event, Ref(between)) if rank.values[given.value].shape == own.shape else event
    )


def _of_kind(kind: str) -> Draft:
    return lambda rank, event: rank.events.append(
        replace(event, arguments=(event.arguments[0], kind))
    )


def _over(grouping: Mapping[int, Group]) -> Draft:
    return lambda rank, event: rank.events.append(replace(event, group=grouping[rank.number]))


def _scaled(factor: float) -> Draft:
    """The operand times a number."""

    def draft(rank: Rank, event: Event) -> None:
        given = event.arguments[0]
        scaled = rank.new(rank.values[given.value])
        rank.events.append(
            replace(
                event, operator="mul.Tensor", arguments=(given, factor), outputs=(scaled,), group=()
            )
        )
        rank.events.append(_given(event, Ref(scaled)))

    return draft


# --- sends and receives


def _of_pairs(traces: Sequence[Trace]) -> Iterator[Mutant]:
    pairs = _pairs(traces)
    of = {trace.rank: trace for trace in traces}
    for number, (sender, at, receiver, to) in enumerate(pairs):
        send, receive = of[sender].events[at], of[receiver].events[to]
        said = f"{_said(send)} of rank {sender} to {receiver}"

        def mutant(
            kind: str, what: str, place: Place, draft: Draft | None, said: str = said
        ) -> Mutant:
            return Mutant(kind, f"{said}: {what}", _changed(traces, place, draft))

        empty = of[receiver].values[receive.outputs[0]]
        lost = _changed(traces, {receiver: to}, _empty(empty))
        yield Mutant(
            "dropped", f"{said}: dropped with its receive", _changed(lost, {sender: at}, None)
        )
        yield mutant("dropped", "dropped", {sender: at}, None)
        yield mutant(
            "doubled",
            "doubled",
            {sender: at},
            lambda rank, event: rank.events.extend([event, event]),
        )
        yield mutant("scaled", "times 2", {sender: at}, _scaled(2.0))
        yield mutant("peer", "to itself", {sender: at}, _to(sender))
        for peer in sorted({trace.rank for trace in traces} - {sender, receiver})[:1]:
            yield mutant("peer", f"to rank {peer}", {sender: at}, _to(peer))
        yield from _other_buffers(traces, pairs[:number], (sender, at, receiver, to), said)


Pair = tuple[int, int, int, int]
"""The rank that sends and the number of its event, the rank that receives and the number of its."""


def _other_buffers(
    traces: Sequence[Trace], before: Sequence[Pair], pair: Pair, said: str
) -> Iterator[Mutant]:
    """With the pair before it between the same ranks: what is sent is exchanged, or what was sent
    then is sent again, or received but not looked at.
    """
    sender, at, receiver, to = pair
    of = {trace.rank: trace for trace in traces}
    send = of[sender].events[at]
    like = of[sender].values[send.arguments[0].value]
    alike = [
        p
        for p in before
        if (p[0], p[2]) == (sender, receiver)
        and of[sender].values[of[sender].events[p[1]].arguments[0].value] == like
    ]
    if not alike:
        return
    _, other_at, _, other_to = alike[-1]
    other, got = of[sender].events[other_at], of[receiver].events[other_to]
    again = _changed(
        traces,
        {sender: at},
        lambda rank, event: rank.events.append(_given(event, other.arguments[0])),
    )
    yield Mutant("stale", f"{said}: what was sent before", again)
    if other_to < to:
        # What was received is there, but the buffer that is read is the one before.
        def unread(rank: Rank, event: Event) -> None:
            rank.events.append(replace(event, outputs=(rank.new(rank.values[event.outputs[0]]),)))
            rank.held(event, got.outputs[0])

        yield Mutant(
            "stale",
            f"{said}: what was received before is read",
            _changed(traces, {receiver: to}, unread),
        )
    # Both are sent where the later one was, in the other order of buffers: what the earlier one
    # needs is there by then.
    later = max(at, other_at)
    if all(event.operator != "receive" for event in of[sender].events[other_at:later]):

        def exchanged(rank: Rank, event: Event) -> None:
            rank.events.extend([_given(other, send.arguments[0]), _given(send, other.arguments[0])])

        held_back = _changed(traces, {sender: later}, exchanged)
        yield Mutant(
            "swapped",
            f"{said}: exchanged with the one before",
            _changed(held_back, {sender: other_at}, None),
        )


def _pairs(traces: Sequence[Trace]) -> list[Pair]:
    """Sends with the receives that take them: first sent, first received, between two ranks and of
    one tag.
    """
    lines: dict[tuple[int, int, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for trace in traces:
        for number, event in enumerate(trace.events):
            if event.operator == "send":
                lines[trace.rank, event.arguments[1], event.arguments[2]][0].append(number)
            elif event.operator == "receive":
                lines[event.arguments[0], trace.rank, event.arguments[1]][1].append(number)
    return [
        (sender, at, receiver, to)
        for (sender, receiver, _), (sent, got) in lines.items()
        for at, to in zip(sent, got, strict=True)
    ]


def _empty(value: Value) -> Draft:
    """A buffer in which nothing arrives."""
    return lambda rank, event: rank.alone(
        event, "full.default", value.shape, 0, value.dtype, None, None, None
    )


def _to(peer: int) -> Draft:
    return lambda rank, event: rank.events.append(
        replace(event, arguments=(event.arguments[0], peer, event.arguments[2]))
    )


# --- in common


def _changed(traces: Sequence[Trace], place: Place, draft: Draft | None) -> list[Trace]:
    """The traces with other events at one place of some ranks."""
    return [
        Rank(trace).changed(place[trace.rank], draft) if trace.rank in place else trace
        for trace in traces
    ]


def _said(event: Event) -> str:
    side = " backward" if event.backward else ""
    return (
        f"{event.operator} at {event.source.rpartition('/')[2] or 'no line'}{side} "
        f"({event.module or 'no module'})"
    )
