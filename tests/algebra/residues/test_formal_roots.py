"""Formal roots: (sqrt s)^2 is s for sums of squares, and for nothing that may be negative.

The root may be moved in between.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from support.algebra_samples import CHAIN, residues

from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.value import Value

TRIALS = tuple(range(8))


def squares(a: Any, key: str = "x") -> Value:
    """Return sums of three squares, shape (4,), two instances."""
    x = a.fresh(key, (4, 3), 2)
    return a.sum(a.multiply(x, x), (1,))


def same(a: Any, left: Value, right: Value) -> bool:
    return not a.differs(left, right).any()


MOVES: dict[str, Callable[[Any, Value], Value]] = {
    "not at all": lambda a, v: v,
    "viewed": lambda a, v: a.reshape(v, (2, 2)),
    "sliced and joined": lambda a, v: a.concatenate([a.slice(v, 0, 2, 4), a.slice(v, 0, 0, 2)], 0),
    "taken": lambda a, v: a.take(v, 0, a.arange(v, 0)),
    "stacked over ranks": lambda a, v: a.stack(v, np.array([[0, 1], [1, 0]])),
    "joined of ranks": lambda a, v: a.join(
        [a.gather(v, np.array([1])), a.gather(v, np.array([0]))]
    ),
    "expanded": lambda a, v: a.expand(v, (5, 4)),
    "boxes": lambda a, v: a.boxes(v, [np.array([[2, 3], [0, 1]])], 2),
}


@pytest.mark.parametrize("name", MOVES)
def test_square_of_a_root_of_squares(name: str) -> None:
    a = residues(1, TRIALS)
    s, move = squares(a), MOVES[name]
    root = move(a, a.sqrt(s))
    for square in (a.multiply(root, root), a.power(root, 2), a.multiply(root, move(a, a.sqrt(s)))):
        assert same(a, square, move(a, s))
    assert same(a, a.power(root, 3), a.multiply(move(a, s), root))
    one = a.constant(Fraction(1))
    assert same(a, a.power(root, -2), a.divide(one, move(a, s)))
    assert same(a, a.power(root, -3), a.divide(one, a.multiply(move(a, s), root)))
    assert not same(a, a.power(root, -3), a.divide(one, a.multiply(move(a, s), a.negate(root))))
    assert a.squared_roots


def test_boxes_of_a_root_are_told_apart() -> None:
    a = residues(1, TRIALS)
    root, places = a.sqrt(squares(a)), np.array([[2, 3], [0, 1]])
    right, wrong = (a.boxes(root, [own], 2) for own in (places, places[::-1]))
    assert same(a, right, a.boxes(a.plain(root), [places], 2))
    assert a.differs(wrong, right).all()
    assert a.differs(a.multiply(wrong, wrong), a.multiply(right, right)).all()


def test_norm_of_norms_is_the_norm() -> None:
    a = residues(2, TRIALS)
    x, y = squares(a, "x"), squares(a, "y")
    inner = a.sqrt(a.add(x, y))
    assert same(
        a,
        a.power(a.sqrt(a.power(a.sqrt(a.add(a.power(a.sqrt(x), 2), a.power(a.sqrt(y), 2))), 2)), 2),
        a.add(x, y),
    )
    assert not a.roots, "a root that is only squared needs no sign"
    assert same(a, a.sqrt(a.power(inner, 2)), inner) and len(a.roots) == 2


def test_products_and_quotients_of_roots() -> None:
    a = residues(3, TRIALS)
    x, y = squares(a, "x"), squares(a, "y")
    half = a.sqrt(a.constant(Fraction(1, 2)))
    for scaled in (
        a.multiply(a.sqrt(x), half),
        a.divide(a.sqrt(x), a.sqrt(a.constant(Fraction(2)))),
    ):
        assert same(a, a.power(scaled, 2), a.multiply(x, a.constant(Fraction(1, 2))))
        assert same(a, scaled, a.sqrt(a.multiply(x, a.constant(Fraction(1, 2)))))
    assert same(a, a.power(a.divide(a.sqrt(x), a.sqrt(y)), 2), a.divide(x, y))


def test_what_may_be_negative_has_no_formal_root() -> None:
    """Square the root of a number that may be negative.

    There is no real root of a number below zero. Among residues the square of a root is the number
    or its negative.
    """
    a = residues(4, TRIALS)
    x, s, t = a.fresh("x", (4,)), squares(a), squares(a, "t")
    one = a.constant(Fraction(1))
    for value in (
        x,
        a.subtract(s, t),
        a.negate(s),
        a.multiply(s, x),
        a.add(s, x),
        a.multiply(s, a.negate(one)),
        a.divide(x, s),
        a.power(x, 3),
    ):
        root = a.sqrt(value)
        assert root.square is None
        differs = a.differs(a.multiply(root, root), value)
        assert differs.any() and not differs.all()
    condition = a.compare("gt", x, a.constant(Fraction(0)))
    assert a.sqrt(a.where(condition, s, x)).square is None
    assert a.sqrt(a.concatenate([s, x], 0)).square is None


@pytest.mark.parametrize(
    "use",
    [
        "add",
        "subtract",
        "multiply",
        "divide",
        "maximum",
        "where",
        "concatenate",
        "exp",
        "negate",
        "sum",
        "differs",
    ],
)
def test_every_other_use_notes_the_root(use: str) -> None:
    a = residues(5, TRIALS)
    s, x = squares(a), a.fresh("x", (4,))
    root = a.sqrt(s)
    uses: dict[str, Callable[[], Any]] = {
        **{
            name: lambda name=name: getattr(a, name)(root, x)
            for name in ("add", "subtract", "multiply", "divide", "maximum", "differs")
        },
        "where": lambda: a.where(a.compare("gt", x, a.constant(Fraction(0))), root, x),
        "concatenate": lambda: a.concatenate([root, x], 0),
        "sum": lambda: a.sum(root, (0,)),
        **{name: lambda name=name: getattr(a, name)(root) for name in ("exp", "negate")},
    }
    uses[use]()
    ((argument, found),) = a.roots
    assert same(a, argument, s) and np.array_equal(found.data, root.data)


def test_without_formal_roots() -> None:
    a = ResidueAlgebra(np, CHAIN, 6, TRIALS, formal_roots=False)
    s = squares(a)
    assert a.differs(a.power(a.sqrt(s), 2), s).any()
    assert len(a.roots) == 1 and not a.squared_roots


def test_numbers_that_are_drawn_for_what_is_not_negative_have_formal_roots() -> None:
    a = residues(1, TRIALS)
    for domain, is_formal in (("nonnegative", True), ("any", False)):
        x = a.fresh("x", (4,), 1, domain)
        assert same(a, a.power(a.sqrt(x), 2), x) == is_formal
        assert not same(a, a.power(a.sqrt(a.negate(x)), 2), a.negate(x))
    assert same(a, a.fresh("x", (4,), 1, "nonnegative"), a.fresh("x", (4,)))
