"""The lines that ``bench/gpu.py`` measures, each with its goal and the baseline of its ratio."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from gpu_programs import SHAPES, differing, programs
from kernel_rates import CHECKED, wrong_rows

from pitcheck.base.options import Options
from pitcheck.commands.number_options import parse_memory
from pitcheck.commands.reading import read_pair
from pitcheck.engine.check import check
from pitcheck.report.json import encode
from pitcheck.report.report import VOLATILE, Report

PLANS = Path(__file__).resolve().parent.parent / "plans"
REPEATS = 5
DIFFERENT = "DIFFERENT"
LAYER_SEED = 7
NIGHT_SHARD = "1/80"
"""The part of the night that is measured: four configurations."""

Outcome = tuple[float | None, float | None, str]
"""A value, its ratio to a baseline or None, and a remark."""


@dataclass(frozen=True)
class Bench:
    """An array module that is measured, small sizes to try the lines, the seconds of a line."""

    xp: Any
    small: bool
    most_seconds: int


@dataclass(frozen=True)
class Line:
    """A line of the table: what it measures, in a unit, and the least ratio that is wanted."""

    name: str
    unit: str
    measure: Callable[[Bench], Outcome]
    goal: float | None = None


def comparing(bench: Bench) -> Outcome:
    """Compare all primitives with NumPy's results."""
    rows = [] if bench.xp is np else [*wrong_rows(bench.xp), *wrong_rows(bench.xp, CHECKED, 1000)]
    wrong = differing(bench.xp) + rows
    count = sum(len(programs(*shape)) for shape in SHAPES)
    said = f"{DIFFERENT}: {', '.join(wrong)}" if wrong else "the same bit for bit as NumPy's"
    return count, None, said


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
        options = Options(
            seed=LAYER_SEED,
            backend=backend_of(bench),
            shapes="full",
            jobs=1,
            max_memory=parse_memory("auto", backend_of(bench)),
        )
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
KERNEL_GOALS = {
    "copy": None,
    "add": 0.6,
    "multiply": 0.6,
    "4 x 8 x 4, many": 0.6,
    "float64 GEMM, 8192": None,
    "modular, 8192": 0.4,
}
"""The least shares that are wanted of rows of ``kernel_rates.py``."""
LINES = (
    Line("primitives compared with NumPy's", "primitives", comparing),
    *LAYERS[:2],
    Line("llama3-tiny, reduced shapes", "s", whole_check("llama3-tiny")),
    Line("deepseek-v3-tiny, reduced shapes", "s", whole_check("deepseek-v3-tiny")),
    Line("the night on one GPU against two processors", "s", night),
    *LAYERS[2:],
)
