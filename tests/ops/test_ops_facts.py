"""Facts that operators declare beside their traits, each with a law of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ops.ops_law_cases import Case, cases_of, distinct, is_same
from ops.ops_numpy_algebra import NumpyAlgebra

from pitcheck.ops.registry import evaluate, kinds_in_order, operator_kind, operator_names


def _drawn(case: Case) -> Case:
    return case.of(distinct)


MISTAKEN = [name for name in operator_names() if operator_kind(name).mistaken_for]


@pytest.mark.parametrize("name", MISTAKEN)
def test_what_is_mistaken_for_an_operator_is_another_of_as_many_operands(name: str) -> None:
    operator, other = operator_kind(name), operator_kind(operator_kind(name).mistaken_for)
    kept = [
        {key: value for key, value in case.attributes.items() if key in other.attributes}
        for case in cases_of(name)
    ]
    assert operator.inputs == other.inputs and set(other.required) <= set(operator.attributes)
    assert not all(
        is_same(
            case.of(distinct).run(),
            replace(case.of(distinct), operator=other, attributes=own).run(),
        )
        for case, own in zip(cases_of(name), kept, strict=True)
    )


def test_what_a_condition_masks_is_the_result_where_it_does_not() -> None:
    masking = [k for name in operator_names() if (k := operator_kind(name)).masked is not None]
    assert {kind.name for kind in masking} == {
        k for k in operator_names() if operator_kind(k).conditions
    }
    for kind in masking:
        (place,) = kind.conditions
        for case in (case.of(distinct) for case in cases_of(kind.name) if case.fields):
            truths = (
                tuple(
                    np.full_like(x, truth, dtype=bool) if number == place else x
                    for number, x in enumerate(case.inputs)
                )
                for truth in (True, False)
            )
            found = [replace(case, inputs=inputs).run()[0] for inputs in truths]
            own = np.broadcast_to(case.inputs[kind.masked or 0], found[0].shape)
            assert [np.array_equal(own, y) for y in found].count(True) == 1, kind.name


FROM_INPUTS = [name for name in operator_names() if operator_kind(name).derives_from_inputs]


@pytest.mark.parametrize("name", FROM_INPUTS)
def test_derivatives_that_are_computed_from_the_inputs(name: str) -> None:
    """Another result changes no gradient, other inputs change one."""
    changed = set()
    for case in (case for case in cases_of(name) if case.fields):
        results = case.of(distinct).run()
        gradients = [distinct(y.shape, 5) for y in results]

        def back(given: Case, y: list[Any], dy: list[Any] = gradients) -> list[Any]:
            operands = (*given.inputs, *y, *dy)
            return evaluate(NumpyAlgebra(), f"{name}.backward", operands, given.attributes)

        given = case.of(distinct)
        plain = _numbers(back(given, results))
        assert is_same(plain, _numbers(back(given, [y + 1 for y in results])))
        other = tuple(
            ~x if x.dtype == np.bool_ else np.flip(x) if x.dtype == np.int64 else -x
            for x in given.inputs
        )
        changed.add(not is_same(plain, _numbers(back(replace(given, inputs=other), results))))
    assert True in changed


def _numbers(gradients: list[Any]) -> list[Any]:
    return [np.asarray(each) for each in gradients if each is not None]


def test_operands_that_must_not_change_places() -> None:
    ordered = kinds_in_order()
    assert {"sub", "div", "linear", "matmul", "lt", "floor_divide"} <= ordered
    assert not {"add", "mul", "maximum", "eq", "pow", "where", "einsum"} & ordered
