"""Slow tests in parts: CI runs some of the cases of a test, a nightly job the others, too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some_by_day(cases: Iterable[Any], every: int) -> list[Any]:
    """Cases as parameters: every so many-th, from the first on, runs in CI; the others are left to
    the night.
    """
    return [
        pytest.param(case, marks=[pytest.mark.nightly] if place % every else [])
        for place, case in enumerate(cases)
    ]
