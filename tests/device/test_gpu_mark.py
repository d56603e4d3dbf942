"""The mark ``gpu``: its tests are skipped without a GPU, and the last lines say how many."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from device.strict_cupy import StrictCupy
from support import gpu

from pitcheck.algebra import backend
from pitcheck.errors import UsageError

TESTS = Path(__file__).parents[1]


def report(reason: str, *marks: str) -> Any:
    return SimpleNamespace(keywords=dict.fromkeys(marks, 1), longrepr=("f.py", 1, reason))


def test_tests_that_need_a_gpu_are_counted() -> None:
    needed = report("Skipped: needs a GPU: there is none", "gpu")
    others = [report("Skipped: needs a GPU"), report("Skipped: plans need msgspec", "gpu")]
    assert gpu.told(others) is None
    assert gpu.told([needed, *others]) == "1 test needs a GPU and was skipped"
    assert gpu.told([needed, needed]) == "2 tests need a GPU and were skipped"


def test_a_module_that_is_skipped_whole_is_not_counted() -> None:
    module = pytest.CollectReport("f.py", "skipped", ("f.py", 1, "Skipped: needs a GPU"), None)
    assert gpu.told([module]) is None


class Item:
    """A test that was collected."""

    def __init__(self, *marks: str) -> None:
        self.marks = list(marks)
        self.added: list[Any] = []

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None

    def add_marker(self, mark: Any) -> None:
        self.added.append(mark)


def test_they_are_skipped_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise UsageError("there is none")

    monkeypatch.setattr(backend, "_usable_cupy", none)
    items: Any = [Item("gpu"), Item("slow")]
    gpu.leave(items)
    assert [len(item.added) for item in items] == [1, 0]
    assert items[0].added[0].kwargs == {"reason": "needs a GPU: there is none"}


def test_they_run_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_usable_cupy", StrictCupy)
    items: Any = [Item("gpu")]
    gpu.leave(items)
    assert not items[0].added


def test_nobody_looks_for_a_gpu_without_such_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_usable_cupy", lambda: pytest.fail("CuPy was looked for"))
    items: Any = [Item("slow")]
    gpu.leave(items)
    assert not items[0].added


@pytest.mark.slow
@pytest.mark.slow
def test_the_last_lines_say_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process that sees no device, whatever this machine has."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    chosen = ["-m", "gpu and not slow", "device/test_device_gpu.py"]
    command = [sys.executable, "-m", "pytest", *chosen]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 tests need a GPU and were skipped" in done.stdout
