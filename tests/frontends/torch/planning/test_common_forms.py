"""Tensors that ranks hold as stretches of the flattened elements, or in parts of several sizes."""

from __future__ import annotations

import pytest

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.planning.common_forms import in_one_form
from pitcheck.frontends.torch.trace import Event, Given, Ref, Result, Trace, Value

SHAPE = (3, 4)


def step(rank: int, shape: tuple[int, ...], given: Given) -> Trace:
    """A step that doubles a parameter."""
    values = (Value(shape, "float32"), Value(shape, "float32"))
    event = Event("mul.Tensor", (Ref(0), 2), (1,))
    result = Result(1, "updated", given.name, given.whole, given.box)
    return Trace(rank, values, (event,), (given,), (result,))


def whole(rank: int = 0) -> Trace:
    return step(rank, SHAPE, Given(0, "parameter", "w"))


def stretch(rank: int, start: int, stop: int) -> Trace:
    given = Given(0, "parameter", "w", (12,), (((start, stop),),))
    return step(rank, (stop - start,), given)


def rows(rank: int, start: int, stop: int) -> Trace:
    given = Given(0, "parameter", "w", SHAPE, (((start, stop),), ((0, 4),)))
    return step(rank, (stop - start, 4), given)


def test_parts_of_one_size_stay_as_they_are() -> None:
    traces = [step(rank, SHAPE, Given(0, "parameter", "w")) for rank in range(2)]
    assert in_one_form(whole(), traces) == (whole(), traces)


def test_both_programs_have_one_dimension() -> None:
    reference, (first, second) = in_one_form(whole(), [stretch(0, 0, 7), stretch(1, 7, 12)])
    assert reference.values[reference.given[0].value].shape == (12,)
    assert [event.operator for event in reference.events] == [
        "view.default",
        "mul.Tensor",
        "view.default",
    ]
    assert reference.values[reference.results[0].value].shape == (12,)
    assert first.given[0].box == first.results[0].box == (((0, 7),),)
    # Two free elements make the second part as large as the first.
    assert second.given[0].box == second.results[0].box == (((7, 12), (-1, 2)),)
    assert second.values[second.given[0].value].shape == (7,)


def test_rows_of_another_rank_are_stretches() -> None:
    _, (first, second, third) = in_one_form(whole(), [stretch(0, 0, 5), rows(1, 1, 3), whole(2)])
    assert second.given[0].box == (((4, 12), (-1, 4)),)
    assert first.given[0].box == (((0, 5), (-1, 7)),)
    assert third.given[0].box == ()


def columns(rank: int, start: int, stop: int) -> Trace:
    given = Given(0, "parameter", "w", SHAPE, (((0, 3),), ((start, stop),)))
    return step(rank, (3, stop - start), given)


def test_columns_of_another_rank_are_stretches() -> None:
    traces = [stretch(0, 0, 6), columns(1, 0, 2), columns(2, 2, 4)]
    _, (first, second, third) = in_one_form(whole(), traces)
    assert first.given[0].box == (((0, 6),),)
    assert second.given[0].box == second.results[0].box == (((0, 2), (4, 6), (8, 10)),)
    assert third.given[0].box == (((2, 4), (6, 8), (10, 12)),)


def test_elements_that_no_rank_has_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="no rank has element 6 of the 12 elements of 'w'"):
        in_one_form(whole(), [stretch(0, 0, 5), columns(1, 0, 2)])


def test_a_rank_without_rows_has_free_elements_alone() -> None:
    _, (_, empty) = in_one_form(whole(), [rows(0, 0, 3), rows(1, 3, 3)])
    assert empty.given[0].box == (((3, 3), (-1, 3)), ((0, 4),))
    assert empty.results[0].value in {given.value for given in empty.given}


def test_a_result_is_joined_with_zeros() -> None:
    _, (_, second) = in_one_form(whole(), [rows(0, 0, 2), rows(1, 2, 3)])
    assert second.events[-1].operator == "cat.default"
    (zeros,) = (given for given in second.given if given.role == "constant")
    assert zeros.number == 0 and second.values[zeros.value].shape == (1, 4)
