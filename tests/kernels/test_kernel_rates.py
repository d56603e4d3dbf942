"""The rows that ``bench/kernel_rates.py`` measures on a GPU compute what NumPy computes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device.strict_cupy import StrictCupy

from kernels import host_kernels

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import kernel_rates

pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason=host_kernels.MISSING)


def test_all_rows_are_right_on_the_stand_in() -> None:
    assert kernel_rates.wrong_rows(StrictCupy()) == []
    for row in kernel_rates.launch_rows(StrictCupy()):
        row.run()


def test_a_wrong_row_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from pitcheck.algebra.device.device_modular import DeviceModular  # noqa: PLC0415

    def spoilt(self: Any, a: Any, low: int) -> Any:
        return a

    monkeypatch.setattr(DeviceModular, "negate", spoilt)
    assert kernel_rates.wrong_rows(StrictCupy()) == ["negate"]


def test_shares_are_those_of_the_copy_and_of_half_a_gemm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_rates, "LARGE", kernel_rates.SMALL)
    monkeypatch.setattr(kernel_rates, "SQUARES", (70,))
    monkeypatch.setattr(kernel_rates, "seconds_of", lambda xp, run: 1e-3)
    found = {figure.name: figure for figure in kernel_rates.figures(np)}
    assert found["copy"].share == 1 and found["add"].share == 1.5
    assert found["modular, 70"].share == 2 and found["small add"].share is None
    assert found["modular, 70"].unit == "TFLOP/s" and found["add"].microseconds == 1000
