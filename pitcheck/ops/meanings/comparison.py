"""Comparisons, logic and the greater or less of two; operands broadcast.

>>> import numpy as np
>>> from pitcheck.algebra.reals.real import RealAlgebra
>>> from pitcheck.ops.registry import evaluate
>>> reals = RealAlgebra(np, seed=0, trials=(0,))
>>> evaluate(reals, "lt", [reals.constant(1.0), reals.constant(2.0)], {})[0].data.item()
True
"""

from __future__ import annotations

from collections.abc import Callable

from pitcheck.algebra.interface import Comparison
from pitcheck.ops.declaration import OperatorKind
from pitcheck.ops.declare import Local, Slope, elementwise
from pitcheck.ops.term import Term
from pitcheck.ops.traits import Trait

_SIGNS: tuple[tuple[Comparison, str, Comparison, Trait], ...] = (
    ("eq", "=", "ne", Trait.COMMUTES),
    ("ne", "!=", "eq", Trait.COMMUTES),
    ("lt", "<", "le", Trait.CHANGES_BELOW),
    ("le", "<=", "lt", Trait.CHANGES_ABOVE),
    ("gt", ">", "ge", Trait.CHANGES_ABOVE),
    ("ge", ">=", "gt", Trait.CHANGES_BELOW),
)
"""Comparison, its sign, the one that it is mistaken for, and its trait."""


def _compare(name: Comparison, sign: str, other: Comparison, trait: Trait) -> OperatorKind:
    def comparison(a: Term, b: Term) -> Term:
        return a.compare(name, b)

    return elementwise(
        name,
        comparison,
        traits=(trait, Trait.STEPS),
        mistaken_for=other,
        doc=f"True where a {sign} b.",
    )


def _logical(
    name: str, function: Callable[[Term, Term], Term], other: str, doc: str
) -> OperatorKind:
    def logic(a: Term, b: Term) -> Term:
        return function(a.cast("bool"), b.cast("bool"))

    return elementwise(
        name, logic, traits=(Trait.COMMUTES, Trait.STEPS), mistaken_for=other, doc=doc
    )


def _share(strictly: Comparison, or_equal: Comparison, *, first: bool) -> Slope:
    """Return the share of an operand in the gradient of an extreme: 1 if it alone is the extreme.

    It is 1/2 if both operands are equal: the mean of a strict comparison and one that allows
    equality.
    """

    def slope(d: Local) -> Term:
        mine, other = (d.a, d.b) if first else (d.b, d.a)
        return (
            mine.compare(strictly, other).cast("field")
            + mine.compare(or_equal, other).cast("field")
        ) / 2

    return slope


OPERATORS = (
    *(_compare(*row) for row in _SIGNS),
    _logical("logical_and", lambda a, b: a & b, "logical_or", "True where both are true (not 0)."),
    _logical(
        "logical_or", lambda a, b: a | b, "logical_and", "True where one or both are true (not 0)."
    ),
    _logical(
        "logical_xor",
        lambda a, b: (a | b) & ~(a & b),
        "",
        "True where exactly one is true (not 0).",
    ),
    elementwise(
        "logical_not",
        lambda x: ~x.cast("bool"),
        mistaken_for="identity",
        traits=(Trait.STEPS,),
        doc="True where x is false (0).",
    ),
    elementwise(
        "maximum",
        lambda a, b: a.maximum(b),
        _share("gt", "ge", first=True),
        _share("gt", "ge", first=False),
        traits=(
            Trait.LIMITS,
            Trait.COMMUTES,
            Trait.ROUNDS_NOTHING,
        ),
        mistaken_for="minimum",
        doc="The greater; equal operands share the gradient.",
    ),
    elementwise(
        "minimum",
        lambda a, b: a.minimum(b),
        _share("lt", "le", first=True),
        _share("lt", "le", first=False),
        traits=(
            Trait.LIMITS,
            Trait.COMMUTES,
            Trait.ROUNDS_NOTHING,
        ),
        mistaken_for="maximum",
        doc="The less; equal operands share the gradient.",
    ),
)
