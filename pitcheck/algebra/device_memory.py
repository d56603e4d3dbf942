"""The memory that a check may use where nobody says how much.

>>> default_memory("numpy") >> 30
4
"""

from __future__ import annotations

from importlib.util import find_spec

from pitcheck.base.options import GIB

OF_HOST = 4 * GIB
MARGIN = 0.5
"""The share of a GPU's free memory that is used. The rest is for kernels, for what its pool of
memory cannot use again, and for what a prediction misses.
"""


def default_memory(backend: str, shapes: str = "reduced", jobs: int | None = 1) -> int:
    """Return the bytes that a process may use: 4 GiB, or half of what is free on its GPU.

    The latter is rounded down to GiB, so that a check of an idle GPU is taken apart as before. If
    ``jobs`` processes have a GPU each, that with least memory decides for all.

    Raises:
        UsageError: the backend cannot be used.
    """
    if backend == "numpy" or (backend == "auto" and find_spec("cupy") is None):
        return OF_HOST
    from pitcheck.algebra.backend import array_module  # noqa: PLC0415  heavy
    from pitcheck.algebra.devices import several_gpus  # noqa: PLC0415

    several = several_gpus(backend, shapes, jobs)
    if several is not None:
        return _share(several.free)
    xp = array_module(backend)
    if xp.__name__ == "numpy":
        return OF_HOST
    free, _ = xp.cuda.runtime.memGetInfo()
    return _share(free)


def _share(free: int) -> int:
    return max(GIB, int(free * MARGIN) // GIB * GIB)
