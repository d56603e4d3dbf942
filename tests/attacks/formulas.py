"""Formulas that are written once, and become a plan or numbers.

``x / y.flip(axes=(0,))`` is an operator of a plan, or NumPy on float64, by what ``x`` is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from zoo.builder import COLLECTIVES, Builder, lineage

from pitcheck.plan.model import Number, Plan

Make = Callable[[str, tuple[Any, ...], Mapping[str, Any]], Any]
Formula = Callable[..., "Expression"]


class Expression:
    """An operand; attributes are operators, which take further operands and attributes."""

    def __init__(self, make: Make, value: Any) -> None:
        self.make = make
        self.value = value

    def apply(self, kind: str, *operands: Any, **attributes: Any) -> Expression:
        values = tuple(o.value if isinstance(o, Expression) else o for o in operands)
        return Expression(self.make, self.make(kind, values, attributes))

    def __getattr__(self, kind: str) -> Callable[..., Expression]:
        if kind.startswith("__"):
            raise AttributeError(kind)
        return lambda *others, **attributes: self.apply(kind, self, *others, **attributes)

    def float(self) -> Expression:
        """The truth of a condition as 1 and 0."""
        return self.apply("cast", self, dtype="float32")

    def __neg__(self) -> Expression:
        return self.apply("neg", self)

    def __add__(self, other: Any) -> Expression:
        return self.apply("add", self, other)

    def __sub__(self, other: Any) -> Expression:
        return self.apply("sub", self, other)

    def __mul__(self, other: Any) -> Expression:
        return self.apply("mul", self, other)

    def __truediv__(self, other: Any) -> Expression:
        return self.apply("div", self, other)

    def __gt__(self, other: Any) -> Expression:
        return self.apply("gt", self, other)

    def __lt__(self, other: Any) -> Expression:
        return self.apply("lt", self, other)

    def __ge__(self, other: Any) -> Expression:
        return self.apply("ge", self, other)

    def __invert__(self) -> Expression:
        return self.apply("logical_not", self)


def _axes(a: Any, axes: Any, keepdim: bool, of: Any) -> Any:
    return of(a, axis=None if axes is None else tuple(axes), keepdims=keepdim)


def _softmax(a: Any, axis: int) -> Any:
    e = np.exp(a - a.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "square": np.square,
    "reciprocal": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "exp": np.exp,
    "log": np.log,
    "abs": np.abs,
    "sign": np.sign,
    "relu": lambda a: np.maximum(a, 0),
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "logical_not": np.logical_not,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "matmul": np.matmul,
    "where": np.where,
    "identity": lambda a: a,
    "pow": lambda a, exponent: np.power(a, float(exponent)),
    "clamp": lambda a, min: np.maximum(a, float(min)),
    "sum": lambda a, axes=None, keepdim=False: _axes(a, axes, keepdim, np.sum),
    "mean": lambda a, axes=None, keepdim=False: _axes(a, axes, keepdim, np.mean),
    "amax": lambda a, axes=None, keepdim=False: _axes(a, axes, keepdim, np.max),
    "amin": lambda a, axes=None, keepdim=False: _axes(a, axes, keepdim, np.min),
    "softmax": _softmax,
    "sqrt.backward": lambda a, y, dy: dy / (2 * y),
    "rsqrt.backward": lambda a, y, dy: -dy * y / (2 * a),
    "log.backward": lambda a, y, dy: dy / a,
    "reciprocal.backward": lambda a, y, dy: -dy * y * y,
    "flip": lambda a, axes: np.flip(a, axis=axes),
    "roll": lambda a, axis, shift: np.roll(a, shift, axis),
    "slice": lambda a, axis, start, stop: a.take(range(start, stop), axis=axis),
    "select": lambda a, axis, index: a.take(index, axis=axis),
    "cat": lambda *a, axis: np.concatenate(a, axis),
    "transpose": lambda a, dim0, dim1: a.swapaxes(dim0, dim1),
    "reshape": lambda a, sizes: a.reshape(sizes),
    "cumsum": lambda a, axis: a.cumsum(axis),
    "cast": lambda a, dtype: a.astype(dtype),
    "index_select": lambda a, i, axis: np.take(a, i, axis=axis),
    "gather": lambda a, i, axis: np.take_along_axis(a, i, axis=axis),
    "masked_fill": lambda a, m, number: np.where(m, number, a),
    "tanh": np.tanh,
    "argmax": lambda a, axis: a.argmax(axis),
    "argmin": lambda a, axis: a.argmin(axis),
    "any": lambda a, axes: a.any(axis=tuple(axes)),
}
SIZES = {
    "x": (4, 4),
    "y": (4, 4),
    "z": (4, 4),
    "v": (4,),
    "s": (),
    "i": (4, 4),
    "p": (4,),
    "m": (4, 4),
    "u": (16,),
    "j": (4, 4),
    "k": (4, 4),
}
"""The inputs: numbers, integers, and booleans ``m``."""
BELOW = {"i": 4, "p": 4, "j": 50000, "k": 50000}
"""The integers, which are not negative: the numbers below which they lie."""


SHARDED = ("x", "y", "z", "m", "j", "k")
"""The inputs of which each of two ranks holds half of the rows."""


def planned(formula: Formula, ranks: int = 1, *, whole: bool = True) -> Plan:
    """Return the plan of a formula, whose parameters name its inputs.

    With two ranks each computes the formula on its rows; ``whole``: the result is the same on both.
    Results have the name ``out``, if it is given, and the lineage ``hint`` in a plan of two ranks.
    """
    builder = Builder("formula", {"r": ranks} if ranks > 1 else None)

    def make(kind: str, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
        given = [Number(str(o)) if isinstance(o, (int, float)) else o for o in operands]
        group = {"group": "r"} if kind in COLLECTIVES else {}
        hint = {} if ranks > 1 else {"hint": None}
        return builder.op(kind, *given, **group, **{**attributes, **hint})

    def given(name: str) -> Expression:
        more: dict[str, Any] = {}
        if name in BELOW:
            more = {"dtype": "int64", "bounds": (0, BELOW[name])}
        elif name == "m":
            more = {"dtype": "bool"}
        shape, split = SIZES[name], ranks > 1 and name in SHARDED
        local = (shape[0] // ranks, *shape[1:]) if split else shape
        spec = {0: "r"} if split else lineage(name) if ranks > 1 else None
        return Expression(make, builder.input(name, local, spec, **more))

    result = formula(*map(given, _names(formula)))
    builder.op("identity", result.value, out="out")
    builder.output("out", spec=lineage("out", {} if whole else {0: "r"}) if ranks > 1 else None)
    return builder.plan()


def _names(formula: Formula) -> tuple[str, ...]:
    return formula.__code__.co_varnames[: formula.__code__.co_argcount]


def _numbers(formula: Formula, inputs: Mapping[str, Any]) -> Any:
    def make(kind: str, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
        named = {name: each for name, each in attributes.items() if name not in ("out", "hint")}
        return NUMPY[kind](*operands, **named)

    with np.errstate(all="ignore"):
        return formula(*(Expression(make, inputs[name]) for name in _names(formula))).value


def at_small_numbers(reference: Formula, parallel: Formula) -> tuple[bool, bool]:
    """Return whether the parallel formula has a number wherever the reference has, and whether it
    is the same number wherever both have one, at integers from -2 to 2.
    """
    defined = same = True
    for inputs in _small_inputs():
        a, b = (np.asarray(_numbers(f, inputs), dtype=np.float64) for f in (reference, parallel))
        finite = np.isfinite(a)
        both = finite & np.isfinite(b)
        defined &= bool((finite == both).all())
        with np.errstate(all="ignore"):
            same &= bool((abs(a - b) <= 1e-8 + 1e-5 * abs(b))[both].all())
    return defined, same


@cache
def _small_inputs() -> tuple[Mapping[str, Any], ...]:
    """Draw the inputs of 400 trials, of which every second one has no number below 0."""
    generator = np.random.default_rng(1)
    return tuple(
        {name: _small(generator, name, shape, trial) for name, shape in SIZES.items()}
        for trial in range(400)
    )


def _small(generator: np.random.Generator, name: str, shape: tuple[int, ...], trial: int) -> Any:
    if name in BELOW:
        return generator.integers(0, BELOW[name], shape)
    if name == "m":
        return generator.random(shape) < generator.random()
    return np.asarray(generator.integers(-2 if trial % 2 else 0, 3, shape), dtype=np.float64)


def differ_at(reference: Formula, parallel: Formula, point: Mapping[str, Any]) -> bool:
    """Return True if the reference is no NaN somewhere at a point, and the parallel formula is, or
    is another number.

    ``point`` has values that fill inputs; numbers that it does not name are 1.5, and integers 0.
    """
    inputs = {
        name: np.broadcast_to(point.get(name, 0 if name in BELOW else 1.5), shape)
        for name, shape in SIZES.items()
    }
    a, b = (np.asarray(_numbers(f, inputs), dtype=np.float64) for f in (reference, parallel))
    return bool((~np.isnan(a) & ~np.isclose(a, b)).any())
