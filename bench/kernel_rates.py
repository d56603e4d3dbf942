"""The rows of ``bench/gpu.py`` on kernels, beside copies of memory and float64 GEMMs.

Bytes are those that must move: every operand read once, every result written once. The rate of a
modular product of matrices counts 2 m n k operations. Made of float64 it needs two GEMMs: its share
is that of half the rate of one, and int8 tensor cores reach more than 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from pitcheck.algebra.backend import to_host
from pitcheck.algebra.residues.backend_residues import arithmetic, functions
from pitcheck.algebra.residues.chains import chains_of

CHAIN = chains_of(3)[0]
LEVELS = len(CHAIN)
TRIALS = (0, 1, 2, 3)
LARGE, CHECKED, SMALL = 1 << 22, 1 << 14, 1 << 6
"""The elements of a level and trial: 400 MB in each array of the large size."""
SQUARES = (2048, 4096, 8192)
COLUMNS = 1 << 10
REPEATS = 7

Run = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """One measurement: what runs, and what it is measured in.

    ``amount`` counts bytes, or operations of the kind ``flop`` or ``gemm``; of ``launch`` only
    the time is of interest.
    """

    name: str
    run: Run
    amount: float
    kind: str = "bytes"


@dataclass(frozen=True)
class Figure:
    """A measured row: microseconds, and GB/s or TFLOP/s with its share of what is possible."""

    name: str
    microseconds: float
    rate: float | None
    unit: str
    share: float | None


class Operands:
    """Operands of all rows on one array module, the same numbers on each."""

    def __init__(self, xp: Any, size: int) -> None:
        self.xp = xp
        self.size = size
        self.columns = min(COLUMNS, size // 4)
        self.shape = (LEVELS, len(TRIALS), 1, size // self.columns, self.columns)
        self.modular: Any = functions(xp, CHAIN, 1, TRIALS)
        self.elements = LEVELS * len(TRIALS) * size

    def drawn(self, name: str, *shape: int, domain: str = "any") -> Any:
        """Return residues of shape (levels, trials, 1, *shape)."""
        return self.modular.drawn((name,), TRIALS, 1, shape, domain)


def elementwise_rows(o: Operands) -> Iterator[Row]:
    """Yield the rows that move elements."""
    m, shape, n = o.modular, o.shape[3:], o.elements
    a, b = o.drawn("a", *shape), o.drawn("b", *shape)
    nonzero = o.drawn("c", *shape, domain="nonzero")
    words = (a + (b << 31)).view(np.uint64)
    yield Row("copy", a.copy, 16 * n, "copy")
    yield Row("add", lambda: m.add(a, b, 0), 24 * n)
    yield Row("subtract", lambda: m.subtract(a, b, 0), 24 * n)
    yield Row("multiply", lambda: m.multiply(a, b, 0), 24 * n)
    yield Row("multiply by a number", lambda: m.multiply(a, b[..., :1, :1], 0), 16 * n)
    yield Row("multiply by a row", lambda: m.multiply(a, b[..., :1, :], 0), 16 * n)
    turned = o.drawn("t", *shape[::-1]).transpose(0, 1, 2, 4, 3)
    yield Row("multiply, transposed", lambda: m.multiply(a, turned, 0), 24 * n)
    yield Row("negate", lambda: m.negate(a, 0), 16 * n)
    yield Row("power 3", lambda: m.power(a, 3, 0), 16 * n)
    yield Row("root", lambda: m.root(a, 0), 16 * n)
    yield Row("inverse", lambda: m.inverse(nonzero, 0), 16 * n)
    yield Row("inverse, zeros looked for", lambda: m.inverse_or_one(nonzero, 0)[0], 16 * n)
    yield Row("exp", lambda: m.exp(a[:-1], 0), 16 * n * (LEVELS - 1) / LEVELS)
    yield Row("keyed function", lambda: m.hashed(5, TRIALS, [a], 0, LEVELS), 16 * n)
    yield Row("table", lambda: m.entries(5, TRIALS, [a], None, "nonzero"), 16 * n)
    yield Row("words to residues", lambda: m.residues_of(words, "any"), 16 * n)
    yield Row("draw in bulk", lambda: o.drawn("d", *shape), 8 * n)
    yield Row("order", lambda: m.order_key(a[:1], 0), 16 * n / LEVELS)
    yield Row("differ", lambda: m.differ(a, b), 16 * n + n / LEVELS)
    yield Row("stand-ins", lambda: m.stand_ins(a, 0, None), 8 * n + 8 * n / LEVELS)


def sum_rows(o: Operands) -> Iterator[Row]:
    """Yield the rows that add up."""
    m, shape, n = o.modular, o.shape[3:], o.elements
    a, weights = o.drawn("a", *shape), o.drawn("w", o.columns)[:, :, :, None]
    one = o.drawn("a", o.size)
    places = o.xp.asarray(np.random.default_rng(1).integers(0, shape[0], shape[0]))
    index = places.reshape(1, 1, 1, -1, 1)
    base = o.drawn("e", *shape)
    yield Row("sum of rows", lambda: m.sum(a, (4,), 0), 8 * n)
    yield Row("sum of columns", lambda: m.sum(a, (3,), 0), 8 * n)
    yield Row("sum of all", lambda: m.sum(one, (1, 3), 0), 8 * n)
    yield Row("weighted sum of rows", lambda: m.sum_of_products(a, weights, (4,), 0), 8 * n)
    yield Row("product of rows", lambda: m.product(a, 4, 0), 8 * n)
    yield Row("add at places", lambda: m.add_at(base.copy(), 3, index, a, 0), 56 * n)


def matrix_rows(o: Operands, sizes: tuple[int, ...]) -> Iterator[Row]:
    """Yield the products of matrices."""
    for count, (rows, terms, columns) in (
        (o.size // 16, (4, 8, 4)),
        (o.size // 16, (8, 8, 8)),
        (max(1, o.size // 4096), (64, 64, 64)),
    ):
        a, b = o.drawn("a", count, rows, terms), o.drawn("b", count, terms, columns)
        moved = 8 * LEVELS * len(TRIALS) * count * (rows * terms + terms * columns + rows * columns)
        name = f"{rows} x {terms} x {columns}, many"
        yield Row(name, lambda a=a, b=b: o.modular.matmul(a, b, 0), moved)
    modular = arithmetic(o.xp, chains_of(1)[0])
    for size in sizes:
        x, y = (modular.drawn((k,), (0,), 1, (size, size), "any") for k in (1, 2))
        f, g = (v[0, 0, 0].astype(np.float64) for v in (x, y))
        flop = 2.0 * size**3
        yield Row(f"float64 GEMM, {size}", lambda f=f, g=g: o.xp.matmul(f, g), flop, "gemm")
        yield Row(f"modular, {size}", lambda x=x, y=y: modular.matmul(x, y, 0), flop, "flop")


def launch_rows(xp: Any) -> Iterator[Row]:
    """Yield operations on few elements, whose time is that of Python and of launches."""
    o = Operands(xp, SMALL)
    m, a, b = o.modular, o.drawn("a", 4, 4), o.drawn("b", 4, 4)
    yield Row("a small CuPy addition", lambda: a + b, 0, "launch")
    yield Row("small add", lambda: m.add(a, b, 0), 0, "launch")
    yield Row("small add, strided", lambda: m.add(a, b.transpose(0, 1, 2, 4, 3), 0), 0, "launch")
    yield Row("small sum", lambda: m.sum(a, (3,), 0), 0, "launch")
    yield Row("small matmul", lambda: m.matmul(a, b, 0), 0, "launch")
    yield Row("small inverse, waits", lambda: m.inverse_or_one(a + 1, 0), 0, "launch")
    yield Row("small keyed function", lambda: m.hashed(5, TRIALS, [a], 0, LEVELS), 0, "launch")


def rows_of(xp: Any, size: int, sizes: tuple[int, ...]) -> Iterator[Row]:
    """Yield all rows, with products of square matrices of the given sizes.

    Memory of one part is given back before the next.
    """
    yield from elementwise_rows(Operands(xp, size))
    yield from sum_rows(Operands(xp, size))
    yield from matrix_rows(Operands(xp, size), sizes)


def wrong_rows(xp: Any, size: int = SMALL, square: int = 70) -> list[str]:
    """Return the names of rows whose results are not NumPy's."""
    wrong = []
    both = (rows_of(module, size, (square,)) for module in (xp, np))
    for ours, theirs in zip(*both, strict=True):
        found, expected = to_host(xp, ours.run()), theirs.run()
        same = np.array_equal(found, expected) or ours.kind == "gemm"
        if not same or found.dtype != expected.dtype:
            wrong.append(ours.name)
    return wrong


def seconds_of(xp: Any, run: Run) -> float:
    """Return the median seconds of a run on the device, after one that compiles."""
    run()
    times = []
    for _ in range(REPEATS):
        start, stop = xp.cuda.Event(), xp.cuda.Event()
        start.record()
        run()
        stop.record()
        stop.synchronize()
        times.append(xp.cuda.get_elapsed_time(start, stop) / 1e3)
    return float(median(times))


def figures(xp: Any) -> Iterator[Figure]:
    """Yield the figures of all rows, shares by the copy and by the GEMM measured before."""
    copy, gemm = float("nan"), float("nan")
    for part in (rows_of(xp, LARGE, SQUARES), launch_rows(xp)):
        for row in part:
            seconds = float(seconds_of(xp, row.run))
            rate = row.amount / seconds
            copy = rate if row.kind == "copy" else copy
            gemm = rate if row.kind == "gemm" else gemm
            possible = {"flop": gemm / 2, "gemm": gemm}.get(row.kind, copy)
            unit, scale = ("TFLOP/s", 1e12) if row.kind in ("flop", "gemm") else ("GB/s", 1e9)
            timed = row.kind == "launch"
            yield Figure(
                row.name,
                round(seconds * 1e6, 2),
                None if timed else round(rate / scale, 2),
                "" if timed else unit,
                None if timed else round(rate / possible, 3),
            )
