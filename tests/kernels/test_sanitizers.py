"""The kernels on the host under the sanitizers of addresses and of undefined behaviour."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import host_kernels

ROOT = Path(__file__).parents[2]

WRONG = """
import numpy as np
from kernels.host_kernels import module
source = '''
extern "C" __global__ void wrong(long long *a, long long by) {
    FAULT;
}
'''
a = np.ones(1 << 20, dtype=np.int64)
module(source).get_function("wrong")((1,), (1,), (a, np.int64(FROM)))
"""
FAULTS = {
    "heap-buffer-overflow": ("a[by] = 1", 1 << 20),
    "signed integer overflow": ("a[0] = by + 1", 2**63 - 1),
    "shift exponent": ("a[0] = 1ll << by", 64),
}


def sanitized(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python where kernels are built with sanitizers; skip if the compiler has none."""
    if host_kernels.COMPILER is None:
        pytest.skip(host_kernels.MISSING)
    library = subprocess.run(
        [host_kernels.COMPILER, "-print-file-name=libasan.so"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    if not Path(library).is_absolute():
        pytest.skip("the C++ compiler has no sanitizer of addresses")
    surroundings = {
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": "detect_leaks=0",
        "PITCHECK_SANITIZE": "1",
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))),
    }
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **surroundings},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "forms",
        pytest.param("arithmetic", marks=pytest.mark.nightly),
        pytest.param("algebra", marks=pytest.mark.nightly),
    ],
)
def test_no_kernel_does_what_is_undefined(name: str) -> None:
    tests = f"tests/kernels/test_device_{name}.py"
    done = sanitized("-m", "pytest", "-q", "-p", "no:cacheprovider", tests)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " skipped" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_undefined_is_found(fault: str) -> None:
    statement, by = FAULTS[fault]
    done = sanitized("-c", WRONG.replace("FAULT", statement).replace("FROM", str(by)))
    assert done.returncode != 0
    assert fault in done.stderr
