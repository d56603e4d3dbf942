"""The engine of a sweep as the command line names it, and what of the machine it may use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from pitcheck.algebra.backend import gpu_count
from pitcheck.algebra.devices import names_of
from pitcheck.errors import UsageError
from pitcheck.sweep.child.task import Terms
from pitcheck.sweep.engine import Engine, LocalEngine

Made = Callable[[Terms], Engine]


@contextmanager
def chosen(
    engine: str, address: str | None, backend: str, jobs: int | None, stage_jobs: int
) -> Iterator[Made]:
    """Yield what makes the engine from the terms of a sweep; a cluster is connected until then.

    Raises UsageError for options that contradict each other, or the machine.
    """
    if engine != "ray" and address is not None:
        raise UsageError("--address is that of a Ray cluster; add --engine ray")
    if backend == "cupy" and stage_jobs > 1:
        raise UsageError("--stage-jobs above 1 needs --backend numpy: a GPU is used by one process")
    # A sweep has many small checks: one process on each processor is faster than one on each GPU.
    array = "cupy" if backend == "cupy" else "numpy"
    if engine != "ray":
        made = _local(visible_gpus(array, os.environ), jobs, stage_jobs)
        yield lambda terms: made(msgspec.structs.replace(terms, backend=array))
        return
    from pitcheck.sweep.cluster.engine import RayEngine, connected  # noqa: PLC0415  Ray is an extra

    with connected(address) as ray:
        yield lambda terms: RayEngine(ray, msgspec.structs.replace(terms, backend=array), jobs)


def _local(gpus: Sequence[str], jobs: int | None, stage_jobs: int) -> Made:
    """Return what makes the engine for this machine. Raises UsageError for too few GPUs."""
    if gpus and (stage_jobs > 1 or (jobs or 1) > len(gpus)):
        raise UsageError(
            f"--jobs {jobs or len(gpus)} with --stage-jobs {stage_jobs}: a GPU is used by one "
            f"process, and there are {len(gpus)}; choose --backend numpy, or fewer"
        )
    most = jobs or len(gpus) or max(1, _processors() // stage_jobs)
    return lambda terms: LocalEngine(terms, most, gpus)


def visible_gpus(backend: str, environment: Mapping[str, str]) -> list[str]:
    """Return the GPUs for the processes of a sweep, as CUDA_VISIBLE_DEVICES names each.

    None are used by ``numpy``. Raises UsageError if ``cupy`` is asked for and finds none.
    """
    count = 0 if backend == "numpy" else gpu_count()
    if backend == "cupy" and not count:
        raise UsageError("the backend cupy finds no GPU that it can use; choose --backend numpy")
    return names_of(count, environment)


def _processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
