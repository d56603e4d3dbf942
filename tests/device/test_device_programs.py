"""The programs of ``bench/gpu.py`` give on the stand-in for CuPy what NumPy gives."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from device.strict_cupy import StrictCupy

from kernels import host_kernels

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import gpu_programs

pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason=host_kernels.MISSING)


@pytest.mark.parametrize("shape", gpu_programs.SHAPES, ids=str)
@pytest.mark.parametrize("name", gpu_programs.programs(1, 1))
def test_programs(name: str, shape: tuple[int, int]) -> None:
    program = gpu_programs.programs(*shape)[name]
    found = []
    for xp in (np, StrictCupy()):
        algebra = gpu_programs.algebra(xp)
        found.append(gpu_programs.on_host(xp, algebra, program(algebra)))
    assert gpu_programs.same(*found)
