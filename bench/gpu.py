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
            (expected, slow), (found, fast) = run(np, program), run(cupy, program)
            right = same(expected, found)
            wrong += not right
            print(
                f"{'same' if right else 'DIFFERENT':9s} {name:28s} {shape!s:12s} numpy "
                f"{slow * 1e6:10.0f} us   cupy {fast * 1e6:10.0f} us"
            )
    print(f"{wrong} results differ" if wrong else "all results are the same bit for bit")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
