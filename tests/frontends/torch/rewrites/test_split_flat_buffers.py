"""Flat buffers are taken apart where all members of a collective join pieces of the same sizes and
of one dtype; other collectives stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pitcheck.frontends.torch.rewrites.split_flat_buffers import without_flat_buffers
from pitcheck.frontends.torch.trace import Event, Given, Ref, Result, Trace, Value

GROUP = (0, 1)


def bucket(
    rank: int,
    sizes: Sequence[int],
    dtypes: Sequence[str] = ("float32", "float32"),
    unread: bool = False,
) -> Trace:
    """A rank that joins two tensors, adds up the buffer over ranks and cuts the second off."""
    total = sum(sizes)
    values = (
        *(Value((size,), dtype) for size, dtype in zip(sizes, dtypes, strict=True)),
        *(Value((total,), "float32"),) * 2,
        Value((sizes[1],), "float32"),
    )  # type: ignore[arg-type]
    events = (
        Event("cat.default", ((Ref(0), Ref(1)), 0), (2,)),
        Event("all_reduce", (Ref(2), "sum"), (None if unread else 3,), group=GROUP),
        Event("slice.Tensor", (Ref(2 if unread else 3), 0, sizes[0], total, 1), (4,)),
    )
    return Trace(
        rank,
        values,
        events,
        tuple(Given(n, "parameter", f"p{n}") for n in (0, 1)),
        (Result(4, "output", "out"),),
    )


def reduced(traces: Sequence[Trace]) -> list[list[tuple[int, ...]]]:
    """The shapes of what every rank adds up over ranks."""
    shapes = []
    for trace in without_flat_buffers(traces):
        operands = [event.arguments[0] for event in trace.events if event.operator == "all_reduce"]
        shapes.append(
            [trace.values[operand.value].shape for operand in operands if isinstance(operand, Ref)]
        )
    return shapes


def test_equal_pieces() -> None:
    assert reduced([bucket(0, (2, 3)), bucket(1, (2, 3))]) == [[(2,), (3,)]] * 2


def stretch(rank: int, sizes: Sequence[int]) -> Trace:
    """A rank that joins two tensors, keeps its half of their sum over ranks, and gathers it."""
    total = sum(sizes)
    values = (
        *(Value((size,), "float32") for size in sizes),
        Value((total,), "float32"),
        Value((total // 2,), "float32"),
        Value((total,), "float32"),
        Value((sizes[0],), "float32"),
    )
    events = (
        Event("cat.default", ((Ref(0), Ref(1)), 0), (2,)),
        Event("reduce_scatter", (Ref(2), "sum"), (3,), group=GROUP),
        Event("all_gather", (Ref(3),), (4,), group=GROUP),
        Event("slice.Tensor", (Ref(4), 0, 0, sizes[0], 1), (5,)),
    )
    given = tuple(Given(n, "parameter", f"p{n}") for n in (0, 1))
    return Trace(rank, values, events, given, (Result(5, "output", "out"),))


def test_parts_that_end_within_a_piece() -> None:
    """Six elements in halves: 1 and 5 are cut to 1, 2 and 3; a rank gathers 1, 2 and 3."""
    traces = [stretch(rank, (1, 5)) for rank in GROUP]
    assert reduced(traces) == [[(1,), (2,), (3,)]] * 2
    for trace in without_flat_buffers(traces):
        sent = [event for event in trace.events if event.operator == "broadcast"]
        assert [event.arguments[1] for event in sent] == [0, 0, 1]
        assert [trace.values[event.tensors[0]].shape for event in sent] == [(1,), (2,), (3,)]
        given = {event.tensors[0] for event in trace.events if event.operator == "full.default"}
        roots = [event.arguments[0].value not in given for event in sent]  # type: ignore[union-attr]
        assert roots == [trace.rank == 0, trace.rank == 0, trace.rank == 1]


def test_a_row_without_equal_parts_stays_whole() -> None:
    for trace in without_flat_buffers([stretch(rank, (1, 4)) for rank in GROUP]):
        assert next(event.operator for event in trace.events if event.group) == "reduce_scatter"


def gathered(rank: int, sizes: Sequence[int]) -> Trace:
    """A rank that joins two tensors, gathers what ranks have joined, and takes the first piece."""
    total = sum(sizes)
    kinds = [*sizes, total, 2 * total, sizes[0]]
    events = (
        Event("cat.default", ((Ref(0), Ref(1)), 0), (2,)),
        Event("all_gather", (Ref(2),), (3,), group=GROUP),
        Event("slice.Tensor", (Ref(3), 0, 0, sizes[0], 1), (4,)),
    )
    given = tuple(Given(n, "parameter", f"p{n}") for n in (0, 1))
    values = tuple(Value((size,), "float32") for size in kinds)
    return Trace(rank, values, events, given, (Result(4, "output", "out"),))


@pytest.mark.parametrize(
    ("other", "expected"),
    [((2, 1), "broadcast"), ((2, 2), "all_gather"), ((1, 1), "all_gather")],
    ids=["as many elements", "more", "fewer"],
)
def test_members_gather_equally_many_elements(other: tuple[int, ...], expected: str) -> None:
    """Else the call is no collective, which the plan must still show."""
    for trace in without_flat_buffers([gathered(0, (1, 2)), gathered(1, other)]):
        assert {event.operator for event in trace.events if event.group} == {expected}


def test_parts_of_members_that_join_otherwise() -> None:
    for trace in without_flat_buffers([stretch(0, (1, 5)), stretch(1, (5, 1))]):
        kinds = [event.operator for event in trace.events if event.group]
        assert kinds == ["reduce_scatter", "all_gather"]


@pytest.mark.parametrize(
    "other",
    [bucket(1, (3, 2)), bucket(1, (2, 3), ("float32", "bfloat16")), bucket(1, (2, 3), unread=True)],
    ids=["other sizes of the same total", "a join that casts", "a result that is none"],
)
def test_members_that_join_otherwise(other: Trace) -> None:
    assert reduced([bucket(0, (2, 3)), other]) == [[(5,)]] * 2
