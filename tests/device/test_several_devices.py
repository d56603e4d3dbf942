"""One check on several GPUs, on the stand-in: a process for each, and the report of one process.

The stand-in refuses, as CUDA does, to be used in a copy of a process that used it.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import ModuleSpec
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from device.strict_cupy import StrictCupy
from zoo.mutations import mutants
from zoo.pairs import pair

from kernels import host_kernels
from pitcheck.algebra import devices
from pitcheck.algebra.devices import Devices, several_gpus
from pitcheck.base.options import Options
from pitcheck.commands.number_options import parse_memory
from pitcheck.engine.check import check
from pitcheck.errors import UsageError
from pitcheck.plan.model import Plan
from pitcheck.prove import pool
from pitcheck.prove.proof import Proof
from pitcheck.report.report import VOLATILE, Report

pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason=host_kernels.MISSING)
NAME = "megatron_mlp_silu"
GIB = 1 << 30
GPUS = 3
Log = list[tuple[str, str, float, float]]
"""Stages proven by workers: the GPUs that one saw, the stage, when it began and when it ended."""


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> StrictCupy:
    """The stand-in with several devices, imported where CuPy would be."""
    cupy = StrictCupy(devices=GPUS)
    monkeypatch.setattr(cupy, "__spec__", ModuleSpec("cupy", None), raising=False)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "DRIVER", Path("there is no such folder"))
    return cupy


def lasting(report: Report) -> bytes:
    facts = msgspec.structs.asdict(report)
    return msgspec.json.encode({k: v for k, v in facts.items() if k not in VOLATILE})


def checked(plans: tuple[Plan, Plan], jobs: int | None, **options: Any) -> Report:
    given = {"shapes": "full", "backend": "cupy", **options}
    return check(*plans, Options(seed=3, jobs=jobs, **given))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], Log]:
    """Return what reads the log of all workers."""
    prove, file = pool.prove_stage, tmp_path / "log"

    def logged(stage: Any, keys: Any, settings: Any, statement: str) -> Proof:
        begun = time.monotonic()
        assert settings.xp.cuda.runtime.getDeviceCount() == 1
        proof = prove(stage, keys, settings, statement)
        line = (os.environ["CUDA_VISIBLE_DEVICES"], statement, begun, time.monotonic())
        with file.open("ab") as out:
            out.write(msgspec.json.encode(line) + b"\n")
        return proof

    monkeypatch.setattr(pool, "prove_stage", logged)
    return lambda: [msgspec.json.decode(line, type=tuple[str, str, float, float]) for line in
                    file.read_bytes().splitlines()]  # fmt: skip


@pytest.mark.parametrize("shapes", ["full", "reduced"])
def test_the_report_is_that_of_one_process(
    device: StrictCupy, log: Callable[[], Log], shapes: str
) -> None:
    plans = pair(NAME)
    several = checked(plans, GPUS, shapes=shapes)
    assert not device.counter.launches
    assert len({gpu for gpu, *_ in log()}) > 1
    assert several.backend == "cupy"
    assert lasting(several) == lasting(checked(plans, 1, shapes=shapes))
    assert several.verdict == "equivalent"
    assert device.counter.launches


def test_each_worker_has_one_gpu_for_itself(log: Callable[[], Log]) -> None:
    report = checked(pair(NAME), GPUS)
    found = log()
    assert {gpu for gpu, *_ in found} <= {"0", "1", "2"}
    assert len(found) == len({stage for _, stage, *_ in found}) == report.stages.distinct
    for gpu in {gpu for gpu, *_ in found}:
        spans = sorted((begun, ended) for name, _, begun, ended in found if name == gpu)
        assert all(ended <= begun for (_, ended), (begun, _) in pairwise(spans))


def test_the_choice_of_the_user_is_kept(
    log: Callable[[], Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a1, 7")
    assert checked(pair(NAME), None).verdict == "equivalent"
    assert {gpu for gpu, *_ in log()} == {"GPU-a1", "7"}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-a1, 7"


def test_without_jobs_full_shapes_use_all_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert several_gpus("cupy", "full", None) == Devices(("0", "1", "2"), 64 * GIB)
    assert several_gpus("cupy", "full", 2) == Devices(("0", "1"), 64 * GIB)
    for backend, shapes, jobs in (
        ("cupy", "reduced", None),
        ("cupy", "full", 1),
        ("auto", "full", None),
        ("numpy", "full", 2),
    ):
        assert several_gpus(backend, shapes, jobs) is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert several_gpus("cupy", "full", None) is None


def test_one_gpu_by_the_driver_is_not_counted_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "0000:01:00.0").mkdir()
    monkeypatch.setattr(devices, "DRIVER", tmp_path)
    monkeypatch.setattr(devices, "_found", lambda: pytest.fail("a process was started"))
    assert several_gpus("cupy", "full", None) is None


def test_more_jobs_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"--jobs 4: .* there are 3 .* at most --jobs 3"):
        checked(pair(NAME), 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    for call in (lambda: checked(pair(NAME), 2), lambda: parse_memory("auto", "cupy", "full", 2)):
        with pytest.raises(UsageError, match=r"--jobs 2: .* there are 1 "):
            call()


def test_a_process_that_used_a_gpu_does_not_share_out_others(device: StrictCupy) -> None:
    device.zeros(1)
    with pytest.raises(UsageError, match="does not survive a fork; then leave --jobs at 1"):
        checked(pair(NAME), 2)
    assert checked(pair(NAME), None).verdict == "equivalent"


def test_memory_is_that_of_one_gpu(device: StrictCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    free = {0: 64 * GIB, 1: 20 * GIB, 2: 80 * GIB}
    chosen = [0]
    monkeypatch.setattr(device.cuda.runtime, "setDevice", lambda n: chosen.__setitem__(0, n))
    monkeypatch.setattr(device.cuda.runtime, "memGetInfo", lambda: (free[chosen[0]], 80 * GIB))
    assert parse_memory("auto", "cupy", "full", None) == 10 * GIB
    assert parse_memory("auto", "cupy", "full", 3) == 10 * GIB
    assert parse_memory("2GiB", "cupy", "full", 3) == 2 * GIB
    assert parse_memory("auto", "cupy") == 32 * GIB


@pytest.mark.parametrize("shapes", ["full", "reduced"])
@pytest.mark.parametrize("which", ["all_reduce", "linear"])
def test_a_wrong_plan_is_caught(device: StrictCupy, which: str, shapes: str) -> None:
    reference, parallel = pair(NAME)
    wrong = reference, next(m for n, m in mutants(parallel) if which in n)
    several = checked(wrong, 2, shapes=shapes)
    assert not device.counter.launches
    assert several.verdict != "equivalent"
    assert lasting(several) == lasting(checked(wrong, 1, shapes=shapes))


def _struck(monkeypatch: pytest.MonkeyPatch, file: Path, times: int, only: str = "") -> None:
    """Kill workers: the first so many that begin a stage (with this name, if one is given)."""
    prove, caller = pool.prove_stage, os.getpid()

    def dying(stage: Any, keys: Any, settings: Any, statement: str) -> Proof:
        assert os.getpid() != caller
        with file.open("a+b") as out:
            if out.tell() < times and only in ("", statement):
                out.write(b"x")
                out.flush()
                os.kill(os.getpid(), signal.SIGKILL)
        return prove(stage, keys, settings, statement)

    monkeypatch.setattr(pool, "prove_stage", dying)


def test_a_killed_worker_loses_no_stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    expected = checked(pair(NAME), 2)
    _struck(monkeypatch, tmp_path / "killed", 2)
    assert lasting(checked(pair(NAME), 2)) == lasting(expected)
    assert (tmp_path / "killed").stat().st_size == 2


@pytest.mark.parametrize("jobs", [2, 3])
def test_a_stage_that_always_kills_is_not_proven(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jobs: int, log: Callable[[], Log]
) -> None:
    assert checked(pair(NAME), jobs).verdict == "equivalent"
    stage = log()[0][1]
    _struck(monkeypatch, tmp_path / "killed", 1 << 10, stage)
    report = checked(pair(NAME), jobs)
    assert report.verdict == "inconclusive"
    (finding,) = report.findings
    assert finding.code == "PIT203"
    assert re.search(r"the stage of '\w+' ended twice .* exit code -9", finding.title)
    assert (tmp_path / "killed").stat().st_size == 2


def test_what_a_worker_finds_false_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    prove = pool.prove_stage
    monkeypatch.setattr(
        pool, "prove_stage", lambda *given: replace(prove(*given), outcome="failed")
    )
    assert checked(pair(NAME), 2).verdict != "equivalent"


def test_progress_says_what_is_left() -> None:
    told: list[tuple[Any, ...]] = []
    options = Options(seed=3, jobs=2, backend="cupy", shapes="full")
    check(*pair(NAME), options, lambda *each: told.append(each))
    steps = [each for each in told if each[0].startswith("stages (")]
    assert [done for _, done, *_ in steps] == list(range(1, steps[-1][2] + 1))
    assert all(re.fullmatch(r"stages \(about \d+ \w+ left\)", each[0]) for each in steps)


def test_a_worker_without_its_gpu_ends_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def unusable(gpu: str) -> Any:
        raise UsageError("the backend cupy finds no GPU that it can use (lost); choose numpy")

    monkeypatch.setattr(pool, "use_one", unusable)
    with pytest.raises(UsageError, match=r"the process for GPU [01]: .*\(lost\)"):
        checked(pair(NAME), 2)


def test_a_count_that_dies_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_seen", lambda: os._exit(7))
    with pytest.raises(UsageError, match="looks for GPUs ended with exit code 7"):
        several_gpus("cupy", "full", 2)
    assert several_gpus("cupy", "full", None) is None


def test_no_process_is_left() -> None:
    checked(pair(NAME), GPUS)
    assert not multiprocessing.active_children()
