"""Numbers in a program that are places along a dimension: the bounds of a rank's vocabulary.

A rank that has some rows of a table compares indices with the first and the last row that it has,
and subtracts the first. In a trace these are numbers like any other, and a dimension that a number
may refer to keeps its size. The computation of an index says that they are places along the table
that it indexes. So they become operators ``boundary``, which give the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from pitcheck.base.dtypes import DType
from pitcheck.frontends.torch.aten.emitter import Emitter, Tensor
from pitcheck.frontends.torch.aten.row import Row, row
from pitcheck.frontends.torch.trace import Argument, Event, Ref, Trace, Value, operands

FLOATS = ("float", "bfloat")
BOUNDARY = "boundary"
"""The operator (table, axis, offset) that returns a place along a table, as a number."""
COMPARISONS = {f"{name}.Scalar": f"{name}.Tensor" for name in ("lt", "le", "gt", "ge")}
MOVES = {"add.Tensor", "sub.Tensor"}
FILLS = {"index_put.default", "masked_fill.Scalar", "masked_fill.Tensor"}
PASSED = {
    "clone.default",
    "_to_copy.default",
    "view.default",
    "bitwise_or.Tensor",
    "bitwise_and.Tensor",
    "bitwise_not.default",
    "logical_or.default",
    "logical_and.default",
    "logical_not.default",
}
FOLLOWED = {*COMPARISONS, *MOVES, *FILLS, *PASSED}
"""The operators by which indices are computed."""
SHOWN = {"clone.default", "view.default", "slice.Tensor", "split.Tensor", "detach.default"}
"""The operators that return elements of their operand."""
COMPARED = {"eq.Scalar": False, "ne.Scalar": True}
"""The comparisons with a number, and their outcome for any other number."""
LOSSES = {
    f"nll_loss{d}_{way}.default": place
    for d in ("", "2d")
    for way, place in (("forward", 1), ("backward", 2))
}
"""The losses over classes, with the place of the target among their arguments.

The class that is ignored is the third argument after it.
"""


@dataclass(frozen=True)
class Lookup:
    """An event that reads a table at indices along ``axis``; table and indices are values."""

    table: int
    indices: int
    axis: int


def never_ignored(trace: Trace, bounds: Mapping[str, tuple[int, int]]) -> Trace:
    """Return the trace in which losses ignore no class that their targets cannot be.

    The targets are inputs of known ``bounds``, and places along the classes. A class to be ignored,
    -100 if the program names none, would make them numbers. A comparison with such a class has a
    known outcome.
    """
    given = {
        own.value: bounds[own.name]
        for own in trace.given
        if own.role == "input" and own.integers is None and own.name in bounds
    }
    made = {value: event for event in trace.events for value in event.tensors}

    def excludes(target: Argument, number: Argument) -> bool:
        while (
            isinstance(target, Ref)
            and target.value in made
            and made[target.value].operator in SHOWN
        ):
            target = made[target.value].arguments[0]
        held = given.get(target.value) if isinstance(target, Ref) else None
        return held is not None and isinstance(number, int) and not held[0] <= number < held[1]

    def changed(event: Event) -> Event:
        if event.operator in COMPARED and excludes(*event.arguments[:2]):
            (out,) = event.tensors
            outcome = COMPARED[event.operator]
            filled = (trace.values[out].shape, outcome, "bool", None, None, None)
            return replace(event, operator="full.default", arguments=filled)
        place = LOSSES.get(event.operator)
        if place is None or not excludes(event.arguments[place], event.arguments[place + 3]):
            return event
        return replace(
            event, arguments=(*event.arguments[: place + 3], None, *event.arguments[place + 4 :])
        )

    return replace(trace, events=tuple(map(changed, trace.events)))


def with_boundaries(trace: Trace) -> Trace:
    """Return the trace with the bounds of indices as places along the table that they index."""
    made = {value: number for number, event in enumerate(trace.events) for value in event.tensors}
    filled = {given.value: given.number for given in trace.given if given.number is not None}
    values = list(trace.values)
    before: dict[int, list[Event]] = {}
    taken: set[int] = set()
    for number, event in enumerate(trace.events):
        for lookup in _lookups(event):
            cone = _cone(trace, made, lookup.indices)
            if (
                taken.isdisjoint(cone)
                and any(_number(trace.events[n]) is not None for n in cone)
                and _may_wait(trace, cone, number)
            ):
                taken.update(cone)
                before.setdefault(number, []).extend(
                    _placed([trace.events[n] for n in cone], lookup, values, filled)
                )
    events = [
        new
        for number, event in enumerate(trace.events)
        if number not in taken
        for new in (*before.get(number, ()), event)
    ]
    return replace(trace, values=tuple(values), events=tuple(events))


def _lookups(event: Event) -> Iterator[Lookup]:
    arguments = event.arguments
    if (
        event.operator == "embedding.default"
        and isinstance(arguments[0], Ref)
        and isinstance(arguments[1], Ref)
    ):
        yield Lookup(arguments[0].value, arguments[1].value, 0)
    elif (
        event.operator == "gather.default"
        and isinstance(arguments[0], Ref)
        and isinstance(arguments[1], int)
        and isinstance(arguments[2], Ref)
    ):
        yield Lookup(arguments[0].value, arguments[2].value, arguments[1])
    elif (
        event.operator == "index.Tensor"
        and isinstance(arguments[0], Ref)
        and isinstance(arguments[1], tuple)
    ):
        for axis, index in enumerate(arguments[1]):
            if isinstance(index, Ref):
                yield Lookup(arguments[0].value, index.value, axis)


def _cone(trace: Trace, made: Mapping[int, int], value: int) -> list[int]:
    """Return the events by which an index is computed from integers, in their order."""
    found: set[int] = set()
    waiting = [value]
    while waiting:
        number = made.get(waiting.pop())
        if number is not None and number not in found and _follows(trace, trace.events[number]):
            found.add(number)
            waiting.extend(operands(trace.events[number].arguments))
    return sorted(found)


def _follows(trace: Trace, event: Event) -> bool:
    """Return True if an event computes an index, and not from floating-point numbers."""
    return event.operator in FOLLOWED and not any(
        trace.values[value].dtype.startswith(FLOATS) for value in operands(event.arguments)
    )


def _number(event: Event) -> int | None:
    """Return the number that an event compares with, adds or subtracts, if it may be a place."""
    other = event.arguments[1] if event.operator in COMPARISONS or event.operator in MOVES else None
    plain = len(event.arguments) < 3 or event.arguments[2] == 1
    return (
        other
        if plain and isinstance(other, int) and not isinstance(other, bool) and other >= 0
        else None
    )


def _may_wait(trace: Trace, cone: Sequence[int], number: int) -> bool:
    """Return True if nothing before event ``number`` needs the results of the events in ``cone``.

    Places along a table are known only when the table is, at event ``number``.
    """
    given = {value for n in cone for value in trace.events[n].tensors}
    inside = set(cone)
    return cone[-1] < number and all(
        n in inside or given.isdisjoint(operands(trace.events[n].arguments))
        for n in range(cone[0], number)
    )


def _placed(
    events: Sequence[Event], lookup: Lookup, values: list[Value], filled: Mapping[int, float]
) -> Iterator[Event]:
    for event in events:
        number = _number(event)
        first = event.arguments[0]
        if number is not None and isinstance(first, Ref):
            values.append(Value((), values[first.value].dtype))
            place = Ref(len(values) - 1)
            yield replace(
                event,
                operator=BOUNDARY,
                arguments=(Ref(lookup.table), lookup.axis, number),
                outputs=(place.value,),
            )
            yield replace(
                event,
                operator=COMPARISONS.get(event.operator, event.operator),
                arguments=(first, place, *event.arguments[2:]),
            )
        else:
            yield _filled(event, values, filled)


def _filled(event: Event, values: Sequence[Value], filled: Mapping[int, float]) -> Event:
    """Return a write of one number at the places of a mask as a masked fill.

    An event that does something else is returned as it is.
    """
    if event.operator != "index_put.default":
        return event
    base, masks, value, accumulate = event.arguments
    if (
        not (
            isinstance(base, Ref)
            and isinstance(masks, tuple)
            and len(masks) == 1
            and isinstance(masks[0], Ref)
            and isinstance(value, Ref)
        )
        or accumulate
    ):
        return event
    mask, number = masks[0], filled.get(value.value)
    same = (
        values[mask.value].dtype == "bool" and values[mask.value].shape == values[base.value].shape
    )
    if number is None or not same or not float(number).is_integer():
        return event
    arguments: tuple[Argument, ...] = (base, mask, int(number))
    return replace(event, operator="masked_fill.Scalar", arguments=arguments)


def _boundary(e: Emitter, table: Tensor, axis: int, offset: int) -> Tensor:
    dtype = e.dtype
    said: DType = "int32" if dtype == "int32" else "int64"
    return e.op(
        BOUNDARY,
        table,
        shape=(),
        dtype=said,
        attributes={"axis": axis % table.ndim, "offset": offset},
    )


TABLE: dict[str, Row] = {BOUNDARY: row(_boundary, "table axis offset")}
