"""The engine that the command line names, and a GPU for each process."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from sweep.test_sweep import DEMO, REFERENCE, SAME, swept

from pitcheck.algebra import backend
from pitcheck.errors import UsageError
from pitcheck.sweep import choice
from pitcheck.sweep.child.task import Terms
from pitcheck.sweep.choice import chosen, visible_gpus
from pitcheck.sweep.engine import LocalEngine

TERMS = Terms(seed=1, fixed=True, seconds=60.0, memory=1 << 32)
SEES = """
import os, pathlib, time
time.sleep(3)
pathlib.Path(f"gpu-{os.getpid()}").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "none"))
"""


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the number of GPUs that a stub of CuPy sees."""
    runtime = SimpleNamespace(getDeviceCount=lambda: 2)
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    stub = SimpleNamespace(import_module={"cupy": cupy}.__getitem__)
    monkeypatch.setattr(backend, "importlib", stub)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return 2


def local(name: str, jobs: int | None, stage_jobs: int = 1) -> LocalEngine:
    with chosen("processes", None, name, jobs, stage_jobs) as made:
        found = made(TERMS)
    assert isinstance(found, LocalEngine)
    return found


def test_each_gpu_has_one_process(gpus: int) -> None:
    found = local("cupy", None)
    assert (found.jobs, found.gpus, found.terms.backend) == (2, ["0", "1"], "cupy")
    assert local("cupy", 1).jobs == 1
    for jobs, stage_jobs in ((3, 1), (None, 2)):
        with pytest.raises(UsageError, match="a GPU is used by one process"):
            local("cupy", jobs, stage_jobs)


@pytest.mark.parametrize("name", ["auto", "numpy"])
def test_numpy_uses_no_gpu(gpus: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_processors", lambda: 7)
    found = local(name, None)
    assert (found.jobs, found.gpus, found.terms.backend) == (7, [], "numpy")
    assert (local(name, None, 3).jobs, local(name, None, 9).jobs) == (2, 1)
    assert local(name, 5, 4).jobs == 5


def test_a_machine_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = SimpleNamespace(import_module={}.__getitem__)
    monkeypatch.setattr(backend, "importlib", stub)
    assert backend.gpu_count() == 0
    assert local("auto", 3).gpus == []
    with pytest.raises(UsageError, match="finds no GPU"):
        local("cupy", None)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("", ["0", "1"]),
        ("3, 5", ["3", "5"]),
        ("GPU-a1,GPU-b2", ["GPU-a1", "GPU-b2"]),
        ("4,6,-1,7", ["4", "6"]),
    ],
)
def test_gpus_have_the_names_that_the_environment_gives(
    gpus: int, given: str, found: list[str]
) -> None:
    assert visible_gpus("cupy", {"CUDA_VISIBLE_DEVICES": given}) == found


def test_a_process_sees_its_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(choice, "gpu_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    for n in range(2):
        Path(f"{n}.py").write_text(SEES, encoding="utf-8")
    text = "".join(f'[[program]]\nsource = "{n}.py:spec"\n' for n in range(2))
    swept(text, backend="cupy", jobs=None)
    assert sorted(each.read_text("utf-8") for each in Path.cwd().glob("gpu-*")) == ["4", "7"]


def test_a_backend_that_cannot_be_used_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(choice, "gpu_count", lambda: 1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    for file in (REFERENCE, SAME):
        shutil.copy(DEMO / REFERENCE, file)
    text = f'[[pair]]\nreference = "{REFERENCE}"\nparallel = "{SAME}"\n'
    _, (found,) = swept(text, backend="cupy", jobs=None)
    assert found.status == "unexpected"
    assert "the backend cupy" in found.said
