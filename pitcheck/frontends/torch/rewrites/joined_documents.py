"""Values of documents that a reference computes alone, joined as a packed program has them.

The reference of a packing computes the queries of one document after another; a packed program has
those of all of them in one tensor. Here each such value becomes a part of the joined one:

    q0, q1              ->  q = cat(q0, q1);  q0' = q[:3];  q1' = q[3:]

and what is computed from q0 and q1 is computed from q0' and q1'. That changes no value. It gives
the proof values at which both programs can be cut, and an explanation the values that each tensor
of the packed program should hold. Values may be joined wrongly, as if equal lengths hide their
order: then they are equal to nothing of the other program, and no proof uses them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import accumulate, pairwise

from msgspec.structs import replace as changed

from pitcheck.frontends.torch.packing.layout import Layout, layouts
from pitcheck.frontends.torch.program import Spec
from pitcheck.frontends.torch.trace import (
    Argument,
    Event,
    Ref,
    Trace,
    Value,
    operands,
    with_operands,
)

VIEWS = frozenset(
    {
        "view.default",
        "_unsafe_view.default",
        "transpose.int",
        "permute.default",
        "t.default",
        "expand.default",
        "slice.Tensor",
        "select.int",
        "split.Tensor",
        "clone.default",
        "detach.default",
        "unsqueeze.default",
        "squeeze.dim",
        "cat.default",
    }
)
"""Operators whose results are elements of their operands, joined elsewhere."""


class Join:
    """Values of all documents that are joined along ``axis`` once each of them is computed."""

    def __init__(self, members: Sequence[int], axis: int) -> None:
        self.members, self.axis = members, axis
        self.missing = len(members)
        self.dissolved = False


def joined_documents(trace: Trace, spec: Spec) -> Trace:
    """Return the trace of a reference, in which values of all documents are joined.

    The trace is returned as it is if a packing has padding, since a packed program then has rows
    that no document has.
    """
    (layout,) = layouts(spec)
    full = layout.rows * layout.size == sum(each.length for each in layout.documents)
    if len(layout.documents) < 2 or not full or any(event.meets for event in trace.events):
        return trace
    joins = {value: join for join in _joins(trace, spec, layout) for value in join.members}
    return _Joining(trace, layout, joins).trace() if joins else trace


def _joins(trace: Trace, spec: Spec, layout: Layout) -> Iterator[Join]:
    """Yield the values that correspond to each other: results of one line, in the same order."""
    label = _documents(trace, spec, layout)
    found: list[dict[object, list[int]]] = [defaultdict(list) for _ in layout.documents]
    for event in trace.events:
        for place, value in enumerate(event.tensors):
            if value in label and event.operator not in VIEWS:
                key = event.operator, event.source, event.module, event.backward, place
                found[label[value]][key].append(value)
    for corresponding, first in found[0].items():
        lists = [first, *(other.get(corresponding, []) for other in found[1:])]
        if len({len(each) for each in lists}) == 1:
            for members in zip(*lists, strict=True):
                axis = _axis([trace.values[value] for value in members], layout)
                if axis is not None:
                    yield Join(members, axis)


@dataclass(frozen=True)
class Part:
    """A part of an input: its sequences and its tokens, which lie along ``axis``."""

    axis: int
    rows: tuple[int, int]
    tokens: tuple[int, int]

    def sliced(self, axis: int, start: int, stop: int) -> Part:
        """Return what a slice takes of it."""
        if axis == self.axis:
            return replace(self, tokens=(start, min(stop, self.tokens[1])))
        return replace(self, rows=(start, min(stop, self.rows[1])))


def _documents(trace: Trace, spec: Spec, layout: Layout) -> dict[int, int]:
    """Return the document of each value that is computed from the tokens of one alone."""
    parts = {
        given.value: Part(axis, (0, layout.rows), (0, layout.size))
        for given in trace.given
        if given.role == "input" and (axis := spec.batch[given.name].tokens) is not None
    }
    numbers = {
        ((each.row, each.row + 1), (each.start, each.start + each.length)): number
        for number, each in enumerate(layout.documents)
    }
    label: dict[int, int] = {}
    for event in trace.events:
        read = operands(event.arguments)
        part = parts.get(read[0]) if read and event.operator == "slice.Tensor" else None
        if part is not None and not event.source:
            cut = part.sliced(*_integers(event))
            parts[event.tensors[0]] = cut
            if (cut.rows, cut.tokens) in numbers:
                label[event.tensors[0]] = numbers[cut.rows, cut.tokens]
            continue
        own = {label[value] for value in read if value in label}
        if len(own) == 1:
            label.update(dict.fromkeys(event.tensors, own.pop()))
    return label


def _integers(event: Event) -> list[int]:
    """Return the axis, the start and the end of a slice."""
    return [each if isinstance(each, int) else 0 for each in event.arguments[1:4]]


def _axis(values: Sequence[Value], layout: Layout) -> int | None:
    """Return the axis along which values of all documents are joined, None if there is none."""
    shapes = [value.shape for value in values]
    if len({(len(shape), value.dtype) for shape, value in zip(shapes, values, strict=True)}) > 1:
        return None
    for axis in range(len(shapes[0])):
        rest = {shape[:axis] + shape[axis + 1 :] for shape in shapes}
        along = all(
            shape[axis] == each.length for shape, each in zip(shapes, layout.documents, strict=True)
        )
        if along and len(rest) == 1:
            return axis if axis == 0 or layout.rows == 1 or shapes[0][0] == 1 else None
    return None


class _Joining:
    """The events in an order in which every value is joined before anything else reads it."""

    def __init__(self, trace: Trace, layout: Layout, joins: dict[int, Join]) -> None:
        self._trace, self._layout, self._joins = trace, layout, joins
        self._values = list(trace.values)
        self._events: list[Event] = []
        self._parts = {number: number for number in range(len(trace.values))}
        self._computed: set[int] = set()
        self._readers: dict[int, list[int]] = defaultdict(list)
        self._waits: list[int] = []
        self._ready: list[int] = []
        made = {value for event in trace.events for value in event.tensors}
        for place, event in enumerate(trace.events):
            read = made.intersection(operands(event.arguments))
            self._waits.append(len(read))
            for value in read:
                self._readers[value].append(place)
            if not read:
                heappush(self._ready, place)

    def trace(self) -> Trace:
        """Return the trace with its values joined."""
        while self._ready or self._dissolve_first():
            while self._ready:
                self._run(self._trace.events[heappop(self._ready)])
        return changed(self._trace, values=tuple(self._values), events=tuple(self._events))

    def _run(self, event: Event) -> None:
        self._events.append(with_operands(event, self._parts))
        self._computed.update(event.tensors)
        for value in event.tensors:
            join = self._joins.get(value)
            if join is None or join.dissolved:
                self._release(value)
                continue
            join.missing -= 1
            if not join.missing:
                self._join(join, event)

    def _release(self, value: int) -> None:
        for place in self._readers[value]:
            self._waits[place] -= 1
            if not self._waits[place]:
                heappush(self._ready, place)

    def _dissolve_first(self) -> bool:
        """Give up the first join that still waits for members; return False if there is none."""
        for value in sorted(self._computed):
            join = self._joins.get(value)
            if join is not None and join.missing and not join.dissolved:
                join.dissolved = True
                for member in join.members:
                    if member in self._computed:
                        self._release(member)
                return True
        return False

    def _join(self, join: Join, event: Event) -> None:
        """Join the members, sequence by sequence if tokens are not the first axis."""
        rows = [
            [
                member
                for member, each in zip(join.members, self._layout.documents, strict=True)
                if each.row == row
            ]
            for row in range(self._layout.rows)
        ]
        if join.axis == 0:
            self._split(join.members, self._cat(join.members, 0, event), 0, event)
        else:
            lines = [self._cat(own, join.axis, event) for own in rows]
            whole = self._cat(lines, 0, event)
            if len(lines) > 1:
                lines = self._split(lines, whole, 0, event)
            for own, line in zip(rows, lines, strict=True):
                self._split(own, line, join.axis, event)
        for member in join.members:
            self._release(member)

    def _cat(self, members: Sequence[int], axis: int, event: Event) -> int:
        if len(members) == 1:
            return members[0]
        shape = list(self._values[members[0]].shape)
        shape[axis] = sum(self._values[member].shape[axis] for member in members)
        return self._emit("cat.default", (tuple(map(Ref, members)), axis), shape, members[0], event)

    def _split(self, members: Sequence[int], whole: int, axis: int, event: Event) -> list[int]:
        """Return the parts of a joined value; from now on they are read in place of its members."""
        sizes = [self._values[member].shape[axis] for member in members]
        parts = []
        for member, (start, stop) in zip(members, pairwise([0, *accumulate(sizes)]), strict=True):
            shape = self._values[member].shape
            arguments = (Ref(whole), axis, start, stop, 1)
            part = (
                whole
                if len(members) == 1
                else self._emit("slice.Tensor", arguments, shape, member, event)
            )
            self._parts[member] = part
            parts.append(part)
        return parts

    def _emit(
        self,
        operator: str,
        arguments: tuple[Argument, ...],
        shape: Sequence[int],
        like: int,
        event: Event,
    ) -> int:
        """Append an operator at the line of the values that it joins; return its value."""
        self._values.append(Value(tuple(shape), self._values[like].dtype))
        number = len(self._values) - 1
        self._events.append(
            changed(event, operator=operator, arguments=arguments, outputs=(number,))
        )
        return number
