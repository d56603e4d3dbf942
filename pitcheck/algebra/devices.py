"""The GPUs of this machine for several processes, one for each, and what each process may use.

CUDA does not survive a fork: a process whose copies use GPUs must not use one itself. So the GPUs
are counted in a copy, and this process has a name in place of CuPy.

>>> names_of(2, {}), names_of(2, {"CUDA_VISIBLE_DEVICES": "5,GPU-a1,7"})
(['0', '1'], ['5', 'GPU-a1'])
>>> OtherProcesses(("0", "1")).__name__
'cupy'
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pitcheck.algebra.backend import array_module
from pitcheck.errors import UsageError
from pitcheck.forks import NO_FORK, Forks, can_fork

GPUS = "CUDA_VISIBLE_DEVICES"
"""The environment variable with the GPUs that a process sees."""
DRIVER = Path("/proc/driver/nvidia/gpus")
"""The folder in which the driver of Linux has a folder for each GPU."""


@dataclass(frozen=True)
class Devices:
    """GPUs, as CUDA_VISIBLE_DEVICES names each, and the bytes free on the one that has least."""

    names: tuple[str, ...]
    free: int


@dataclass(frozen=True)
class OtherProcesses:
    """A name that stands for CuPy in a process that leaves the GPUs ``gpus`` to its copies.

    Nothing can be computed with it: what is tried by mistake is an AttributeError.
    """

    gpus: tuple[str, ...]
    __name__: ClassVar[str] = "cupy"


def shared_gpus(module: Any) -> tuple[str, ...]:
    """Return the GPUs that other processes have if ``module`` stands for CuPy, else none.

    >>> import numpy as np
    >>> shared_gpus(np), shared_gpus(OtherProcesses(("0", "1")))
    ((), ('0', '1'))
    """
    return module.gpus if isinstance(module, OtherProcesses) else ()


def several_gpus(backend: str, shapes: str, jobs: int | None) -> Devices | None:
    """Return the GPUs of the processes that prove stages; None if this process alone does.

    Without ``jobs`` these are all GPUs at full shapes, if there are several, and none at reduced
    ones.

    Raises:
        UsageError: there are fewer GPUs than ``jobs``, or none that a copy of this process can use.
    """
    if backend != "cupy" or jobs == 1:
        return None
    if jobs is None:
        if shapes != "full" or not can_fork() or _is_one():
            return None
        found = _found()
        return found if isinstance(found, Devices) and len(found.names) > 1 else None
    if not can_fork():
        raise UsageError(NO_FORK)
    found = _found()
    if isinstance(found, str):
        raise UsageError(
            f"--jobs {jobs}: {found}. A process that has used a GPU cannot share out the others: "
            f"CUDA does not survive a fork; then leave --jobs at 1"
        )
    if jobs > len(found.names):
        raise UsageError(
            f"--jobs {jobs}: with --backend cupy a GPU is used by one process, and there are "
            f"{len(found.names)} ({GPUS} can choose among them); give at most --jobs "
            f"{len(found.names)}, or choose --backend numpy"
        )
    return Devices(found.names[:jobs], found.free)


def names_of(count: int, environment: Mapping[str, str]) -> list[str]:
    """Return the names of ``count`` GPUs that CUDA sees, as CUDA_VISIBLE_DEVICES has them."""
    named = [each.strip() for each in environment.get(GPUS, "").split(",") if each.strip()]
    return (named or list(map(str, range(count))))[:count]


def use_one(gpu: str) -> Any:
    """Return CuPy on one GPU alone, in a process that has not used any.

    Raises:
        UsageError: it cannot be used.
    """
    os.environ[GPUS] = gpu
    return array_module("cupy")


def _is_one() -> bool:
    """Return True if it is plain, without a process that asks, that there is one GPU at most."""
    if len([each for each in os.environ.get(GPUS, "").split(",") if each.strip()]) == 1:
        return True
    try:
        return len(list(DRIVER.iterdir())) <= 1
    except OSError:
        return False


def _found() -> Devices | str:
    """Return the GPUs as a copy of this process sees them, or why it can use none."""
    forks: Forks[str] = Forks()
    try:
        forks.start("gpus", _seen)
        (ended,) = forks.ended()
    finally:
        forks.stop()
    if ended.answer is None:
        return f"the process that looks for GPUs ended with exit code {ended.code}"
    answer: Devices | str = ended.answer
    return answer


def _seen() -> Devices | str:
    try:
        runtime = array_module("cupy").cuda.runtime
    except UsageError as error:
        return str(error)
    names = names_of(runtime.getDeviceCount(), os.environ)
    free = []
    for number in range(len(names)):
        runtime.setDevice(number)
        free.append(runtime.memGetInfo()[0])
    return Devices(tuple(names), min(free))
