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

_SIGNS: tuple[tuple[Comparison, str, tuple[Trait, ...]], ...] = (
    ("eq", "=", ()),
    ("ne", "!=", ()),
    ("lt", "<", (Trait.CHANGES_BELOW,)),
    ("le", "<=", (Trait.CHANGES_ABOVE,)),
    ("gt", ">", (Trait.CHANGES_ABOVE,)),
    ("ge", ">=", (Trait.CHANGES_BELOW,)),
)


def _compare(name: Comparison, sign: str, traits: tuple[Trait, ...]) -> OperatorKind:
    def comparison(a: Term, b: Term) -> Term:
        return a.compare(name, b)

    return elementwise(name, comparison, traits=traits, doc=f"True where a {sign} b.")


def _logical(name: str, function: Callable[[Term, Term], Term], doc: str) -> OperatorKind:
    def logic(a: Term, b: Term) -> Term:
        return function(a.cast("bool"), b.cast("bool"))

    return elementwise(name, logic, doc=doc)


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
    *(_compare(name, sign, traits) for name, sign, traits in _SIGNS),
    _logical("logical_and", lambda a, b: a & b, "True where both are true (not 0)."),
    _logical("logical_or", lambda a, b: a | b, "True where one or both are true (not 0)."),
    _logical(
        "logical_xor", lambda a, b: (a | b) & ~(a & b), "True where exactly one is true (not 0)."
    ),
    elementwise("logical_not", lambda x: ~x.cast("bool"), doc="True where x is false (0)."),
    elementwise(
        "maximum",
        lambda a, b: a.maximum(b),
        _share("gt", "ge", first=True),
        _share("gt", "ge", first=False),
        traits=(Trait.ROUNDS_NOTHING,),
        doc="The greater; equal operands share the gradient.",
    ),
    elementwise(
        "minimum",
        lambda a, b: a.minimum(b),
        _share("lt", "le", first=True),
        _share("lt", "le", first=False),
        traits=(Trait.ROUNDS_NOTHING,),
        doc="The less; equal operands share the gradient.",
    ),
)
