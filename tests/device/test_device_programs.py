"""The programs of ``bench/gpu.py`` give on the stand-in for CuPy what NumPy gives."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from device.strict_cupy import StrictCupy

from kernels import host_kernels

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import gpu_programs

SMALL = gpu_programs.SHAPES[0]
LARGE = (80, 70)
"""Matrices for which a kernel of small products is too slow."""
NAMES = tuple(gpu_programs.programs(*SMALL))
CASES = [(n, SMALL) for n in NAMES] + [(n, LARGE) for n in NAMES if n.startswith("matmul")]
pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason=host_kernels.MISSING)


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_programs(name: str, shape: tuple[int, int]) -> None:
    assert gpu_programs.agrees(StrictCupy(), gpu_programs.programs(*shape)[name])
