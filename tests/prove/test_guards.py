"""Which guards follow from others, what is positive, and what undefined numbers reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from pitcheck.algebra.bound.degree_values import (
    ABOVE_ZERO,
    Sign,
    sign_of_choice,
    sign_of_maximum,
)
from pitcheck.algebra.interface import Comparison
from pitcheck.algebra.residues.chains import chains_of
from pitcheck.algebra.residues.undefined import UndefinedAlgebra
from pitcheck.algebra.value import NAN, Value
from pitcheck.prove.domains.alternatives import Alternatives
from pitcheck.prove.domains.guard_factors import Class, Known, as_strong, discharging
from pitcheck.prove.domains.guards import Extent, extent
from pitcheck.prove.domains.undefined_cuts import patterns

PRIME = 2147483647
A, B, C = 1_000_003, 2_000_003, 3_000_017
HALF = pow(2, -1, PRIME)


def follows(own: Class, *given: Class, known: Known | None = None) -> bool:
    return any(True for _ in discharging(own, given, known or Known(PRIME)))


def over(a: int, b: int) -> int:
    return a * pow(b, -1, PRIME) % PRIME


@pytest.mark.parametrize(
    ("own", "given", "expected"),
    [
        (("div", A * B % PRIME), (("div", A), ("div", B)), True),
        (("div", A * B % PRIME), (("div", A),), False),
        (("div", A * B * C % PRIME), (("div", A), ("div", B), ("log", C)), True),
        (("div", -A % PRIME), (("div", A),), True),
        (("log", -A % PRIME), (("log", A),), False),
        (("sqrt", -A % PRIME), (("sqrt", A),), False),
        (("div", 3 * A), (("div", A),), True),
        (("div", A * HALF % PRIME), (("log", A),), True),
        (("div", 17 * A), (("div", A),), False),
        (("log", A), (("sqrt", A),), False),
        (("sqrt", 2 * A), (("log", A),), True),
        (("div", over(A, B)), (("div", A), ("div", B)), True),
        (("log", over(A, B)), (("log", A), ("log", B)), True),
        (("sqrt", over(A, B)), (("sqrt", A), ("sqrt", B)), False),
        (("div", A), (("div", A * A % PRIME),), True),
        (("sqrt", A), (("sqrt", A * A % PRIME),), False),
        (("div", 0), (("div", A),), False),
        (("tan", A), (("div", A),), False),
    ],
)
def test_what_follows(own: Class, given: tuple[Class, ...], expected: bool) -> None:
    assert follows(own, *given) is expected


def test_a_factor_of_what_is_not_0() -> None:
    product = ("div", A * B * C % PRIME)
    assert follows(("div", A), product, known=Known(PRIME, defined={B, C}))
    assert follows(("div", A), product, known=Known(PRIME, defined={B * C % PRIME}))
    assert not follows(("div", A), product, known=Known(PRIME, defined={B}))
    assert not follows(("log", A), ("log", A * B % PRIME), known=Known(PRIME, defined={B}))


def test_positive_factors() -> None:
    """A root of r c with c = 0 has a value whatever r is."""
    for what, inverse in (("div", True), ("log", True), ("sqrt", False)):
        known = Known(PRIME, positive=[(what, B)])
        assert follows((what, A * B % PRIME), (what, A), known=known)
        assert follows((what, over(A, B)), (what, A), known=known) is inverse


def test_what_inputs_choose_may_be_the_number_that_vanishes() -> None:
    unless_shown = Sign.NONNEGATIVE | Sign.POSITIVE
    assert sign_of_choice([ABOVE_ZERO, unless_shown], [Sign.KNOWN]) == unless_shown
    assert sign_of_choice([ABOVE_ZERO, unless_shown], [Sign(0)]) == Sign.NONNEGATIVE
    assert sign_of_choice([ABOVE_ZERO, ABOVE_ZERO | Sign.KNOWN], [Sign(0)]) == ABOVE_ZERO
    assert sign_of_choice([Sign.KNOWN, Sign.KNOWN], [Sign(0)]) == Sign(0)


def test_a_maximum_is_as_large_as_either() -> None:
    assert sign_of_maximum(ABOVE_ZERO, Sign(0)) == ABOVE_ZERO
    assert sign_of_maximum(Sign(0), Sign.NONNEGATIVE) == Sign.NONNEGATIVE
    assert sign_of_maximum(Sign.NONNEGATIVE | Sign.POSITIVE, Sign(0)) == Sign.NONNEGATIVE


def test_extents() -> None:
    assert extent([0], 2) is Extent.NOTHING
    assert extent([0, 2], 2) is Extent.ALL
    assert extent([2, 1], 2) is Extent.SOME
    assert patterns((3, 3), Extent.ALL).all()
    assert patterns((3, 3), Extent.SOME).sum() == 9


# --- undefined numbers


@pytest.fixture
def algebra() -> UndefinedAlgebra:
    return UndefinedAlgebra(np, chains_of(1)[0], seed=1, trials=(0, 1))


def lacking(a: Value) -> list[bool]:
    codes = np.zeros((1, 1, 1, 1)) if a.special is None else a.special
    return [bool(x) for x in (codes == NAN).any(axis=(0, 1, 2)).reshape(-1)]


def test_what_an_undefined_number_decides_is_undefined(algebra: UndefinedAlgebra) -> None:
    x = algebra.fresh("x", (3,))
    y = algebra.without(x, np.array([True, False, False]).reshape(1, 1, 1, 3))
    first, all_three = [True, False, False], [True, True, True]
    larger = algebra.compare("gt", y, algebra.fresh("y", (3,)))
    assert lacking(larger) == first
    assert lacking(algebra.logical_not(larger)) == first
    assert lacking(algebra.cast(larger, "field")) == first
    assert lacking(algebra.cast(algebra.cast(larger, "int"), "bool")) == first
    assert lacking(algebra.where(larger, x, x)) == first
    assert lacking(algebra.sum(algebra.cast(larger, "int"), (0,))) == [True]
    assert lacking(algebra.order(y, 0, True)) == all_three
    assert lacking(algebra.take_along(x, 0, algebra.order(y, 0, True))) == all_three
    assert lacking(algebra.reduce_max(y, 0)) == [True]
    known = algebra.integers(np.array([[[True, False, False]]]))
    assert not any(lacking(algebra.where(known, x, y)))
    assert lacking(algebra.where(known, y, x)) == first


def test_what_a_choice_hides_depends_on_what_it_chooses_between(algebra: UndefinedAlgebra) -> None:
    """Only then must outcomes be tried that no draw had."""
    x = algebra.fresh("x", (3,))

    nowhere = algebra.without(x, np.zeros((1, 2, 1, 3), dtype=np.bool_))
    once = algebra.without(x, np.array([[True, False, False], [False] * 3]).reshape(1, 2, 1, 3))
    everywhere = algebra.without(x, np.ones((1, 1, 1, 3), dtype=np.bool_))
    drawn = algebra.compare("gt", x, algebra.fresh("y", (3,)))
    fixed = algebra.integers(np.array([[[True, False, True]]]))
    index = algebra.integers(np.array([[[0, 1, 2]], [[2, 2, 0]]]))

    def hides(compute: Callable[[], Value]) -> list[bool]:
        algebra.hidden = np.zeros(1, dtype=np.bool_)
        compute()
        return np.broadcast_to(algebra.hidden, 2).tolist()

    assert hides(lambda: algebra.where(drawn, nowhere, x)) == [False, False]
    assert hides(lambda: algebra.where(drawn, once, x)) == [True, False]
    assert hides(lambda: algebra.where(drawn, x, once)) == [True, False]
    assert hides(lambda: algebra.where(drawn, once, once)) == [False, False]
    assert hides(lambda: algebra.where(drawn, everywhere, everywhere)) == [False, False]
    assert hides(lambda: algebra.where(fixed, once, x)) == [False, False]
    assert hides(lambda: algebra.take_along(once, 0, index)) == [True, False]
    assert hides(lambda: algebra.take_along(everywhere, 0, index)) == [False, False]
    assert hides(lambda: algebra.take(once, 0, index)) == [True, False]
    assert hides(lambda: algebra.add_at(x, 0, index, once)) == [True, False]
    assert hides(lambda: algebra.add_along(x, 0, index, everywhere)) == [True, True]


def test_every_comparison_has_an_outcome_of_its_own(algebra: UndefinedAlgebra) -> None:
    x = algebra.fresh("x", (200,))
    zero = algebra.subtract(x, x)
    algebra.free_order = True

    def outcome(comparison: Comparison, a: Value, b: Value) -> Any:
        return algebra.compare(comparison, a, b).data

    above = outcome("gt", x, zero)
    assert 100 < above.sum() < 300
    assert (above == outcome("lt", zero, x)).all()
    assert (above == outcome("lt", algebra.negate(x), zero)).all()
    assert (above != outcome("le", x, zero)).all()
    assert (above != outcome("ge", x, zero)).any()
    assert (outcome("eq", x, zero) == outcome("eq", zero, x)).all()
    assert (outcome("eq", x, zero) != outcome("ne", x, zero)).all()
    assert outcome("eq", x, zero).any()


CLASSES = st.sampled_from(
    [("div", A), ("div", B), ("div", C), ("log", A), ("sqrt", B), ("div", A * B % PRIME)]
)
PLACES = st.sets(st.integers(0, 5))


@hypothesis_given(CLASSES, PLACES, st.dictionaries(CLASSES, PLACES))
def test_an_element_lacks_a_guard_unless_it_needs_all_of_some_that_discharge_it(
    own: Class, need: set[int], guards: dict[Class, set[int]]
) -> None:
    alternatives = Alternatives(
        {each: np.array(sorted(places), np.int64) for each, places in guards.items()},
        lambda: Known(PRIME),
    )
    lacking = alternatives.lacking(own, np.array(sorted(need), np.int64))
    equal = {(kind, own[1]) for kind in as_strong(own[0])} & guards.keys()
    met = set[int]().union(*(guards[each] for each in equal))
    expected = [
        place
        for place in sorted(need - met)
        if not follows(own, *[each for each, places in guards.items() if place in places])
    ]
    assert lacking.tolist() == expected
    assert alternatives.by_chance == (not need <= met)


def test_many_operands_of_one_guard_are_told_apart_in_linear_memory() -> None:
    count = 20_000
    places = {("sqrt", n): np.array([n], np.int64) for n in range(1, count)}
    alternatives = Alternatives(places, lambda: Known(PRIME))
    assert not any(alternatives.lacking(each, need).size for each, need in places.items())
    assert alternatives.lacking(("sqrt", 5), np.array([4, 5])).tolist() == [4]
