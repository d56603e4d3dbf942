"""The elements on which results depend, through buffers whose pieces differ between ranks."""

from __future__ import annotations

import pytest

from pitcheck.frontends.torch.rewrites.needed_elements import needed_elements
from pitcheck.frontends.torch.trace import Event, Intervals, Ref, Result, Trace, Value

RANKS = (0, 1)
MANY = 6


def trace(rank: int, sizes: list[int], *events: Event, result: int) -> Trace:
    """Values have one dimension of the given sizes; the last result is asked for."""
    return Trace(
        rank,
        tuple(Value((size,), "float32") for size in sizes),
        events,
        (),
        (Result(result, "output", "loss"),),
    )


def collective(operator: str, value: int, out: int, *arguments: str | int) -> Event:
    return Event(operator, (Ref(value), *arguments), (out,), RANKS)


def cut(value: int, start: int, stop: int, out: int) -> Event:
    return Event("slice.Tensor", (Ref(value), 0, start, stop, 1), (out,))


@pytest.mark.parametrize(
    ("operator", "arguments", "gathered", "last", "needed"),
    [
        # Rank 1 reads what rank 0 gave as its elements 1 to 3, and its own first one.
        ("all_gather", (), 2 * MANY, MANY, [((1, 3),), ((0, 1),)]),
        ("all_reduce", ("sum",), MANY, 4, [((1, 3), (4, 5)), ((1, 3), (4, 5))]),
        # Its half of the sum begins with element 3.
        ("reduce_scatter", ("sum",), MANY // 2, 0, [((3, 6),), ((3, 6),)]),
        ("all_to_all", (None, None), MANY, 4, [((0, 6),), ((0, 6),)]),
    ],
)
def test_a_rank_needs_what_any_rank_reads(
    operator: str,
    arguments: tuple[str | int, ...],
    gathered: int,
    last: int,
    needed: list[Intervals],
) -> None:
    traces = [
        # Rank 0 makes its operand of two pieces and reads nothing of the result.
        trace(
            0,
            [2, 4, MANY, gathered, 1],
            Event("cat.default", ((Ref(0), Ref(1)), 0), (2,)),
            collective(operator, 2, 3, *arguments),
            result=4,
        ),
        trace(
            1,
            [MANY, gathered, 2, 1, 3],
            collective(operator, 0, 1, *arguments),
            cut(1, 1, 3, 2),
            cut(1, last, last + 1, 3),
            Event("cat.default", ((Ref(2), Ref(3)), 0), (4,)),
            result=4,
        ),
    ]
    found = needed_elements(traces)
    assert [found[0].get(2), found[1].get(0)] == needed
    # Pieces of rank 0 lie where they were joined.
    assert (0 in found[0], 1 in found[0]) == (
        needed[0][0][0] < 2,
        needed[0][-1][1] > 2,
    )


def test_a_larger_operand_of_another_rank_is_needed_to_its_end() -> None:
    """Rank 0 receives the end of what rank 1 gives, and gives less itself."""
    receiving = trace(
        0,
        [2, MANY + 1, 1],
        collective("all_to_all", 0, 1),
        cut(1, MANY, MANY + 1, 2),
        result=2,
    )
    giving = trace(1, [MANY, 1, 1], collective("all_to_all", 0, 1), result=2)
    found = needed_elements([receiving, giving])
    assert (found[0][0], found[1][0]) == (((0, 2),), ((0, MANY),))


def test_an_operator_of_several_tensors_needs_all_of_each() -> None:
    (found,) = needed_elements(
        [
            trace(
                0,
                [MANY, MANY, MANY, 1],
                Event("mul.Tensor", (Ref(0), Ref(1)), (2,)),
                cut(2, 0, 1, 3),
                result=3,
            )
        ]
    ).values()
    assert found[0] == found[1] == ((0, MANY),)


def test_parts_of_a_split_lie_one_after_another() -> None:
    (found,) = needed_elements(
        [
            trace(
                0,
                [MANY, 1, 3, 2],
                Event("split_with_sizes.default", (Ref(0), (1, 3, 2), 0), (1, 2, 3)),
                result=2,
            )
        ]
    ).values()
    assert found[0] == ((1, 4),)
