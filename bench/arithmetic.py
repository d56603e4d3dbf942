"""The cost of exactness: modular arithmetic against plain float64 in the same run.

It prints one line per case: how many times slower, and operations per second. Run ``python
bench/arithmetic.py [--backend numpy|cupy]``. Ratios hold on a busy machine too; rates do not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pitcheck.algebra.backend import array_module
from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.chains import chains_of
from pitcheck.algebra.value import Value

MATRICES = ((100_000, 4, 8, 4), (2_000, 16, 16, 16), (1_000, 64, 64, 64), (1, 1024, 1024, 1024))
ELEMENTS = (1_000, 1_000_000)
REPEATS = 5


def best(xp: Any, work: Callable[[], object]) -> float:
    """Return the seconds of the fastest of a few runs, after one that warms up."""
    fastest = float("inf")
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        work()
        if xp is not np:
            xp.cuda.Device().synchronize()
        fastest = min(fastest, time.perf_counter() - start)
    return fastest


def line(name: str, operations: int, exact: float, plain: float) -> None:
    """Print one case."""
    print(
        f"{name:34s} {exact / plain:7.1f} times float64   {operations / exact:9.2e} /s   (float64 "
        f"{operations / plain:9.2e} /s)"
    )


def matrices(xp: Any, algebra: ResidueAlgebra) -> None:
    """Measure batched matrix products at one level."""
    for batch, m, k, n in MATRICES:
        a, b = (one_level(algebra.fresh("matrix", (batch, *shape))) for shape in ((m, k), (k, n)))
        x, y = (v.data.astype(np.float64) for v in (a, b))
        exact = best(xp, partial(algebra.matmul, a, b))
        line(
            f"matmul {batch} x {m}x{k}x{n}",
            batch * m * k * n,
            exact,
            best(xp, partial(xp.matmul, x, y)),
        )


def one_level(value: Value) -> Value:
    """Return the lowest level alone."""
    return Value("field", value.data[:1])


def elementwise(xp: Any, algebra: ResidueAlgebra) -> None:
    """Measure operations on every element beside the same operations of float64.

    A keyed function has exp beside it.
    """
    for size in ELEMENTS:
        a, b = (one_level(algebra.fresh(key, (size,), 1, "nonzero")) for key in "ab")
        x, y = (v.data / 2.0**31 for v in (a, b))
        cases: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
            ("add", partial(algebra.add, a, b), partial(xp.add, x, y)),
            ("multiply", partial(algebra.multiply, a, b), partial(xp.multiply, x, y)),
            ("divide", partial(algebra.divide, a, b), partial(xp.divide, x, y)),
            ("exp", partial(algebra.exp, a), partial(xp.exp, x)),
            ("sqrt", partial(algebra.sqrt, a), partial(xp.sqrt, x)),
            ("sum", partial(algebra.sum, a, (0,)), partial(xp.sum, x, axis=3)),
            ("keyed function", partial(algebra.function, "erf", a), partial(xp.exp, x)),
        ]
        for name, exact, plain in cases:
            line(f"{name}, {size} elements", size, best(xp, exact), best(xp, plain))


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="numpy", choices=("numpy", "cupy"))
    xp = array_module(parser.parse_args().backend)
    algebra = ResidueAlgebra(xp, chains_of(2)[0], 0, [0])
    matrices(xp, algebra)
    elementwise(xp, algebra)


if __name__ == "__main__":
    main()
