"""Comparisons in which some numbers are taken to be equal: what then differs, and what does not."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pitcheck.algebra.residues.chains import chains_of
from pitcheck.algebra.value import Value
from pitcheck.prove.ties import TiesAlgebra

DRAWS = 256


@pytest.fixture
def algebra() -> TiesAlgebra:
    return TiesAlgebra(np, chains_of(1)[0], 1, range(DRAWS))


def _outcomes(algebra: TiesAlgebra, comparison: Any, a: Value, b: Value) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = algebra.compare(comparison, a, b).data.reshape(-1)
    return found


@pytest.mark.parametrize(("strict", "weak"), [("lt", "le"), ("gt", "ge"), ("ne", "eq")])
def test_a_quarter_of_all_numbers_are_equal(strict: Any, weak: Any, algebra: TiesAlgebra) -> None:
    x, y = algebra.fresh("x", ()), algebra.fresh("y", ())
    strictly, weakly = (_outcomes(algebra, each, x, y) for each in (strict, weak))
    equal = _outcomes(algebra, "eq", x, y)
    assert DRAWS / 8 < equal.sum() < DRAWS / 2
    assert not strictly[equal].any() and weakly[equal].all()
    if strict != "ne":
        assert (strictly[~equal] == weakly[~equal]).all()


def test_a_difference_is_a_tie_wherever_it_is_compared(algebra: TiesAlgebra) -> None:
    x, y, z = (algebra.fresh(name, ()) for name in "xyz")
    equal = _outcomes(algebra, "eq", x, y)
    assert (equal == _outcomes(algebra, "eq", y, x)).all()
    moved = _outcomes(algebra, "eq", algebra.add(x, z), algebra.add(y, z))
    assert (equal == moved).all()
    assert (equal != _outcomes(algebra, "eq", x, z)).any()


def test_infinity_and_other_sites_have_no_ties(algebra: TiesAlgebra) -> None:
    x = algebra.fresh("x", ())
    assert not _outcomes(algebra, "ge", algebra.constant(-float("inf")), x).any()
    algebra.tied, algebra.site = {"parallel 1 ge"}, "parallel 2 relu.backward"
    assert not _outcomes(algebra, "eq", x, algebra.constant(Fraction(1))).any()
    algebra.site = "parallel 1 ge"
    assert _outcomes(algebra, "eq", x, algebra.constant(Fraction(1))).any()
