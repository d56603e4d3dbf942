"""The drawn elements of which each element of a discrete value is made, against trying them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitcheck.algebra.value import LEADING, Value
from pitcheck.prove.integers.sourced import MANY, SourcedAlgebra, codes_of, element_of

ROWS, COLUMNS = 3, 4


def drawn(numbers: list[int], first: int) -> Value:
    return SourcedAlgebra().drawn(np.array([[[numbers]]]), "int", first)


def fixed(numbers: list[int]) -> Value:
    return SourcedAlgebra().integers(np.array([[numbers]]))


def elements(value: Value) -> list[int]:
    codes = codes_of(value)
    return [0] * value.data.size if codes is None else element_of(codes).reshape(-1).tolist()


def scattered(along: bool, indices: Value, source: Value, base: Value) -> Value:
    """Add at indices of columns, row by row or all rows at once."""
    algebra = SourcedAlgebra()
    add = algebra.add_along if along else algebra.add_at
    return add(base, 1, indices, source)


@pytest.mark.parametrize("along", [True, False])
@given(
    chosen=st.lists(st.integers(0, COLUMNS - 1), min_size=ROWS * 2, max_size=ROWS * 2),
    numbers=st.lists(st.integers(1, 9), min_size=ROWS * 2, max_size=ROWS * 2),
    which=st.sampled_from(["indices", "source", "base", "indices and source"]),
)
def test_what_is_scattered_depends_on_nothing_but_its_sources(
    along: bool, chosen: list[int], numbers: list[int], which: str
) -> None:
    """An element that changes with a drawn one has it for its source, or several."""
    shapes = {
        "indices": (ROWS, 2) if along else (2,),
        "source": (ROWS, 2),
        "base": (ROWS, COLUMNS),
    }
    given_numbers = {
        "indices": np.resize(chosen, shapes["indices"]),
        "source": np.resize(numbers, shapes["source"]),
        "base": np.zeros(shapes["base"], dtype=np.int64),
    }

    def result(changed: dict[str, Any]) -> Value:
        values, first = {}, 1
        for name, array in changed.items():
            if name in which:
                data = array.reshape((1, 1, 1, *array.shape))
                values[name] = SourcedAlgebra().drawn(data, "int", first)
                first += array.size
            else:
                values[name] = SourcedAlgebra().integers(array.reshape((1, 1, *array.shape)))
        return scattered(along, **values)

    before = result(given_numbers)
    sources, number = elements(before), 1
    for name in (name for name in given_numbers if name in which):
        for place in range(given_numbers[name].size):
            changed = {key: array.copy() for key, array in given_numbers.items()}
            flat = changed[name].reshape(-1)
            flat[place] = (flat[place] + 1) % COLUMNS
            after = result(changed)
            differs = (after.data != before.data).reshape(-1)
            assert all(sources[at] in (number, MANY) for at in np.flatnonzero(differs))
            number += 1


def test_rows_that_are_added_at_fixed_indices_stay_apart() -> None:
    one = drawn([5, 6, 7], 1)
    apart = SourcedAlgebra().add_at(fixed([0, 0, 0, 0]), 0, fixed([3, 0, 1]), one)
    assert elements(apart) == [2, 3, 0, 1]
    together = SourcedAlgebra().add_at(fixed([0, 0, 0, 0]), 0, fixed([3, 0, 3]), one)
    assert elements(together) == [2, 0, 0, MANY]


def test_each_row_has_the_sources_of_its_own_indices() -> None:
    algebra = SourcedAlgebra()
    indices = algebra.reshape(drawn([1, 0], 1), (2, 1))
    ones = algebra.reshape(fixed([1, 1]), (2, 1))
    zeros = algebra.reshape(fixed([0] * 6), (2, 3))
    assert elements(algebra.add_along(zeros, 1, indices, ones)) == [1, 1, 1, 2, 2, 2]
    assert algebra.add_along(zeros, 1, fixed_like(indices), ones).special is None


def fixed_like(value: Value) -> Value:
    return SourcedAlgebra().integers(value.data.reshape(value.data.shape[1:]))


def test_numbers_of_instances_stay_apart() -> None:
    algebra = SourcedAlgebra()
    source = algebra.drawn(np.array([[[[5, 6]]]]), "int", 1)
    where = algebra.integers(np.array([[[0, 1], [1, 0]]]))
    found = algebra.add_at(fixed([0, 0]), 0, where, source)
    assert found.data.shape[LEADING:] == (2,)
    assert elements(found) == [1, 2, 2, 1]
