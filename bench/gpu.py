"""Every primitive on a GPU: CuPy equals NumPy bit for bit, and how fast both are.

Run ``python bench/gpu.py``. It exits 1 if a result differs, and 2 without a GPU.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from gpu_programs import SHAPES, Program, algebra, on_host, programs, same

from pitcheck.algebra.backend import array_module
from pitcheck.errors import UsageError


def run(xp: Any, program: Program) -> tuple[list[Any], float]:
    """Return (data, codes and void trials on the host, seconds of a second run)."""
    used = algebra(xp)
    program(used)
    start = time.perf_counter()
    value = program(used)
    if xp is not np:
        xp.cuda.Device().synchronize()
    seconds = time.perf_counter() - start
    return on_host(xp, used, value), seconds


def compared(cupy: Any, program: Program) -> tuple[tuple[str, str], bool]:
    """Return (what a comparison found, times or the error), and True if results are the same.

    An error is one result that differs: the programs after it are compared all the same.
    """
    expected, slow = run(np, program)
    try:
        found, fast = run(cupy, program)
    except Exception as error:
        return ("FAILED", f"{type(error).__name__}: {error}"), False
    right = same(expected, found)
    times = f"numpy {slow * 1e6:10.0f} us   cupy {fast * 1e6:10.0f} us"
    return ("same" if right else "DIFFERENT", times), right


def main() -> int:
    """Compare every program on both array modules."""
    try:
        cupy = array_module("cupy")
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    wrong = 0
    for shape in SHAPES:
        for name, program in programs(*shape).items():
            said, right = compared(cupy, program)
            wrong += not right
            print(f"{said[0]:9s} {name:28s} {shape!s:12s} {said[1]}")
    print(f"{wrong} results differ" if wrong else "all results are the same bit for bit")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
