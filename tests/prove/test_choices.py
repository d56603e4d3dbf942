"""Degrees in choices, against all outcomes of small formulas with Python's numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pitcheck.algebra.value import Value
from pitcheck.prove.integers.choices import ENDLESS, ChoiceAlgebra, degree, degrees_of

OUTCOMES = 3
"""The outcomes 0, 1, 2 of each choice."""
Assignment = tuple[int, ...]


def _chosen(algebra: ChoiceAlgebra, count: int) -> Value:
    numbers = np.zeros((1, 1, 1, count), dtype=np.int64)
    return algebra.chosen(Value("int", numbers), np.full((1, count), 1.0))


def _degree_of(table: Mapping[Assignment, Fraction], count: int) -> int:
    """The most choices that meet in a term: the largest set with an interaction that is not 0.

    That of a set is its alternating sum over outcomes and a fixed one, the others at the fixed one.
    """
    for size in range(count, 0, -1):
        for members in combinations(range(count), size):
            for outcomes in product(range(1, OUTCOMES), repeat=size):
                total = Fraction(0)
                for kept in product((False, True), repeat=size):
                    at = [0] * count
                    for member, outcome, is_kept in zip(members, outcomes, kept, strict=True):
                        at[member] = outcome if is_kept else 0
                    total += (-1) ** (size - sum(kept)) * table[tuple(at)]
                if total:
                    return size
    return 0


Formula = tuple[Any, ...]
LEAVES = st.integers(0, 3).map(lambda n: ("choice", n)) | st.integers(-2, 3).map(
    lambda n: ("number", n)
)
FORMULAS = st.recursive(
    LEAVES,
    lambda below: (
        st.tuples(st.sampled_from(["add", "subtract", "multiply", "maximum"]), below, below)
        | st.tuples(st.just("power"), below, st.integers(1, 3))
        | st.tuples(st.just("where"), below, below, below)
    ),
    max_leaves=8,
)


def _value(algebra: ChoiceAlgebra, formula: Formula, choices: Value) -> Value:
    what, *parts = formula
    if what == "choice":
        return algebra.reshape(algebra.slice(choices, 0, parts[0], parts[0] + 1), ())
    if what == "number":
        return algebra.constant(Fraction(parts[0]), "int")
    if what == "power":
        base = algebra.cast(_value(algebra, parts[0], choices), "field")
        return algebra.cast(algebra.power(base, parts[1]), "field")
    operands = [_value(algebra, part, choices) for part in parts]
    if any(v.kind == "field" for v in operands):
        operands = [algebra.cast(v, "field") for v in operands]
    if what == "where":
        zero = algebra.constant(Fraction(0), operands[0].kind)
        return algebra.where(algebra.compare("gt", operands[0], zero), *operands[1:])
    result: Value = getattr(algebra, what)(*operands)
    return result


def _number(formula: Formula, outcomes: Assignment) -> Fraction:
    what, *parts = formula
    if what == "choice":
        return Fraction(outcomes[parts[0]])
    if what == "number":
        return Fraction(parts[0])
    if what == "power":
        return Fraction(_number(parts[0], outcomes) ** int(parts[1]))
    operands = [_number(part, outcomes) for part in parts]
    if what == "where":
        return operands[1] if operands[0] > 0 else operands[2]
    functions: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
        "add": lambda x, y: x + y,
        "subtract": lambda x, y: x - y,
        "multiply": lambda x, y: x * y,
        "maximum": max,
    }
    return functions[what](*operands)


@given(FORMULAS)
@settings(max_examples=300)
def test_no_formula_has_a_higher_degree_than_is_said(formula: Formula) -> None:
    algebra = ChoiceAlgebra()
    with np.errstate(all="ignore"):
        said = degree(_value(algebra, formula, _chosen(algebra, 4)))
    table = {at: _number(formula, at) for at in product(range(OUTCOMES), repeat=4)}
    assert said >= _degree_of(table, 4)


def test_a_sum_over_an_axis_counts_its_greatest_term_and_a_product_all_factors() -> None:
    algebra = ChoiceAlgebra()
    choices = _chosen(algebra, 6)
    total = algebra.sum(choices, (0,))
    weights = algebra.cast(algebra.reshape(choices, (2, 3)), "field")
    gram = algebra.matmul(weights, algebra.transpose(weights, (1, 0)))
    assert degree(total) == 1
    assert np.diagonal(algebra.bits(gram)[0, 0, 0]).tolist() == [2.0, 2.0]
    assert degree(gram) == 2
    assert degree(algebra.power(algebra.cast(total, "field"), 5)) == 5
    assert degree(algebra.remainder(total, algebra.constant(Fraction(2), "int"))) == ENDLESS


def test_an_element_of_one_choice_stays_one_through_ranks_and_functions() -> None:
    """The embedding of one id over four ranks: its mask times what its index reads, and the sum."""
    algebra = ChoiceAlgebra()
    index = _chosen(algebra, 2)
    table = algebra.fresh("table", (1, 3))
    parts = []
    for rank in range(4):
        own = algebra.compare("eq", index, algebra.constant(Fraction(rank), "int"))
        row = algebra.take(table, 0, algebra.multiply(index, algebra.constant(Fraction(0), "int")))
        hot = algebra.expand(algebra.reshape(algebra.cast(own, "field"), (2, 1)), (2, 3))
        parts.append(algebra.multiply(row, hot))
    whole = parts[0]
    for part in parts[1:]:
        whole = algebra.add(whole, part)
    assert degree(algebra.exp(whole)) == 1


def test_a_power_of_what_is_joined_with_fixed_numbers_has_the_degrees_of_its_elements() -> None:
    """Joined arrays have codes for every draw, which are the same in all."""
    outcomes = np.array([[1, 0], [2, 1], [0, 0], [1, 2]])
    algebra = ChoiceAlgebra(range(4))
    drawn = algebra.chosen(algebra.integers(outcomes[:, None]), np.full((1, 2), 1.0))
    choices = algebra.cast(drawn, "field")
    fixed = algebra.expand(algebra.constant(Fraction(3)), (2,))
    joined = algebra.concatenate([choices, fixed], 0)
    assert degrees_of(algebra.power(joined, 2)).ravel().tolist() == [1, 1, 0, 0]
    total = algebra.concatenate([algebra.expand(algebra.sum(choices, (0,)), (1,)), fixed], 0)
    assert degrees_of(algebra.power(total, 2)).ravel().tolist() == [2, 0, 0]


def test_rows_that_are_added_at_places_of_reals_may_be_anywhere() -> None:
    """Outcomes of real numbers have no codes of their own if they are proven; they vary by draw."""
    outcomes = np.array([[1, 0], [2, 1], [0, 0], [1, 2]])
    algebra = ChoiceAlgebra(range(4))
    drawn = algebra.chosen(algebra.integers(outcomes[:, None]), np.full((1, 2), 1.0))
    fixed = algebra.expand(algebra.constant(Fraction(3)), (2,))
    rows = algebra.concatenate([algebra.cast(drawn, "field"), fixed], 0)
    base = algebra.expand(algebra.constant(Fraction(0)), (3,))
    places = np.array([[0, 1, 2, 2], [1, 0, 2, 2], [0, 1, 2, 2], [0, 0, 2, 2]])
    of_reals = algebra.integers(places[:, None])
    assert degrees_of(algebra.add_at(base, 0, of_reals, rows)).ravel().tolist() == [1, 1, 1]
    same = algebra.integers(places[:1, None])
    assert degrees_of(algebra.add_at(base, 0, same, rows)).ravel().tolist() == [1, 1, 0]
    taken = algebra.take(rows, 0, of_reals)
    assert degrees_of(algebra.power(taken, 2)).ravel().tolist() == [2, 2, 2, 2]


def _counted(algebra: ChoiceAlgebra, outcomes: NDArray[np.int64]) -> Value:
    """How often choices are 1, as a number to divide by, from outcomes (draws, choices)."""
    choices = algebra.chosen(algebra.integers(outcomes[:, None]), np.full((1, 3), 1.0))
    return algebra.cast(algebra.sum(choices, (0,)), "field")


def test_a_quotient_has_a_bound_if_all_divisors_are_one_number() -> None:
    """1/(1 + n) for all subsets of choices, with signs, is 0 unless all of them hold."""
    outcomes = np.array([[1, 1, 1], [1, 0, 1], [0, 1, 1], [1, 1, 0]])
    algebra = ChoiceAlgebra(range(4))
    count = _counted(algebra, outcomes)
    loss = algebra.fresh("loss", ())
    assert degree(algebra.divide(loss, count)) == 1
    assert degree(algebra.divide(algebra.divide(loss, count), count)) == 2
    assert degree(algebra.divide(loss, algebra.add(count, count))) == ENDLESS
    assert degree(algebra.divide(loss, algebra.multiply(count, count))) == ENDLESS


def test_places_of_real_numbers_are_choices_beside_those_that_decide_the_numbers() -> None:
    algebra = ChoiceAlgebra()
    numbers = algebra.fresh("numbers", (2, 3))
    assert degree(algebra.order(numbers, 1, descending=True)) == 1
    chosen = algebra.cast(algebra.reshape(_chosen(algebra, 2), (2, 1)), "field")
    assert degree(algebra.order(algebra.multiply(numbers, chosen), 1, descending=True)) == 2
    total = algebra.add(numbers, algebra.sum(chosen, (0,)))
    assert degree(algebra.order(total, 1, descending=True)) == ENDLESS


@pytest.mark.parametrize("name", ["erf", "exp", "unknown"])
def test_a_function_of_several_choices_has_no_bound(name: str) -> None:
    algebra = ChoiceAlgebra()
    choices = algebra.cast(_chosen(algebra, 2), "field")
    total = algebra.sum(choices, (0,))
    for argument, least in ((choices, 1), (total, ENDLESS)):
        found = algebra.exp(argument) if name == "exp" else algebra.function(name, argument)
        assert degree(found) == least


def test_an_integer_equals_itself_whatever_decides_it() -> None:
    algebra = ChoiceAlgebra()
    one, other = _chosen(algebra, 3), _chosen(algebra, 3)
    assert degree(algebra.compare("eq", one, one)) == 0
    assert degree(algebra.compare("le", one, one)) == 0
    assert degree(algebra.compare("eq", one, other)) == ENDLESS
    moved = algebra.slice(algebra.concatenate([other, one], 0), 0, 1, 4)
    assert degree(algebra.compare("eq", one, moved)) == ENDLESS
