"""Conversion between kinds of numbers.

>>> import numpy as np
>>> from pitcheck.algebra.reals.real import RealAlgebra
>>> from pitcheck.ops.registry import evaluate
>>> reals = RealAlgebra(np, seed=0, trials=(0,))
>>> evaluate(reals, "cast", [reals.constant(-2.5)], {"dtype": "int64"})[0].data.item()
-2
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from pitcheck.algebra.interface import Kind
from pitcheck.base.dtypes import INTEGERS, DType
from pitcheck.errors import UnsupportedError
from pitcheck.ops.declaration import Attributes
from pitcheck.ops.declare import Lazy, Local, declare
from pitcheck.ops.term import Term, needed
from pitcheck.ops.traits import Trait

NARROW = {dtype: INTEGERS[dtype] for dtype in ("int8", "int16", "uint8")}
"""Integer dtypes that wrap around, with the least and the greatest number of each."""


def kind_named(dtype: str) -> Kind:
    """Return the kind of a dtype in an algebra: "field", "int" or "bool".

    Raises:
        UnsupportedError: if the dtype is unknown.
    """
    if dtype not in get_args(DType):
        raise UnsupportedError(
            f"the dtype {dtype!r} is not known; known are {', '.join(get_args(DType))}"
        )
    if dtype == "bool":
        return "bool"
    return "int" if dtype.startswith(("int", "uint")) else "field"


def _cast(inputs: list[Term], attributes: Attributes) -> list[Term]:
    dtype = needed(attributes, "dtype")
    kind = kind_named(dtype)
    if dtype in NARROW and inputs[0].kind != "bool":
        raise UnsupportedError(
            f"a cast to {dtype} wraps around what does not fit, and has no meaning here; cast to "
            f"int32 or int64"
        )
    return [inputs[0].cast(kind)]


def _cast_backward(local: Local) -> Sequence[Lazy | None]:
    """Pass the gradient between floating dtypes; an integer or boolean result has none."""
    return [(lambda: local.dy) if local.y.kind == "field" else None]


def _to_real(attributes: Attributes) -> bool:
    return kind_named(needed(attributes, "dtype")) == "field"


OPERATORS = (
    declare(
        "cast",
        _cast,
        _cast_backward,
        attributes={"dtype": "value"},
        required=("dtype",),
        in_place=True,
        conditional={
            Trait.TOTAL: _to_real,
            Trait.KEEPS_POSITIVE: _to_real,
            Trait.CONVERTS: lambda attributes: kind_named(attributes["dtype"]) != "bool",
        },
        doc="x as `dtype`: floating to integer truncates toward 0, anything to bool is x != 0; "
        "between floating dtypes, and to int32 and int64 "
        "(whose values must fit), x itself; numbers to narrower integers have no meaning here.",
    ),
)
