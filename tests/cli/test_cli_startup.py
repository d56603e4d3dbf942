"""What starting costs: help is there at once."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest


def seconds(*command: str) -> float:
    """Processor time, the least of seven runs: what other processes of the machine do counts in
    neither.
    """
    times = []
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], check=True, capture_output=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


@pytest.mark.slow
def test_help_costs_at_most_150_ms_above_bare_python() -> None:
    assert seconds("-m", "pitcheck", "--help") - seconds("-c", "pass") < 0.15
