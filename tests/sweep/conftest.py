"""Signals as a terminal sends them, for all tests of sweeps."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def hang_ups_end_processes() -> Iterator[None]:
    """Let a hang-up end what a test starts: what runs by nohup ignores it, and so would they."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
