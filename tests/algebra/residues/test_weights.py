"""Weights of places: which array axes have them, and what sums make of them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pitcheck.algebra.dimensions.axes import AxisAlgebra, AxisSystem
from pitcheck.algebra.residues.chains import chains_of
from pitcheck.algebra.residues.weights import (
    ONES,
    Pattern,
    UnweighedError,
    WeightedAlgebra,
    patterns,
)


def _algebra(weights: dict[int, Pattern]) -> WeightedAlgebra:
    return WeightedAlgebra(weights, np, chains_of(3)[0], 1, [0, 1])


def test_axes_have_weights_by_their_sizes() -> None:
    system = AxisSystem()
    whole, part = system.dimension(64), system.dimension(16)
    system.tie(part, whole, 16)
    fixed = system.dimension(7, fixed="it is given")
    sizes = system.solve(0)
    small, number = sizes.size(part), system.number_of(whole)
    assert patterns(system, sizes, ()) == {
        small: ((number, 1, small),),
        4 * small: ((number, 4, small),),
    }
    assert sizes.size(fixed) == 7
    assert patterns(system, sizes, {small}) == {}, (
        "a size that another axis has says nothing, and a class has all its weights or none"
    )


def test_factors_have_weights_of_their_own() -> None:
    system = AxisSystem()
    outer, inner = system.dimension(60), system.dimension(44)
    joined = system.product(outer, inner)
    sizes = system.solve(0)
    own = [(system.number_of(node), 1, sizes.size(node)) for node in (outer, inner)]
    assert patterns(system, sizes, ())[sizes.size(joined)] == tuple(own)


def test_sums_products_and_sizes_are_weighted_alike() -> None:
    algebra = _algebra({6: ((5, 2, 3),)})
    weights = algebra.weights(6)
    assert weights is not None
    assert not algebra.differs(
        algebra.slice(weights, 0, 0, 3), algebra.slice(weights, 0, 3, 6)
    ).any(), "equal segments have equal weights"
    ones = algebra.expand(algebra.constant(Fraction(1)), (4, 6))
    total = algebra.sum(ones, (1,))
    assert not algebra.differs(total, algebra.expand(algebra.extent(ones, (1,)), (4,))).any()
    assert not algebra.differs(
        total,
        algebra.reshape(
            algebra.matmul(ones, algebra.reshape(algebra.slice(ones, 0, 0, 1), (6, 1))), (4,)
        ),
    ).any()
    assert algebra.differs(total, algebra.expand(algebra.constant(Fraction(6)), (4,))).all()
    assert not algebra.differs(
        algebra.sum(ones, (0,)), algebra.expand(algebra.constant(Fraction(4)), (6,))
    ).any(), "an axis of another size has none"


def test_a_factor_without_weights_has_ones() -> None:
    algebra = _algebra({6: ((ONES, 1, 2), (5, 1, 3))})
    weights = algebra.weights(6)
    assert weights is not None
    assert not algebra.differs(
        algebra.slice(weights, 0, 0, 3), algebra.slice(weights, 0, 3, 6)
    ).any()
    assert algebra.weights(2) is None


def test_sums_of_formal_logarithms_are_refused() -> None:
    algebra = _algebra({3: ((5, 1, 3),)})
    with pytest.raises(UnweighedError):
        algebra.sum(algebra.log(algebra.exp(algebra.fresh("x", (3,)))), (0,))
        algebra.sum(algebra.log(algebra.fresh("x", (3,))), (0,))


@pytest.mark.parametrize(("number", "whole"), [(0, False), (3, True)])
def test_what_is_counted_and_decides_keeps_its_axis(number: int, whole: bool) -> None:
    system = AxisSystem()
    algebra = AxisAlgebra(system)
    marked = algebra.tensor((64,), "bool")
    for kind in ("int", "field"):
        algebra.compare(
            "gt",
            algebra.sum(algebra.cast(marked, kind), (0,)),
            algebra.constant(Fraction(number), kind),
        )  # type: ignore[arg-type]
    assert (system.solve(0).size(marked.dims[0]) == 64) == whole


def test_what_is_counted_and_only_added_does_not() -> None:
    system = AxisSystem()
    algebra = AxisAlgebra(system)
    marked, values = algebra.tensor((64,), "bool"), algebra.tensor((64,))
    count = algebra.sum(algebra.cast(marked, "field"), (0,))
    mean = algebra.divide(algebra.sum(values, (0,)), count)
    algebra.compare("gt", mean, algebra.constant(Fraction(3)))
    assert system.solve(0).size(marked.dims[0]) < 64
    algebra.maximum(count, algebra.constant(Fraction(1)))
    assert system.solve(0).size(marked.dims[0]) == 64


def test_a_weighted_sum_is_as_little_negative_as_its_terms() -> None:
    weighted = _algebra({3: ((0, 1, 3),)})
    x = weighted.fresh("x", (3,))
    assert weighted.sum(weighted.multiply(x, x), (0,)).nonnegative
    assert not weighted.sum(x, (0,)).nonnegative
