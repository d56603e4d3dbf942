"""Numbers of places from degrees in weights, against the ranks of families of formulas.

Python integers modulo a prime evaluate a family at random weights and numbers. If its rank at some
number of places is that at more, no formula of the family vanishes there and not at more.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement
from math import prod

import pytest

from pitcheck.algebra.bound.degree_values import DegreeValue
from pitcheck.algebra.bound.place_degrees import PlaceDegreeAlgebra

PRIME = (1 << 31) - 1
POWERS = range(5)
KEPT = range(3)


def ranked(rows: list[list[int]]) -> int:
    """The rank of a matrix modulo the prime."""
    rank = 0
    for column in range(len(rows[0])):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        inverse = pow(rows[rank][column], -1, PRIME)
        for i in range(rank + 1, len(rows)):
            factor = rows[i][column] * inverse % PRIME
            if factor:
                rows[i] = [
                    (a - factor * b) % PRIME for a, b in zip(rows[i], rows[rank], strict=True)
                ]
        rank += 1
    return rank


def products(degree: int, kept: bool, places: int, draw: random.Random) -> list[int]:
    """All products of ``degree`` weighted power sums at one draw, beside powers of one place."""
    weights = [draw.randrange(PRIME) for _ in range(places)]
    numbers = [draw.randrange(PRIME) for _ in range(places)]
    sums = [
        sum(w * pow(x, power, PRIME) for w, x in zip(weights, numbers, strict=True)) % PRIME
        for power in POWERS
    ]
    place = draw.randrange(places)
    beside = [pow(numbers[place], power, PRIME) for power in (KEPT if kept else (0,))]
    return [
        prod(chosen) * own % PRIME
        for chosen in combinations_with_replacement(sums, degree)
        for own in beside
    ]


def rank_at(degree: int, kept: bool, places: int, seed: int) -> int:
    draw = random.Random(f"{degree} {kept} {places} {seed}")
    first = products(degree, kept, places, draw)
    return ranked([first, *(products(degree, kept, places, draw) for _ in range(len(first) + 8))])


def needed(degree: int, kept: bool, places: int = 3) -> int:
    """The places that the algebra asks for, for a difference of two such products."""
    algebra = PlaceDegreeAlgebra({0}, {places: ((0, 1, places),)})
    x = algebra.fresh("x", (places,))
    product = x if kept else algebra.sum(x, (0,))
    for _ in range(degree - (not kept)):
        product = algebra.multiply(product, algebra.sum(x, (0,)))
    algebra.compare_targets(product, product)
    return algebra.needed


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_so_many_places_show_what_more_of_them_show(degree: int, kept: bool) -> None:
    few = needed(degree, kept)
    assert few == degree + kept
    ranks = [rank_at(degree, kept, few + more, seed=1) for more in (0, 1, 3)]
    assert len(set(ranks)) == 1
    if 1 < few < 4:  # The family has too few powers for a formula that hides at 3 places.
        assert rank_at(degree, kept, few - 1, seed=1) < ranks[0], "one place less hides a formula"


def of_two(places: int = 3, others: int = 4) -> tuple[PlaceDegreeAlgebra, DegreeValue, DegreeValue]:
    """An algebra for the class 0 of two, x along it, and z along both."""
    algebra = PlaceDegreeAlgebra({0}, {places: ((0, 1, places),), others: ((1, 1, others),)})
    return algebra, algebra.fresh("x", (places,)), algebra.fresh("z", (others, places))


Formula = Callable[[PlaceDegreeAlgebra, DegreeValue, DegreeValue], DegreeValue]


def mean(a: PlaceDegreeAlgebra, x: DegreeValue, axis: int) -> DegreeValue:
    return a.divide(a.sum(x, (axis,)), a.extent(x, (axis,)))


def grown(a: PlaceDegreeAlgebra, x: DegreeValue, z: DegreeValue) -> DegreeValue:
    """Quotients whose divisors vary along the class are added up along it."""
    square = a.power(a.subtract(a.reshape(x, (1, 3)), a.reshape(x, (3, 1))), 2)
    return a.sum(a.divide(x, a.sum(square, (0,))), (0,))


def beside(a: PlaceDegreeAlgebra, x: DegreeValue, z: DegreeValue) -> DegreeValue:
    """Each of other places divides by a sum over the class; then these are added up."""
    return a.sum(a.divide(a.reshape(a.sum(x, (0,)), (1,)), a.sum(z, (1,))), (0,))


def root_of_mean(a: PlaceDegreeAlgebra, x: DegreeValue, z: DegreeValue) -> DegreeValue:
    return a.divide(x, a.reshape(a.sqrt(mean(a, a.power(x, 2), 0)), (1,)))


def softmax(a: PlaceDegreeAlgebra, x: DegreeValue, z: DegreeValue) -> DegreeValue:
    powers = a.exp(z)
    return a.divide(powers, a.reshape(a.sum(powers, (1,)), (4, 1)))


def log_softmax(a: PlaceDegreeAlgebra, x: DegreeValue, z: DegreeValue) -> DegreeValue:
    return a.exp(a.subtract(z, a.reshape(a.log(a.sum(a.exp(z), (1,))), (4, 1))))


def counted(a: PlaceDegreeAlgebra, x: DegreeValue, z: DegreeValue) -> DegreeValue:
    """The product of two numbers of integers."""
    number = a.sum(a.cast(a.fresh("i", (3,), kind="int"), "int"), (0,))
    return a.cast(a.multiply(number, number), "field")


@pytest.mark.parametrize(
    ("formula", "least", "most", "grows"),
    [
        # One place of its own, and a sum on both sides.
        (softmax, 2, 3, ()),
        (log_softmax, 2, 4, ()),
        (root_of_mean, 3, 4, ()),
        (counted, 2, 2, ()),
        (grown, 3, 24, (0,)),
        (beside, 2, 24, (1,)),
    ],
)
def test_of_formulas(formula: Formula, least: int, most: int, grows: Sequence[int]) -> None:
    algebra, x, z = of_two()
    value = formula(algebra, x, z)
    algebra.compare_targets(value, value)
    assert least <= algebra.needed <= most
    assert algebra.grows == set(grows)


def test_arguments_of_functions_are_told_apart() -> None:
    """Two arguments, each at two places, with a sum in them."""
    algebra, x, _ = of_two()
    pairs = algebra.add(algebra.reshape(x, (3, 1)), x)
    algebra.exp(algebra.multiply(pairs, algebra.sum(x, (0,))))
    assert (algebra.needed, algebra.in_functions) == (2 * 2 + 1, 1)


def test_a_place_of_two_classes_has_two_weights() -> None:
    """An axis that is made of a class twice counts twice, in sums and in what is singled out."""
    algebra = PlaceDegreeAlgebra({0}, {9: ((0, 1, 3), (0, 1, 3))})
    x = algebra.fresh("x", (9,))
    algebra.compare_targets(x, algebra.multiply(x, algebra.sum(x, (0,))))
    assert algebra.needed == 2 + 2
