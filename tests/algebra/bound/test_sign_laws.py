"""Every operation of the algebra keeps the signs that it claims, at every kind of number.

The list of operations is that of the interface; NumPy is the judge. Operands have each claim that
may be made of them, and all numbers that the claim allows: 0, ties, infinities and NaN (which also
stands for no value).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from pitcheck.algebra.bound.degree_values import ABOVE_ZERO, DegreeValue, Sign
from pitcheck.algebra.bound.degrees import DegreeAlgebra
from pitcheck.algebra.bound.free_degrees import FreeDegreeAlgebra
from pitcheck.algebra.bound.signs import ENDS, SignAlgebra
from pitcheck.algebra.interface import Algebra
from pitcheck.errors import UnsupportedError

NOT_NEGATIVE = Sign.NONNEGATIVE | ENDS
GIVEN = {
    "field": [
        (ENDS, [-2, -1, -0.5, 0, 0.5, 1, 2]),
        (ABOVE_ZERO | ENDS, [0.5, 1, 2]),
        (NOT_NEGATIVE, [0, 0.5, 1, 2]),
        (Sign.BELOW_INFINITY, [-inf, -1, 0, 1, nan]),
        (Sign(0), [-inf, -1, 0, 1, inf, nan]),
        (Sign.NONNEGATIVE, [0, 1, inf, nan]),
        (ABOVE_ZERO, [1, 2, inf, nan]),
    ],
    "int": [
        (Sign.KNOWN | ENDS, [-3, -2, -1, 0, 1, 2, 3]),
        (Sign.KNOWN | ABOVE_ZERO | ENDS, [1, 2, 3]),
        (Sign.KNOWN | NOT_NEGATIVE, [0, 1, 2, 3]),
        (NOT_NEGATIVE, [0, 1, 2, 3]),
        (ABOVE_ZERO | ENDS, [1, 2, 3]),
        (NOT_NEGATIVE | Sign.POSITIVE, [0, 1, 2, 3]),
    ],
    "bool": [
        (Sign.KNOWN | ENDS, [False, True]),
        (Sign.KNOWN | ABOVE_ZERO | ENDS, [True]),
        (NOT_NEGATIVE, [False, True]),
        (NOT_NEGATIVE | Sign.POSITIVE, [False, True]),
        (ABOVE_ZERO | ENDS, [True]),
    ],
}
NUMBERS, WHOLE, ALL = ("field",), ("int",), ("field", "int", "bool")
BOTH = ("field", "int")
Judge = Callable[..., Any]
"""An operation on NumPy arrays."""


def _cast(x: Any, kind: str) -> Any:
    if kind == "bool":
        return x != 0
    return np.trunc(np.where(np.isinf(x), nan, x)) if kind == "int" else x.astype(np.float64)


ONE: dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]], Judge]] = {
    "negate": (BOTH, [()], np.negative),
    "power": (NUMBERS, [(n,) for n in (0, 1, 2, 3)], lambda x, n: x**n),
    "exp": (NUMBERS, [()], np.exp),
    "log": (NUMBERS, [()], lambda x: np.log(np.where(x == 0, nan, x))),
    "sqrt": (NUMBERS, [()], np.sqrt),
    "logical_not": (("bool",), [()], np.logical_not),
    "sum": (BOTH, [((0,),)], np.add.reduce),
    "reduce_max": (ALL, [(0,)], np.maximum.reduce),
    "reduce_min": (ALL, [(0,)], np.minimum.reduce),
    "order": (ALL, [(0, False), (0, True)], lambda x, axis, down: np.arange(len(x))),
    "cast": (ALL, [(kind,) for kind in ALL], _cast),
    "flip": (ALL, [(0,)], lambda x, axis: x),
    "slice": (ALL, [(0, 0, 1)], lambda x, *place: x),
}
TWO: dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]], Judge]] = {
    "add": (BOTH, [()], np.add),
    "subtract": (BOTH, [()], np.subtract),
    "multiply": (BOTH, [()], np.multiply),
    "divide": (NUMBERS, [()], lambda x, y: x / np.where(y == 0, nan, y)),
    "maximum": (BOTH, [()], np.maximum),
    "minimum": (BOTH, [()], np.minimum),
    "logical_and": (("bool",), [()], np.logical_and),
    "logical_or": (("bool",), [()], np.logical_or),
    "floor_divide": (WHOLE, [()], lambda x, y: np.where(y == 0, 1, x // np.where(y == 0, 1, y))),
    "remainder": (WHOLE, [()], lambda x, y: np.where(y == 0, 1, x % np.where(y == 0, 1, y))),
}
COMPARISONS = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
MAKES = frozenset(["constant", "arange", "boundary", "draw", "extent"])
MOVES = frozenset(["transpose", "reshape", "expand", "concatenate", "take", "take_along", "shift"])
COMPOSED = frozenset(["function", "matmul", "add_at", "add_along"])
"""What makes values, moves elements, or is made of the others: tried by formulas elsewhere."""


def _value(algebra: SignAlgebra, kind: Any, sign: Sign, shape: tuple[int, ...]) -> DegreeValue:
    """Return a value of a kind with a claim; unless it is known, drawn numbers decide it."""
    made = (
        algebra._value(kind, shape)
        if Sign.KNOWN in sign
        else algebra.cast(algebra.fresh("x", shape), kind)
    )
    return replace(made, sign=sign)


def _broken(result: DegreeValue, numbers: Any, known: bool, real: bool) -> list[Sign]:
    """Return the claims that numbers break. ``real``: no integer, no infinity is an operand."""
    found = np.asarray(numbers, dtype=np.float64)
    breaks = {
        Sign.NONNEGATIVE: (found < 0).any(),
        Sign.NEVER_ZERO: (found == 0).any(),
        Sign.POSITIVE: real and (found == 0).any(),
        Sign.FINITE: np.isinf(found).any(),
        Sign.BELOW_INFINITY: (found == inf).any(),
        Sign.KNOWN: not known,
    }
    return [claim for claim, is_broken in breaks.items() if claim in result.sign and is_broken]


def _cases(count: int) -> Iterator[tuple[str, tuple[str, ...], tuple[Any, ...], Judge]]:
    """Yield an operation, the kinds of its operands, other arguments, and its judge."""
    for name, (kinds, choices, judge) in {1: ONE, 2: TWO}.get(count, {}).items():
        for kind, more in ((kind, more) for kind in kinds for more in choices):
            yield name, (kind,) * count, more, judge
    for comparison, judge in COMPARISONS.items() if count == 2 else ():
        for kind in ALL:
            yield "compare", (kind, kind), (comparison,), judge
    for kind in ALL if count == 3 else ():
        yield "where", ("bool", kind, kind), (), np.where


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("make", [DegreeAlgebra, SignAlgebra, FreeDegreeAlgebra])
def test_operations_keep_what_they_claim(make: Any, count: int) -> None:
    wrong = []
    for name, kinds, more, judge in _cases(count):
        for claims in product(*(GIVEN[kind] for kind in kinds)):
            if make is not SignAlgebra and not all(ENDS in sign for sign, _ in claims):
                continue  # only this algebra knows of infinities
            algebra = make()
            shapes = np.split(np.eye(count, dtype=np.int64), count)
            arrays = [
                np.array(numbers).reshape([len(numbers) if own else 1 for own in shape[0]])
                for shape, (_, numbers) in zip(shapes, claims, strict=True)
            ]
            given = [
                _value(algebra, kind, sign, array.shape)
                for kind, array, (sign, _) in zip(kinds, arrays, claims, strict=True)
            ]
            first = name == "compare"
            with np.errstate(all="ignore"):
                found = judge(*arrays) if first else judge(*arrays, *more)
            try:
                result = (
                    getattr(algebra, name)(*more, *given)
                    if first
                    else getattr(algebra, name)(*given, *more)
                )
            except UnsupportedError:
                continue
            known = (name == "power" and more == (0,)) or all(Sign.KNOWN in s for s, _ in claims)
            real = set(kinds) == {"field"} and all(np.isfinite(a).all() for a in arrays)
            kept = result if make is SignAlgebra else replace(result, sign=result.sign & ~ENDS)
            broken = _broken(kept, found, known, real)
            wrong += [(name, more, [s for s, _ in claims], broken)] if broken else []
    assert not wrong


def test_every_operation_is_tried_or_moves_elements() -> None:
    named = {name for name, own in vars(Algebra).items() if callable(own) and name[0] != "_"} - {
        "shape",
        "kind",
    }
    assert named == {*ONE, *TWO, "compare", "where", *MAKES, *MOVES, *COMPOSED}
