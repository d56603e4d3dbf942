"""The cost of starting: help is there at once, and imports stay light."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest


def seconds(*command: str) -> float:
    """Return the processor time of a command, the least of seven runs.

    Other processes of the machine count in neither.
    """
    times = []
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], check=True, capture_output=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


@pytest.mark.slow
def test_help_costs_at_most_120_ms_above_bare_python() -> None:
    assert seconds("-m", "pitcheck", "--help") - seconds("-c", "pass") < 0.12


HEAVY = {"jinja2", "torch", "numpy", "networkx", "galois", "mpmath", "rich", "zstandard"}


@pytest.mark.parametrize(
    "module",
    ["pitcheck.cli", "pitcheck.commands.check", "pitcheck.torch", "pitcheck.report.write"],
)
def test_importing_loads_no_heavy_package(module: str) -> None:
    shown = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys, {module}; print(sorted({HEAVY} & sys.modules.keys()))",
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert shown.stdout == "[]\n"


def test_a_check_loads_what_explains_a_difference_only_once_there_is_one() -> None:
    look = (
        "import sys, pitcheck.engine.check; "
        "print([m for m in sys.modules if m.startswith(('pitcheck.explain', 'pitcheck.witness'))])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", look], check=True, capture_output=True, text=True, timeout=60
    )
    assert shown.stdout == "[]\n"
