"""The programs of ``bench/gpu.py`` give on the stand-in for CuPy what NumPy gives."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from device.strict_cupy import StrictCupy

from kernels import host_kernels

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import gpu_programs

SHAPES = (gpu_programs.SHAPES[0], (80, 70))
"""Small matrices go through a kernel, and others through products of float64."""
pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason=host_kernels.MISSING)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", gpu_programs.programs(1, 1))
def test_programs(name: str, shape: tuple[int, int]) -> None:
    assert gpu_programs.agrees(StrictCupy(), gpu_programs.programs(*shape)[name])
