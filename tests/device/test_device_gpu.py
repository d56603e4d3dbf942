"""On a GPU, CuPy gives what NumPy gives, bit for bit: in every operator and algebra, in the
programs of ``bench/gpu.py`` and in whole checks.

CuPy compiles each elementwise kernel when it is first used, which takes most of the time. So one
case of every operator is tried for some time, in the order of ``ORDER``; all cases by night. A
fault does not stop the others: one run names them all.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device.device_cases import KINDS, SORTS, cases, facts_of
from ops.ops_law_cases import Case

from pitcheck.algebra.backend import array_module

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import gpu_programs

pytestmark = pytest.mark.gpu

SECONDS = 40.0
"""The time for one case of every operator."""
FIRST = (
    ("residues", "drawn"),
    ("residues", "special"),
    ("free", "drawn"),
    ("undefined operands", "drawn"),
    ("weighted free", "special"),
    ("undefined free", "special"),
)
ORDER = (*FIRST, *(each for each in product(KINDS, SORTS) if each not in FIRST))
"""Algebras and operands in the order in which they are tried."""


@pytest.fixture
def cupy() -> Any:
    return array_module("cupy")


def one_of_each() -> tuple[Case, ...]:
    """Return the first case of every operator."""
    return tuple({case.operator.name: case for case in reversed(cases())}.values())


def faults(cupy: Any, tried: Iterable[tuple[str, str, Case]]) -> Iterator[str]:
    """Yield the cases that differ, and the errors by where they were raised."""
    for kind, sort, case in tried:
        expected = facts_of(np, KINDS[kind], case, sort)
        try:
            if facts_of(cupy, KINDS[kind], case, sort) != expected:
                yield f"differs: {case.operator.name}, {kind}, {sort}"
        except Exception as error:
            yield where(error)


def where(error: Exception) -> str:
    """Return an error with the last line of pitcheck at which it was raised."""
    lines = traceback.extract_tb(error.__traceback__)
    mine = [f for f in lines if "/pitcheck/" in f.filename and "/tests/" not in f.filename]
    place = f"{mine[-1].filename}:{mine[-1].lineno}: {mine[-1].line}" if mine else "?"
    return f"{type(error).__name__}: {error} at {place}"


def for_some_time(
    tried: Iterable[tuple[str, str, Case]], done: list[str]
) -> Iterator[tuple[str, str, Case]]:
    """Yield cases until the time is over, and note those that were."""
    start = time.monotonic()
    for each in tried:
        if time.monotonic() - start > SECONDS:
            return
        done.append(each[0])
        yield each


def test_operators(cupy: Any) -> None:
    found: list[str] = []
    every = [(kind, sort, case) for kind, sort in ORDER for case in one_of_each()]
    wrong = sorted(set(faults(cupy, for_some_time(every, found))))
    print(f"{len(found)} of {len(every)} cases in {SECONDS:g} s: {sorted(set(found))}")
    assert not wrong, "\n".join(wrong)


def test_programs(cupy: Any) -> None:
    wrong = []
    for shape in gpu_programs.SHAPES:
        for name, program in gpu_programs.programs(*shape).items():
            try:
                if not gpu_programs.agrees(cupy, program):
                    wrong.append(f"differs: {name} {shape}")
            except Exception as error:
                wrong.append(f"{name} {shape}: {where(error)}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["a mismatch", "llama3-tiny"])
def test_whole_checks(cupy: Any, tmp_path: Path, name: str) -> None:
    pytest.importorskip("msgspec", reason="plans need the package msgspec")
    from device.device_checks import reported, shipped, spoilt  # noqa: PLC0415  it needs msgspec

    plans = spoilt() if name == "a mismatch" else shipped(name)
    assert reported(plans, "cupy", tmp_path) == reported(plans, "numpy", tmp_path)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("kind", KINDS)
def test_all_cases(cupy: Any, kind: str, sort: str) -> None:
    wrong = sorted(set(faults(cupy, ((kind, sort, case) for case in cases()))))
    assert not wrong, "\n".join(wrong)
