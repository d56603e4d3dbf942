"""Whole checks on the stand-in for CuPy: the reports are those of NumPy, byte for byte."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from device.device_checks import reported, shipped, spoilt
from device.device_counter import Counter
from device.strict_cupy import StrictCupy
from zoo.pairs import builders, pair, without_hints

from kernels import host_kernels
from pitcheck.prove import prover, stage_proof

pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason=host_kernels.MISSING)
NIGHTLY = [pytest.mark.slow, pytest.mark.nightly]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> StrictCupy:
    """The stand-in, imported where CuPy would be."""
    cupy = StrictCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    return cupy


def told(stages: list[Counter]) -> str:
    """Return the costs of stages in words: the median one, and the largest."""
    lines = [f"{len(stages)} distinct stages"]
    for name in ("launches", "sent", "fetched", "synchronisations"):
        counts = [getattr(stage, name) for stage in stages]
        lines.append(f"{name}: median {median(counts):g}, largest {max(counts)}, {sum(counts)}")
    return "; ".join(lines)


def test_a_whole_check(
    device: StrictCupy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    """What each distinct stage asks of the device is printed; -rP shows it."""
    stages: list[Counter] = []
    prove = stage_proof.prove_stage

    def counted(*given: Any) -> Any:
        before = device.counter.copy()
        proof = prove(*given)
        stages.append(device.counter.since(before))
        return proof

    plans = shipped("llama3-tiny")
    expected = reported(plans, "numpy", tmp_path)
    monkeypatch.setattr(prover, "prove_stage", counted)
    assert reported(plans, "cupy", tmp_path) == expected
    assert b'"verdict":"equivalent"' in expected["report"]
    assert len(stages) > 50
    assert all(stage.launches for stage in stages)
    record_property("device", told(stages))
    print(told(stages))


def test_a_mismatch_with_its_witness(device: StrictCupy, tmp_path: Path) -> None:
    wrong = spoilt()
    expected = reported(wrong, "numpy", tmp_path)
    assert reported(wrong, "cupy", tmp_path) == expected
    assert b'"verdict":"mismatch"' in expected["report"]
    assert len(expected) == 2
    assert device.counter.launches


@pytest.mark.parametrize("shapes", ["reduced", "full"])
@pytest.mark.parametrize("name", [pytest.param(name, marks=NIGHTLY) for name in builders()])
def test_the_zoo(device: StrictCupy, tmp_path: Path, name: str, shapes: str) -> None:
    reference, parallel = pair(name)
    for plans in ((reference, parallel), (reference, without_hints(parallel))):
        expected = reported(plans, "numpy", tmp_path, shapes=shapes)
        assert reported(plans, "cupy", tmp_path, shapes=shapes) == expected


@pytest.mark.parametrize("name", [pytest.param("deepseek-v3-tiny", marks=NIGHTLY)])
def test_a_mixture_of_experts(device: StrictCupy, tmp_path: Path, name: str) -> None:
    plans = shipped(name)
    expected = reported(plans, "numpy", tmp_path)
    assert reported(plans, "cupy", tmp_path) == expected
    assert b'"verdict":"equivalent"' in expected["report"]
