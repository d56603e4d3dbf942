"""Tests in parts: the fast run has some of the cases, CI more of them, and the night all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some_by_day(cases: Iterable[Any], every: int) -> list[Any]:
    """Return the cases of a slow test as parameters. CI runs every so many-th of them, from the
    first on; the others are left to the night.
    """
    return [
        pytest.param(case, marks=[pytest.mark.nightly] if place % every else [])
        for place, case in enumerate(cases)
    ]


def some_at_once(cases: Iterable[Any], every: int, night: int = 1) -> list[Any]:
    """Return cases as parameters. Every so many-th of them, from the first on, is fast, and the
    others are slow; CI runs every ``night``-th of the slow ones, and the night has the rest.
    """
    found: list[Any] = []
    slow = 0
    for place, case in enumerate(cases):
        marks = [pytest.mark.slow, *([pytest.mark.nightly] if slow % night else [])]
        found.append(pytest.param(case, marks=marks) if place % every else case)
        slow += place % every > 0
    return found
