"""Whole checks on the stand-in for CuPy: the reports are those of NumPy, byte for byte."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from device.device_checks import SEED, SMALL, reported, shipped, spoilt, written
from device.device_counter import Counter
from device.strict_cupy import StrictCupy
from zoo.pairs import builders, pair, without_hints

from kernels import host_kernels
from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.prove import automatic, prover, stage_proof
from pitcheck.prove.full_shapes.rates import CUPY, NUMPY

pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason=host_kernels.MISSING)
NIGHTLY = [pytest.mark.slow, pytest.mark.nightly]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> StrictCupy:
    """The stand-in, imported where CuPy would be."""
    cupy = StrictCupy()
    monkeypatch.setattr(cupy, "__spec__", ModuleSpec("cupy", None), raising=False)
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
    """The costs of each distinct stage on the device are printed; -rP shows them."""
    stages: list[Counter] = []
    prove = stage_proof.prove_stage

    def counted(*given: Any) -> Any:
        before = device.counter.copy()
        proof = prove(*given)
        stages.append(device.counter.since(before))
        return proof

    plans = shipped("llama3-tiny", SMALL)
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


@pytest.mark.parametrize("shapes", ["reduced", "full"])
def test_stages_move_to_the_device_where_they_end_sooner(
    device: StrictCupy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shapes: str
) -> None:
    plans = shipped("llama3-tiny", SMALL)
    expected = reported(plans, "numpy", tmp_path, shapes=shapes)
    assert reported(plans, "auto", tmp_path, shapes=shapes) == expected
    assert not device.counter.launches
    # A device without any start, whose launches cost as much as NumPy's calls, takes large stages.
    monkeypatch.setattr(automatic, "START", 0.0)
    monkeypatch.setattr(automatic, "CUPY", replace(CUPY, step=NUMPY.step))
    given = Options(seed=SEED, backend="auto", jobs=1, shapes=shapes, witness_directory=tmp_path)
    report = check(*plans, given)
    moved = re.fullmatch(r"numpy, cupy for (\d+) of (\d+) distinct stages", report.backend)
    assert moved is not None
    assert 0 < int(moved[1]) <= int(moved[2])
    assert device.counter.launches
    assert written(report, tmp_path) == expected
