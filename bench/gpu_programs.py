"""Programs of every primitive over an algebra of residues, for ``bench/gpu.py`` and its tests."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from pitcheck.algebra.backend import to_host
from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.chains import chains_of
from pitcheck.algebra.value import Value

Program = Callable[[Any], Value]
TRIALS = (0, 1, 2)
SHAPES = ((3, 5), (300, 200))


def programs(rows: int, columns: int) -> dict[str, Program]:
    """Return every primitive on (rows, columns) tensors, written over an algebra."""

    def x(a: Any) -> Value:
        value: Value = a.fresh("x", (rows, columns), 2, "nonzero")
        return value

    def y(a: Any) -> Value:
        value: Value = a.fresh("y", (rows, columns), 1, "square")
        return value

    def index(a: Any) -> Value:
        places = np.random.default_rng(0).integers(0, rows, (len(TRIALS), 2, rows))
        value: Value = a.integers(places)
        return value

    def transposed(a: Any, v: Value) -> Value:
        value: Value = a.transpose(v, (1, 0))
        return value

    return {
        "fresh": x,
        "add": lambda a: a.add(x(a), y(a)),
        "subtract": lambda a: a.subtract(x(a), y(a)),
        "negate": lambda a: a.negate(x(a)),
        "multiply": lambda a: a.multiply(x(a), y(a)),
        "divide": lambda a: a.divide(y(a), x(a)),
        "divide by zero": lambda a: a.divide(y(a), a.constant(Fraction(0))),
        "power": lambda a: a.power(x(a), -3),
        "sum": lambda a: a.sum(x(a), (1,)),
        "matmul": lambda a: a.matmul(x(a), transposed(a, y(a))),
        "matmul, one matrix for all": lambda a: a.matmul(
            a.stack(x(a), np.array([[0, 1], [1, 1]])), transposed(a, y(a))
        ),
        "exp": lambda a: a.exp(x(a)),
        "sqrt": lambda a: a.sqrt(y(a)),
        "log": lambda a: a.plain(a.log(a.slice(x(a), 0, 0, 2))),
        "log-sum-exp": lambda a: a.plain(a.log(a.sum(a.exp(x(a)), (0, 1)))),
        "function": lambda a: a.function("normal_cdf", x(a)),
        "draw": lambda a: a.draw("mask", index(a)),
        "take": lambda a: a.take(x(a), 0, index(a)),
        "add_at": lambda a: a.add_at(y(a), 0, index(a), x(a)),
        "maximum": lambda a: a.maximum(x(a), y(a)),
        "reduce_max": lambda a: a.reduce_max(x(a), 1),
        "order": lambda a: a.order(x(a), 1, True),
        "where": lambda a: a.where(a.compare("gt", x(a), y(a)), x(a), a.constant(float("nan"))),
        "join": lambda a: a.join([x(a), y(a)], [2, 3]),
        "remainder": lambda a: a.remainder(index(a), a.constant(Fraction(3), "int")),
    }


def algebra(xp: Any) -> ResidueAlgebra:
    """Return the algebra in which the programs run."""
    return ResidueAlgebra(xp, chains_of(3)[0], 7, TRIALS)


def on_host(xp: Any, algebra: ResidueAlgebra, value: Value) -> list[Any]:
    """Return data, codes of what is not finite, and void trials, as arrays of NumPy."""
    codes = np.zeros(0, np.uint8) if value.special is None else to_host(xp, value.special)
    return [to_host(xp, value.data), codes, algebra.void]


def same(expected: list[Any], found: list[Any]) -> bool:
    """Return True if results of two array modules are the same bit for bit, and so are dtypes."""
    return all(
        np.array_equal(e, f) and e.dtype == f.dtype for e, f in zip(expected, found, strict=True)
    )


def agrees(xp: Any, program: Program) -> bool:
    """Return True if a program gives on ``xp`` what it gives on NumPy."""
    results = []
    for module in (np, xp):
        used = algebra(module)
        results.append(on_host(module, used, program(used)))
    return same(*results)
