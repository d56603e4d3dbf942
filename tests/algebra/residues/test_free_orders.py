"""Orders along an axis are tables of permutations; small whole numbers are compared as they are."""

from collections import Counter
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.free_functions import FreeAlgebra
from pitcheck.algebra.value import Value
from pitcheck.errors import UnsupportedError

DRAWS = 600
CHAIN = Chain((1000003, 999983), linked=False)


@pytest.fixture
def algebra() -> FreeAlgebra:
    return FreeAlgebra(np, CHAIN, 1, range(DRAWS))


def ordered(
    algebra: FreeAlgebra, a: Value, axis: int = 0, descending: bool = True
) -> NDArray[np.int64]:
    """The places of all draws, shape (draws, *shape)."""
    found: NDArray[np.int64] = algebra.order(a, axis, descending).data[0, :, 0]
    return found


def test_every_order_is_drawn_about_as_often(algebra: FreeAlgebra) -> None:
    places = ordered(algebra, algebra.fresh("x", (3,)))
    counts = Counter(map(tuple, places.tolist()))
    assert set(counts) == set(permutations(range(3)))
    assert all(60 < n < 145 for n in counts.values())


def test_equal_lines_have_one_order_and_others_have_nothing_to_do_with_it(
    algebra: FreeAlgebra,
) -> None:
    x = algebra.fresh("x", (3,))
    twice = algebra.subtract(algebra.add(x, x), x)
    assert (ordered(algebra, x) == ordered(algebra, twice)).all()
    for other in (algebra.flip(x, 0), algebra.negate(x), algebra.add(x, x)):
        same = (ordered(algebra, x) == ordered(algebra, other)).all(axis=1)
        assert 60 < same.sum() < 145


def test_a_descending_order_is_no_reverse_of_the_ascending_one(algebra: FreeAlgebra) -> None:
    x = algebra.fresh("x", (3,))
    same = (ordered(algebra, x) == ordered(algebra, x, descending=False)[:, ::-1]).all(axis=1)
    assert 60 < same.sum() < 145


def test_lines_are_taken_along_the_axis(algebra: FreeAlgebra) -> None:
    x = algebra.fresh("x", (2, 3))
    turned = algebra.transpose(x, (1, 0))
    places = ordered(algebra, x, axis=1)
    assert (np.sort(places, axis=2) == np.arange(3)).all()
    assert (places == ordered(algebra, turned).transpose(0, 2, 1)).all()
    assert not (places[:, 0] == places[:, 1]).all()


def test_a_line_that_differs_in_one_number_has_another_order(algebra: FreeAlgebra) -> None:
    x, y = algebra.fresh("x", (3,)), algebra.fresh("y", (3,))
    last = algebra.integers(np.array([[[False, False, True]]]))
    other = algebra.where(last, y, x)
    assert not (ordered(algebra, x) == ordered(algebra, other)).all()


@pytest.mark.parametrize("descending", [True, False])
def test_infinities_and_nan_are_at_the_ends(descending: bool, algebra: FreeAlgebra) -> None:
    given = [float("nan"), float("inf"), None, float("-inf"), None]
    x = algebra.fresh("x", (5,))
    parts = [
        algebra.slice(x, 0, i, i + 1)
        if number is None
        else algebra.reshape(algebra.constant(number), (1,))
        for i, number in enumerate(given)
    ]
    places = ordered(algebra, algebra.concatenate(parts, 0), descending=descending)
    if not descending:
        places = places[:, ::-1]
    assert (places[:, 0] == 0).all()
    assert (places[:, 1] == 1).all()
    assert (places[:, 4] == 3).all()
    assert 200 < (places[:, 2] == 2).sum() < 400


def test_orders_do_not_depend_on_the_draws_beside_them(algebra: FreeAlgebra) -> None:
    alone = FreeAlgebra(np, CHAIN, 1, [7])
    places = [ordered(each, each.fresh("x", (6,))) for each in (algebra, alone)]
    assert (places[0][7] == places[1][0]).all()


def _whole(algebra: FreeAlgebra, numbers: list[int]) -> Value:
    return algebra.cast(algebra.integers(np.array(numbers).reshape(1, 1, -1)), "field")


def test_whole_numbers_are_compared_where_a_site_has_no_others() -> None:
    algebra = FreeAlgebra(np, CHAIN, 1, [0, 1], whole={"counts"})
    a, b = _whole(algebra, [0, 3, -5]), _whole(algebra, [0, 4, 2])
    algebra.site = "counts"
    outcomes: dict[Any, list[bool]] = {
        "eq": [True, False, False],
        "lt": [False, True, True],
        "ge": [True, False, False],
    }
    for comparison, expected in outcomes.items():
        found = algebra.compare(comparison, a, b).data
        assert found.dtype == np.bool_
        assert found[0, 0, 0].tolist() == expected
    assert algebra.cast(a, "bool").data[0, 0, 0].tolist() == [False, True, True]
    assert algebra.cast(a, "int").data[0, 0, 0].tolist() == [0, 3, -5]


def test_elsewhere_they_are_arguments_of_tables() -> None:
    algebra = FreeAlgebra(np, CHAIN, 1, [0, 1], whole={"counts"})
    a = _whole(algebra, [0, 3, -5])
    algebra.site = "another"
    assert algebra.compare("lt", a, algebra.constant(Fraction(1))).data.dtype != np.bool_
    with pytest.raises(UnsupportedError, match="order of numbers"):
        algebra.cast(a, "int")
