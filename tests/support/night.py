"""Tests that are left to the night by name: those of ``tests/night.txt``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import pytest

LIST = Path(__file__).parents[1] / "night.txt"


def listed(text: str) -> list[str]:
    """Return the names in a list; lines that begin with # are comments."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def leave(items: Iterable[pytest.Item], names: Collection[str]) -> None:
    """Mark as nightly the tests that are named by themselves or by their function."""
    for item in items:
        if item.nodeid in names or function_of(item.nodeid) in names:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.nightly)


def function_of(name: str) -> str:
    """Return a test's name without its case."""
    return name.partition("[")[0]


def faults(
    names: Collection[str], by_day: Collection[str], collected: Collection[str]
) -> list[str]:
    """Return what is wrong with a list, given the tests that were collected, and those by day.

    A name is of no test, or its function has no case left by day; for that of a whole function its
    file has no test left by day. Nothing is said of files of which no test was collected.
    """
    files, files_by_day = ({_file_of(name) for name in of} for of in (collected, by_day))
    functions, functions_by_day = ({function_of(name) for name in of} for of in (collected, by_day))
    found = []
    for name in names:
        if _file_of(name) not in files:
            continue
        if name not in collected and name not in functions:
            found.append(f"{name!r} is no test")
        elif "[" in name and function_of(name) not in functions_by_day:
            found.append(f"{name!r}: no case of its function is left by day")
        elif _file_of(name) not in files_by_day:
            found.append(f"{name!r}: no test of its file is left by day")
    return found


def _file_of(name: str) -> str:
    return name.partition("::")[0]
