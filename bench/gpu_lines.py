"""The lines that ``bench/gpu.py`` measures, each with its goal and the baseline of its ratio."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from gpu_programs import SHAPES, differing, programs

from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.chains import chains_of
from pitcheck.base.options import Options
from pitcheck.commands.reading import read_pair
from pitcheck.engine.check import check
from pitcheck.report.json import encode
from pitcheck.report.report import VOLATILE, Report

PLANS = Path(__file__).resolve().parent.parent / "plans"
REPEATS = 5
GIGA = 1e9
TERA = 1e12
LEVELS = 3
EIGHT = 8
"""The bytes of a residue."""
DIFFERENT = "DIFFERENT"
LAYER_SEED = 7
NIGHT_SHARD = "1/80"
"""The part of the night that is measured: four configurations."""

Outcome = tuple[float | None, float | None, str]
"""A value, its ratio to a baseline or None, and a remark."""


class Bench:
    """A card, and what is measured of it once: the copy bandwidth and the rate of float64 GEMMs."""

    def __init__(self, xp: Any, *, small: bool) -> None:
        self.xp = xp
        self.small = small
        self.arithmetic = ResidueAlgebra(xp, chains_of(LEVELS)[0], 7, (0,)).arithmetic

    def synchronize(self) -> None:
        """Wait until the device is done."""
        if self.xp is not np:
            self.xp.cuda.Device().synchronize()

    def seconds(self, work: Callable[[], object]) -> float:
        """Return the median seconds of a few runs after one that warms up."""
        work()
        self.synchronize()
        taken = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            work()
            self.synchronize()
            taken.append(time.perf_counter() - start)
        return sorted(taken)[REPEATS // 2]

    def residues(self, *shape: int, levels: int = LEVELS) -> Any:
        """Return nonzero residues of shape (levels, *shape), whose pattern does not soon repeat."""
        primes = self.arithmetic.primes(0, levels, 1 + len(shape))
        # Products stay below 2^63: places times a prime below 2^29.
        places = self.xp.arange(levels * prod(shape), dtype=np.int64).reshape(levels, *shape)
        return (places * 479001599) % (primes - 1) + 1

    @cached_property
    def copy(self) -> float:
        """Bytes read and written in a second by copies of an array."""
        source = self.xp.ones(1 << (20 if self.small else 28), dtype=np.int64)
        target = self.xp.empty_like(source)
        return 2 * int(source.nbytes) / self.seconds(partial(self.xp.copyto, target, source))

    @cached_property
    def gemm(self) -> float:
        """Operations in a second of a float64 GEMM, an addition and a multiplication counted."""
        n = self.largest
        a, b = (self.xp.ones((n, n)) * (1 + i / 7) for i in range(2))
        return 2 * n**3 / self.seconds(partial(self.xp.matmul, a, b))

    @property
    def largest(self) -> int:
        """The rows of the largest matrices."""
        return 512 if self.small else 8192

    @property
    def elements(self) -> int:
        """The elements of a level of the largest tensors."""
        return 1 << (16 if self.small else 25)


@dataclass(frozen=True)
class Line:
    """A line of the table: what it measures, in a unit, and the least ratio that is wanted."""

    name: str
    unit: str
    measure: Callable[[Bench], Outcome]
    goal: float | None = None


def copying(bench: Bench) -> Outcome:
    """Measure the copy bandwidth."""
    return bench.copy / GIGA, None, "read and written"


def multiplying(bench: Bench) -> Outcome:
    """Measure the rate of float64 matrix products."""
    return bench.gemm / TERA, None, f"{bench.largest} rows and columns"


def comparing(bench: Bench) -> Outcome:
    """Compare all primitives with NumPy's results."""
    wrong = differing(bench.xp)
    count = sum(len(programs(*shape)) for shape in SHAPES)
    said = f"{DIFFERENT}: {', '.join(wrong)}" if wrong else "the same bit for bit as NumPy's"
    return count - len(wrong), (count - len(wrong)) / count, said


def streamed(
    operation: Callable[[Bench], tuple[Callable[[], Any], int]],
) -> Callable[[Bench], Outcome]:
    """Return the measurement of an operation and the bytes that it must move."""

    def measure(bench: Bench) -> Outcome:
        work, moved = operation(bench)
        rate = moved / bench.seconds(work)
        return rate / GIGA, rate / bench.copy, "of the copy bandwidth"

    return measure


def binary(name: str) -> Callable[[Bench], tuple[Callable[[], Any], int]]:
    """Return an operation of two tensors: two are read, one is written."""

    def operation(bench: Bench) -> tuple[Callable[[], Any], int]:
        a, b = bench.residues(1, 1, bench.elements), bench.residues(1, 1, bench.elements)
        return partial(getattr(bench.arithmetic, name), a, b, 0), 3 * a.nbytes

    return operation


def inverting(bench: Bench) -> tuple[Callable[[], Any], int]:
    """Return inverses: one tensor is read, one is written."""
    a = bench.residues(1, 1, bench.elements)
    return partial(bench.arithmetic.inverse, a, 0), 2 * a.nbytes


def summing(bench: Bench) -> tuple[Callable[[], Any], int]:
    """Return sums of rows of 4,096: one tensor is read."""
    a = bench.residues(1, 1, bench.elements >> 12, 1 << 12)
    return partial(bench.arithmetic.sum, a, (4,), 0), a.nbytes


def exponentials(bench: Bench) -> tuple[Callable[[], Any], int]:
    """Return exponentials: one tensor is read, one is written."""
    a = bench.residues(1, 1, bench.elements, levels=LEVELS - 1)
    return partial(bench.arithmetic.exp, a, 0), 2 * a.nbytes


def small_products(
    batch: int, m: int, k: int, n: int
) -> Callable[[Bench], tuple[Callable[[], Any], int]]:
    """Return products of a batch of small matrices: both are read, the result is written."""

    def operation(bench: Bench) -> tuple[Callable[[], Any], int]:
        count = batch // (64 if bench.small else 1)
        a, b = bench.residues(1, 1, count, m, k), bench.residues(1, 1, count, k, n)
        moved = EIGHT * LEVELS * count * (m * k + k * n + m * n)
        return partial(bench.arithmetic.matmul, a, b, 0), moved

    return operation


def large_product(bench: Bench) -> Outcome:
    """Measure one large product modulo a prime against half the rate of a float64 GEMM."""
    n = bench.largest
    a, b = bench.residues(1, 1, n, n, levels=1), bench.residues(1, 1, n, n, levels=1)
    rate = 2 * n**3 / bench.seconds(partial(bench.arithmetic.matmul, a, b, 0))
    return rate / TERA, rate / (bench.gemm / 2), "of half the rate of float64: two GEMMs"


def report_of(plan: str, changes: Mapping[str, object], options: Options) -> tuple[Report, float]:
    """Return the report on a plan file with some fields changed, and the seconds of the check."""
    source = str(PLANS / f"{plan}.toml")
    reference, parallel = read_pair(source, [f"{k}={v}" for k, v in changes.items()])
    start = time.perf_counter()
    report = check(reference, parallel, options)
    return report, time.perf_counter() - start


def stable(report: Report) -> bytes:
    """Return the report's bytes without what differs from run to run."""
    fields = msgspec.json.decode(encode(report))
    return msgspec.json.encode({k: v for k, v in fields.items() if k not in VOLATILE})


def whole_check(plan: str) -> Callable[[Bench], Outcome]:
    """Return the measurement of a whole check at reduced shapes, NumPy's report beside it."""

    def measure(bench: Bench) -> Outcome:
        options = Options(seed=3, backend="numpy", jobs=1)
        expected, slow = report_of(plan, {}, options)
        found, fast = report_of(plan, {}, replace(options, backend=backend_of(bench)))
        same = stable(expected) == stable(found)
        said = f"{found.verdict}, NumPy {slow:.2f} s; " + ("same report" if same else DIFFERENT)
        return fast, slow / fast, said

    return measure


def backend_of(bench: Bench) -> str:
    """Return the name of the backend that is measured."""
    return "numpy" if bench.xp is np else "cupy"


def layer(
    plan: str, changes: Mapping[str, object], small: Mapping[str, object], most: float
) -> Callable[[Bench], Outcome]:
    """Return the measurement of one layer at full shapes; the ratio is ``most`` / seconds."""

    def measure(bench: Bench) -> Outcome:
        changed = {**changes, **small} if bench.small else changes
        options = Options(seed=LAYER_SEED, backend=backend_of(bench), shapes="full", jobs=1)
        report, seconds = report_of(plan, changed, options)
        return seconds, most / seconds, f"{report.verdict}; wanted under {most:.0f} s"

    return measure


def night(bench: Bench) -> Outcome:
    """Measure a part of the shipped night on one GPU, against two processes with NumPy."""
    seconds = {}
    for backend, jobs in (("numpy", 2), (backend_of(bench), 1)):
        command = [sys.executable, "-m", "pitcheck.cli", "sweep", str(PLANS / "nightly.toml")]
        command += ["--shard", NIGHT_SHARD, "--seed", "8", "--no-cache", "--quiet"]
        with tempfile.TemporaryDirectory() as folder:
            command += ["--results", f"{folder}/night.jsonl", "--output", f"text:{folder}/night"]
            command += ["--backend", backend, "--jobs", str(jobs)]
            start = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return None, None, f"failed: exit code {done.returncode}: {done.stderr[-200:]}"
        seconds[backend, jobs] = time.perf_counter() - start
    slow, fast = seconds["numpy", 2], seconds[backend_of(bench), 1]
    return fast, slow / fast, f"shard {NIGHT_SHARD}; two NumPy processes {slow:.1f} s; auto: NumPy"


DENSE = {
    "dp": 1,
    "tp": 8,
    "pp": 1,
    "microbatches": 1,
    "sequences": 1,
    "length": 2048,
    "layers": 1,
    "vocabulary": 8192,
}
"""One dense layer on eight ranks with all of its sizes, between an embedding and a loss of a small
vocabulary.
"""
MIXTURE = {
    **DENSE,
    "dp": 64,
    "tp": 1,
    "ep": 64,
    "sequence_parallel": "false",
    "sequences": 64,
    "length": 32,
    "dense_layers": 0,
}
"""One layer of a mixture of experts on 64 ranks, each with its own experts and 32 tokens."""
TINY = {"length": 16, "vocabulary": 64, "hidden": 128, "ffn": 256}
LAYERS = (
    Line(
        "a layer of Llama-3 8B, TP8, 2,048 tokens, full shapes",
        "s",
        layer("llama3-8b", DENSE, TINY, 2),
    ),
    Line(
        "a layer of Llama-3 405B, TP8, 2,048 tokens, full shapes",
        "s",
        layer("llama3-405b", DENSE, TINY, 30),
    ),
    Line(
        "a MoE layer of DeepSeek-V3, EP64, 2,048 tokens, full shapes",
        "s",
        layer("deepseek-v3", MIXTURE, TINY, 60),
    ),
)
LINES = (
    Line("copy bandwidth", "GB/s", copying),
    Line("float64 GEMM", "TFLOP/s", multiplying),
    Line("primitives that give NumPy's residues", "primitives", comparing, 1.0),
    Line("add", "GB/s", streamed(binary("add")), 0.6),
    Line("multiply", "GB/s", streamed(binary("multiply")), 0.6),
    Line("exponential", "GB/s", streamed(exponentials)),
    Line("inverse", "GB/s", streamed(inverting)),
    Line("sum of rows", "GB/s", streamed(summing)),
    Line(
        "products, 100,000 of 4x8 by 8x4", "GB/s", streamed(small_products(100_000, 4, 8, 4)), 0.6
    ),
    Line("products, 10,000 of 64x64", "GB/s", streamed(small_products(10_000, 64, 64, 64))),
    Line("product of 8,192 rows and columns", "TFLOP/s", large_product, 0.4),
    Line("llama3-tiny, reduced shapes", "s", whole_check("llama3-tiny")),
    Line("deepseek-v3-tiny, reduced shapes", "s", whole_check("deepseek-v3-tiny")),
    *LAYERS,
    Line("the night on one GPU against two processors", "s", night),
)
