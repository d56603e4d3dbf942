"""Proofs at reduced sizes that processors make while one GPU compares stages at their own."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from device.device_checks import reported, spoilt
from device.strict_cupy import StrictCupy
from zoo.pairs import pair

from kernels import host_kernels
from pitcheck.prove import pool, stage_proof
from pitcheck.prove.full_shapes import whole_proof

pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason=host_kernels.MISSING)
THREE = 3


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> StrictCupy:
    """The stand-in, imported where CuPy would be, beside two free processors."""
    cupy = StrictCupy()
    monkeypatch.setattr(cupy, "__spec__", ModuleSpec("cupy", None), raising=False)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(pool, "usable_jobs", lambda: THREE)
    return cupy


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the stages that this process proves at reduced sizes, as it proves them."""
    here, process = [], os.getpid()
    inner: Callable[[Any], Any] = whole_proof.at_reduced_sizes

    def at_reduced_sizes(statement: Any) -> Any:
        if os.getpid() == process:
            here.append(statement.attempts.statement)
        return inner(statement)

    monkeypatch.setattr(whole_proof, "at_reduced_sizes", at_reduced_sizes)
    monkeypatch.setattr(stage_proof, "at_reduced_sizes", at_reduced_sizes)
    return here


@pytest.mark.usefixtures("device")
def test_other_processes_prove_stages_at_reduced_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = pair("megatron_mlp_silu")
    expected = reported(plans, "numpy", tmp_path, shapes="full")
    here = counted(monkeypatch)
    assert reported(plans, "cupy", tmp_path, shapes="full") == expected
    assert b'"verdict":"equivalent"' in expected["report"]
    assert not here


@pytest.mark.usefixtures("device")
def test_a_wrong_plan_is_caught_with_the_report_of_one_process(tmp_path: Path) -> None:
    wrong = spoilt()
    expected = reported(wrong, "numpy", tmp_path, shapes="full", explain=False)
    assert reported(wrong, "cupy", tmp_path, shapes="full", explain=False) == expected
    assert b'"verdict":"mismatch"' in expected["report"]


@pytest.mark.usefixtures("device")
def test_a_process_that_dies_leaves_its_stages_to_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    plans = pair("megatron_mlp_silu")
    expected = reported(plans, "numpy", tmp_path, shapes="full")
    monkeypatch.setattr(pool, "prove_at_reduced_sizes", dies)
    here = counted(monkeypatch)
    assert reported(plans, "cupy", tmp_path, shapes="full") == expected
    assert here


@pytest.mark.usefixtures("device")
def test_without_a_free_processor_this_process_does_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = pair("megatron_mlp_silu")
    monkeypatch.setattr(pool, "usable_jobs", lambda: 1)
    here = counted(monkeypatch)
    assert b"equivalent" in reported(plans, "cupy", tmp_path, shapes="full")["report"]
    assert here
