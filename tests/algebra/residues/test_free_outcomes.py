"""Comparisons as tables: what holds of all outcomes, what does not, and what is refused.

Polynomials of outcomes are compared with Python's own booleans, with tables that give 0 and 1.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.free_functions import FreeAlgebra
from pitcheck.algebra.residues.free_outcomes import is_mask
from pitcheck.algebra.residues.undefined import UndefinedFreeAlgebra
from pitcheck.algebra.value import Value
from pitcheck.errors import ShapeError, UnsupportedError

PRIMES = (2147481311, 2147366399, 2147260631)
MASKS = 4


@pytest.fixture
def algebra() -> FreeAlgebra:
    return _algebra()


def _algebra() -> FreeAlgebra:
    return FreeAlgebra(np, Chain(PRIMES, linked=False), 1, (0, 1))


def _number(algebra: FreeAlgebra, number: float | int) -> Value:
    exact = number if isinstance(number, float) else Fraction(number)
    return algebra.expand(algebra.constant(exact), (3,))


def _same(algebra: FreeAlgebra, a: Value, b: Value) -> bool:
    return not algebra.differs(a, b).any()


def _everywhere_apart(algebra: FreeAlgebra, a: Value, b: Value) -> bool:
    return bool(algebra.differs(a, b).all())


@pytest.mark.parametrize(
    ("one", "other"),
    [("lt", "gt"), ("le", "ge"), ("eq", "eq"), ("ne", "ne")],
)
def test_a_comparison_may_be_read_from_either_end(
    one: Any, other: Any, algebra: FreeAlgebra
) -> None:
    x, y = algebra.fresh("x", (3,)), algebra.fresh("y", (3,))
    assert _same(algebra, algebra.compare(one, x, y), algebra.compare(other, y, x))


@pytest.mark.parametrize(("one", "other"), [("lt", "ge"), ("gt", "le"), ("eq", "ne")])
def test_the_contrary_is_the_complement(one: Any, other: Any, algebra: FreeAlgebra) -> None:
    x, y = algebra.fresh("x", (3,)), algebra.fresh("y", (3,))
    held, failed = algebra.compare(one, x, y), algebra.compare(other, x, y)
    assert _same(algebra, held, algebra.logical_not(failed))
    assert _everywhere_apart(algebra, held, failed)


@pytest.mark.parametrize("one", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_no_two_comparisons_are_taken_for_one(one: Any, algebra: FreeAlgebra) -> None:
    x, y = algebra.fresh("x", (3,)), algebra.fresh("y", (3,))
    held = algebra.compare(one, x, y)
    for other in {"lt", "le", "gt", "ge", "eq", "ne"} - {one}:
        assert _everywhere_apart(algebra, held, algebra.compare(other, x, y))
    near = algebra.add(y, algebra.constant(Fraction(1, 10**9)))
    assert _everywhere_apart(algebra, held, algebra.compare(one, x, near))


@pytest.mark.parametrize("one", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_equal_numbers_are_equal(one: Any, algebra: FreeAlgebra) -> None:
    x = algebra.fresh("x", (3,))
    found = algebra.compare(one, x, algebra.subtract(algebra.add(x, x), x))
    held = _number(algebra, int(one in ("le", "ge", "eq")))
    assert _same(algebra, algebra.cast(found, "field"), held)


def _formula(rng: random.Random, depth: int) -> Any:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([*range(MASKS), True, False])
    kind = rng.choice(["and", "or", "not", "where", "eq", "ne"])
    count = {"not": 1, "where": 3}.get(kind, 2)
    return (kind, *(_formula(rng, depth - 1) for _ in range(count)))


def _in_python(formula: Any, outcomes: list[bool]) -> bool:
    if isinstance(formula, bool):
        return formula
    if isinstance(formula, int):
        return outcomes[formula]
    kind, *rest = formula
    own = [_in_python(each, outcomes) for each in rest]
    if kind == "where":
        return own[1] if own[0] else own[2]
    return {
        "and": lambda: own[0] and own[1],
        "or": lambda: own[0] or own[1],
        "not": lambda: not own[0],
        "eq": lambda: own[0] == own[1],
        "ne": lambda: own[0] != own[1],
    }[kind]()


def _in_masks(algebra: FreeAlgebra, formula: Any, masks: list[Value]) -> Value:
    if isinstance(formula, bool):
        return algebra.constant(Fraction(int(formula)), "bool")
    if isinstance(formula, int):
        return masks[formula]
    kind, *rest = formula
    own = [_in_masks(algebra, each, masks) for each in rest]
    if kind == "where":
        return algebra.where(*own)
    if kind in ("eq", "ne"):
        return algebra.compare(kind, *own)
    return {
        "and": algebra.logical_and,
        "or": algebra.logical_or,
        "not": algebra.logical_not,
    }[kind](*own)


@pytest.mark.parametrize("seed", range(60))
def test_polynomials_of_outcomes_are_booleans_where_outcomes_are_0_and_1(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    outcomes = [rng.random() < 0.5 for _ in range(MASKS)]
    algebra, formula = _algebra(), _formula(rng, 4)
    left = list(outcomes)
    monkeypatch.setattr(
        algebra,
        "_looked_up",
        lambda _name, arguments, **_: np.full_like(arguments[0].data, int(left.pop(0))),
    )
    masks = [algebra.compare("lt", *(algebra.fresh(f"{s}{n}", ()) for s in "xy")) for n in range(4)]
    found = algebra.cast(_in_masks(algebra, formula, masks), "field")
    held = algebra.constant(Fraction(int(_in_python(formula, outcomes))))
    assert _same(algebra, found, held)


def test_a_choice_is_made_of_both_branches(algebra: FreeAlgebra) -> None:
    x, y, z = (algebra.fresh(name, (3,)) for name in "xyz")
    above = algebra.compare("gt", x, y)
    chosen = algebra.where(above, x, z)
    other = algebra.where(algebra.logical_not(above), z, x)
    assert _same(algebra, chosen, other)
    for near in (x, z, algebra.where(algebra.compare("ge", x, y), x, z)):
        assert _everywhere_apart(algebra, chosen, near)


def test_what_holds_only_together_is_told_apart(algebra: FreeAlgebra) -> None:
    x, y = algebra.fresh("x", (3,)), algebra.fresh("y", (3,))
    all_hold = algebra.constant(Fraction(1), "bool")
    for n in range(40):
        thing = algebra.fresh(f"a{n}", (3,))
        all_hold = algebra.logical_and(all_hold, algebra.compare("gt", thing, y))
    assert _everywhere_apart(algebra, algebra.where(all_hold, x, y), y)


@pytest.mark.parametrize(
    ("comparison", "largest"), [("gt", True), ("ge", True), ("lt", False), ("le", False)]
)
def test_a_choice_of_the_greater_one_is_the_maximum(
    comparison: Any, largest: bool, algebra: FreeAlgebra
) -> None:
    x, zero = algebra.fresh("x", (2, 3)), _number(algebra, 0)
    chosen = algebra.where(algebra.compare(comparison, x, zero), x, zero)
    right, wrong = (algebra.maximum, algebra.minimum)[:: 1 if largest else -1]
    assert _same(algebra, chosen, right(x, zero))
    assert _everywhere_apart(algebra, chosen, wrong(x, zero))
    turned = algebra.where(algebra.compare(comparison, x, zero), zero, x)
    assert _same(algebra, turned, wrong(x, zero))
    one = _number(algebra, 1)
    beside = algebra.where(algebra.compare(comparison, x, one), x, zero)
    assert _everywhere_apart(algebra, beside, right(x, zero))


def test_masks_and_booleans_lie_in_one_tensor(algebra: FreeAlgebra) -> None:
    x, y = algebra.fresh("x", (3,)), algebra.fresh("y", (3,))
    mask = algebra.compare("lt", x, y)
    known = algebra.compare("lt", _int(algebra, 1), _int(algebra, 2))
    joined = algebra.concatenate([mask, known], 0)
    assert is_mask(joined) and not is_mask(known)
    assert _same(algebra, algebra.slice(joined, 0, 0, 3), mask)
    assert _same(algebra, algebra.slice(joined, 0, 3, 6), known)


def _int(algebra: FreeAlgebra, number: int) -> Value:
    return algebra.expand(algebra.constant(Fraction(number), "int"), (3,))


def test_infinity_decides_by_itself_beside_outcomes(algebra: FreeAlgebra) -> None:
    x, y = algebra.fresh("x", (3,)), algebra.fresh("y", (3,))
    hidden = algebra.expand(algebra.constant(-math.inf), (3,))
    given = algebra.where(
        Value("bool", np.array([True, False, True]).reshape(1, 1, 1, 3)), x, hidden
    )
    found = algebra.compare("gt", given, y)
    alone = algebra.compare("gt", x, y)
    apart = algebra.differs(found, alone)
    assert not apart[..., [0, 2]].any()
    zero = algebra.constant(Fraction(0))
    assert not algebra.differs(algebra.cast(found, "field"), zero)[..., 1].any()
    assert algebra.decisions == []


@pytest.mark.parametrize(
    "refused",
    [
        lambda a, c, x: a.cast(c, "int"),
        lambda a, c, x: a.where(c, _int(a, 1), _int(a, 2)),
        lambda a, c, x: a.where(c, x, _number(a, -math.inf)),
        lambda a, c, x: a.compare("lt", c, c),
        lambda a, c, x: a.multiply(a.cast(c, "field"), _number(a, math.inf)),
    ],
)
def test_what_is_no_polynomial_is_refused(
    refused: Callable[[FreeAlgebra, Value, Value], Value], algebra: FreeAlgebra
) -> None:
    x = algebra.fresh("x", (3,))
    with pytest.raises(UnsupportedError, match="order of numbers"):
        refused(algebra, algebra.compare("gt", x, _number(algebra, 0)), x)


def test_kinds_are_checked(algebra: FreeAlgebra) -> None:
    x = algebra.fresh("x", (3,))
    mask = algebra.compare("gt", x, _number(algebra, 0))
    with pytest.raises(ShapeError):
        algebra.logical_and(mask, x)
    with pytest.raises(ShapeError):
        algebra.where(mask, x, _int(algebra, 1))


def test_outcomes_are_booleans_where_some_things_have_no_value() -> None:
    algebra = UndefinedFreeAlgebra(np, Chain(PRIMES, linked=False), 1, range(40))
    x, y = algebra.fresh("x", (3,)), algebra.fresh("y", (3,))
    below, contrary = algebra.compare("lt", x, y), algebra.compare("ge", x, y)
    assert below.data.dtype == np.bool_ and algebra.decided
    assert 0 < below.data.mean() < 1
    assert (below.data ^ contrary.data).all()
    assert not algebra.compare("lt", x, x).data.any()
