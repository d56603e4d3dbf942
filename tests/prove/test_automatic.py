"""The array module that ``--backend auto`` chooses for a stage."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest

from pitcheck.errors import UsageError
from pitcheck.prove import automatic
from pitcheck.prove.automatic import START, Automatic

CUPY = SimpleNamespace(__name__="cupy")


class Finder:
    """Return a stub of CuPy, or raise, and count how often it is asked."""

    def __init__(self, *, missing: bool = False) -> None:
        self.asked = 0
        self.missing = missing

    def __call__(self) -> object:
        self.asked += 1
        if self.missing:
            raise UsageError("no GPU")
        return CUPY


def test_small_stages_do_not_even_look_for_cupy() -> None:
    found = Finder()
    choice = Automatic(found)
    assert choice.module(START, 0.0) is np
    assert choice.module(100.0, 100.0) is np
    assert found.asked == 0


def test_a_large_stage_starts_cupy_and_smaller_ones_follow() -> None:
    found = Finder()
    choice = Automatic(found)
    assert choice.module(START + 0.2, 0.1) is CUPY
    assert choice.module(0.2, 0.1) is CUPY
    assert choice.module(0.1, 0.1) is np
    assert found.asked == 1


def test_without_a_gpu_it_is_looked_for_once() -> None:
    found = Finder(missing=True)
    choice = Automatic(found)
    assert [choice.module(100.0, 1.0) for _ in range(3)] == [np, np, np]
    assert found.asked == 1


def test_a_fork_of_a_process_that_uses_the_gpu_stays_on_numpy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choice, untouched = Automatic(Finder()), Automatic(Finder())
    assert choice.module(100.0, 1.0) is CUPY
    child = os.getpid() + 1
    monkeypatch.setattr(automatic.os, "getpid", lambda: child)
    assert choice.module(100.0, 1.0) is np
    assert untouched.module(100.0, 1.0) is CUPY
