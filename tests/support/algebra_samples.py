"""The same random expressions in any algebra, and small helpers of the tests beside this file."""

from fractions import Fraction
from typing import Any

import numpy as np

from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.chains import Chain, chains_of
from pitcheck.algebra.value import Value

CHAIN = chains_of(3)[0]
NAMES = ("finite", "nan", "+inf", "-inf")


def residues(
    seed: int = 0, trials: tuple[int, ...] = (0, 1), chain: Chain = CHAIN
) -> ResidueAlgebra:
    return ResidueAlgebra(np, chain, seed, trials)


def numbers(a: Any, given: list[float]) -> Value:
    """Return a 1-d value of given small integers, halves, infinities and NaN."""
    parts = [a.reshape(a.constant(Fraction(v) if np.isfinite(v) else v), (1,)) for v in given]
    return a.concatenate(parts, 0)


def classes(a: Any, value: Value) -> list[str]:
    """Return the class of every element in the first trial and instance: "finite", "nan", ..."""
    flat = value.data[0, 0, 0].reshape(-1)
    if flat.dtype == np.int64:
        codes = (
            np.zeros(flat.shape, np.uint8)
            if value.special is None
            else value.special[0, 0, 0].reshape(-1)
        )
        return [NAMES[c] for c in codes]
    return [
        "nan" if np.isnan(v) else "+inf" if v == np.inf else "-inf" if v == -np.inf else "finite"
        for v in flat.astype(float)
    ]


def small_integers(a: Any, value: Value) -> list[int | str]:
    """Return every element of the first trial and instance as a small balanced integer.

    An element that is not one is given by its class.
    """
    result: list[int | str] = []
    for index, name in enumerate(classes(a, value)):
        if name != "finite":
            result.append(name)
            continue
        seen = set()
        for level in range(value.data.shape[0]):
            p = a.chain.primes[value.lowest + level]
            r = int(value.data[level, 0, 0].reshape(-1)[index])
            seen.add(r - p if r > p // 2 else r)
        result.append(seen.pop() if len(seen) == 1 else "no integer")
    return result


def random_expression(
    a: Any, generator: np.random.Generator, steps: int, roots: bool = True, logs: bool = True
) -> list[Value]:
    """Return all values along a random straight program on 2x3 tensors with two instances.

    The program is the same for the same generator state in every algebra.
    """
    values = [
        a.fresh("x", (2, 3), 1, "nonzero"),
        a.fresh("y", (2, 3), 2, "square"),
        a.expand(a.constant(Fraction(2, 3)), (2, 3)),
    ]
    unary = [
        "negate",
        "transposed",
        "sum",
        "reversed",
        "power",
        "inverse",
        "function",
        "reduce_max",
        "ordered",
    ]
    unary += ["sqrt"] * roots + ["log"] * logs
    binary = [
        "add",
        "subtract",
        "multiply",
        "divide",
        "matmul",
        "maximum",
        "where",
        "add_at",
        "merged",
    ]
    exponentials = 0
    for _ in range(steps):
        x, y = (values[int(generator.integers(len(values)))] for _ in range(2))
        kind = str(generator.choice([*unary, *binary, "exp"]))
        if kind in ("exp", "log"):
            exponentials += 1
            if exponentials > 1:
                continue
        values.append(_applied(a, kind, x, y))
    return values


def _applied(a: Any, kind: str, x: Value, y: Value) -> Value:
    zero = a.constant(Fraction(0))
    positions = a.arange(a.transpose(x, (1, 0)), 0)
    simple = {
        "negate": lambda: a.negate(x),
        "transposed": lambda: a.reshape(a.transpose(x, (1, 0)), (2, 3)),
        "sum": lambda: a.expand(a.reshape(a.sum(x, (1,)), (2, 1)), (2, 3)),
        "reversed": lambda: a.flip(x, 1),
        "power": lambda: a.power(x, 3),
        "inverse": lambda: a.power(x, -2),
        "function": lambda: a.function("normal_cdf", x),
        "reduce_max": lambda: a.expand(a.reshape(a.reduce_max(x, 1), (2, 1)), (2, 3)),
        "ordered": lambda: a.take_along(x, 1, a.order(x, 1, True)),
        "sqrt": lambda: a.sqrt(x),
        "log": lambda: a.log(x),
        "exp": lambda: a.exp(x),
        "matmul": lambda: a.matmul(a.matmul(x, a.transpose(y, (1, 0))), x),
        "where": lambda: a.where(a.compare("gt", x, zero), x, y),
        "add_at": lambda: a.add_at(x, 1, positions, y),
        "merged": lambda: a.slice(a.concatenate([x, y], 1), 1, 1, 4),
    }
    return simple[kind]() if kind in simple else getattr(a, kind)(x, y)
