"""Bounds for sums of which few terms are not 0, as the integers of some draws say."""

import numpy as np
import pytest
from numpy.typing import NDArray

from pitcheck.algebra.bound.degree_values import DegreeValue, in_both, reshaped
from pitcheck.algebra.bound.degrees import DegreeAlgebra

SLOTS, TOKENS = 5, 7


def chosen(*tokens: int) -> NDArray[np.bool_]:
    """A matrix of slots by tokens in which slot n holds ``tokens[n]``, for one draw."""
    found = np.zeros((1, 1, SLOTS, TOKENS), dtype=bool)
    found[0, 0, range(len(tokens)), tokens] = True
    return found


def quotients(algebra: DegreeAlgebra, *shape: int) -> DegreeValue:
    return algebra.divide(algebra.fresh("a", shape), algebra.fresh("b", shape))


def numbers(algebra: DegreeAlgebra, *shape: int) -> DegreeValue:
    """The result of a conversion of booleans."""
    algebra.site = "parallel 0 cast"
    made = algebra.cast(algebra.fresh("mask", shape, kind="bool"), "field")
    algebra.site = "parallel 1 matmul"
    return made


def packed(support: NDArray[np.bool_] | None) -> DegreeValue:
    algebra = DegreeAlgebra(supports={} if support is None else {"parallel 0 cast": support})
    return algebra.matmul(numbers(algebra, SLOTS, TOKENS), quotients(algebra, TOKENS, 3))


def test_a_slot_with_one_token_has_the_divisor_of_one() -> None:
    assert packed(None).degree.denominator == TOKENS
    assert packed(chosen(3, 1, 0, 6)).degree.denominator == 1


def test_a_slot_with_two_tokens_has_the_divisors_of_two() -> None:
    """A matrix that is not what it should be has the bound of what it is."""
    support = chosen(3, 1, 0, 6)
    support[0, 0, 2, 5] = True
    assert packed(support).degree.denominator == 2


def test_the_worst_of_several_draws_counts() -> None:
    more = chosen(0, 1)
    more[0, 0, 0] = True
    assert packed(np.concatenate([chosen(3, 1), more])).degree.denominator == TOKENS


def test_nothing_chosen_has_some_bound() -> None:
    assert packed(np.zeros((1, 1, SLOTS, TOKENS), dtype=bool)).degree.denominator == 1


def test_a_factor_that_is_0_leaves_few_terms_through_moves_and_sums() -> None:
    algebra = DegreeAlgebra(supports={"parallel 0 cast": np.eye(4, dtype=bool)[None, None]})
    masked = algebra.multiply(
        algebra.reshape(numbers(algebra, 4, 4), (4, 1, 4, 1)), quotients(algebra, 4, 3, 4, 2)
    )
    assert algebra.sum(algebra.transpose(masked, (3, 0, 1, 2)), (3,)).degree.denominator == 1
    summed = algebra.sum(masked, (1, 3))
    assert summed.degree.denominator == 6
    assert algebra.sum(summed, (1,)).degree.denominator == 6


@pytest.mark.parametrize("operation", ["add", "exp", "flip", "take"])
def test_what_need_not_keep_zeros_counts_all_terms(operation: str) -> None:
    algebra = DegreeAlgebra(supports={"parallel 0 cast": chosen(3, 1)})
    mask = numbers(algebra, SLOTS, TOKENS)
    changed = {
        "add": lambda: algebra.add(mask, mask),
        "exp": lambda: algebra.exp(mask),
        "flip": lambda: algebra.flip(mask, 1),
        "take": lambda: algebra.take(mask, 1, algebra.arange(mask, 1)),
    }[operation]()
    assert changed.support is None
    assert algebra.matmul(changed, quotients(algebra, TOKENS, 3)).degree.denominator >= TOKENS


def test_an_expanded_axis_says_nothing() -> None:
    algebra = DegreeAlgebra(supports={"parallel 0 cast": np.ones((1, 1, 1), dtype=bool)})
    wide = algebra.expand(numbers(algebra, 1), (SLOTS, TOKENS))
    assert algebra.matmul(wide, quotients(algebra, TOKENS, 3)).degree.denominator == TOKENS


def test_supports_of_products() -> None:
    rows, columns = np.zeros((1, 1, 4, 1), dtype=bool), np.ones((1, 1, 1, 9), dtype=bool)
    rows[..., 0, :] = True
    sparser = in_both(rows, columns, 2)
    assert sparser is not None
    assert sparser.sum() == 1
    both = in_both(np.eye(4, dtype=bool)[None, None], rows, 2)
    assert both is not None
    assert both.sum() == 1
    assert in_both(None, None, 2) is None


def test_supports_of_reshapes() -> None:
    wide = np.ones((1, 1, 4, 1), dtype=bool)
    kept = reshaped(wide, (4, 6), (4, 1, 6))
    assert kept is not None
    assert kept.shape == (1, 1, 4, 1, 1)
    assert reshaped(wide, (4, 6), (24,)) is None
    assert reshaped(None, (4, 6), (24,)) is None
