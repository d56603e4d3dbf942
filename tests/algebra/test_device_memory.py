"""The budget of memory where nobody names one: that of the host, or what a GPU has free."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pitcheck.algebra import backend, device_memory
from pitcheck.algebra.device_memory import OF_HOST, default_memory
from pitcheck.commands.number_options import parse_memory
from pitcheck.errors import UsageError

GIB = 1 << 30


def _device(free: int) -> Any:
    """Return a module of arrays on a GPU with so many bytes free."""
    runtime = SimpleNamespace(memGetInfo=lambda: (free, 80 * GIB))
    return SimpleNamespace(__name__="cupy", cuda=SimpleNamespace(runtime=runtime))


@pytest.mark.parametrize(
    ("free", "budget"), [(80 * GIB, 40 * GIB), (79 * GIB, 39 * GIB), (GIB // 2, GIB)]
)
def test_a_gpu_gives_half_of_what_it_has_free(
    free: int, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "array_module", lambda _: _device(free))
    monkeypatch.setattr(device_memory, "find_spec", lambda _: "installed")
    assert default_memory("cupy") == default_memory("auto") == budget
    assert parse_memory("auto", "cupy") == budget
    assert parse_memory("2GiB", "cupy") == 2 * GIB


def test_the_host_has_a_fixed_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_memory, "find_spec", lambda _: None)
    assert default_memory("auto") == default_memory("numpy") == OF_HOST
    assert parse_memory(" AUTO ", "numpy") == OF_HOST


def test_a_gpu_that_is_not_there_is_an_error() -> None:
    if device_memory.find_spec("cupy") is None:
        with pytest.raises(UsageError, match="cupy"):
            default_memory("cupy")
