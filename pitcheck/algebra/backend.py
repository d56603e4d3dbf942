"""The array module that values live in: NumPy, or CuPy if a GPU can be used.

>>> array_module("numpy").__name__
'numpy'
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from pitcheck.errors import UsageError

BACKENDS = ("auto", "numpy", "cupy")


def array_module(name: str) -> Any:
    """Return the array module called ``name``.

    "auto" is NumPy, from which large stages move to a GPU (:mod:`pitcheck.prove.automatic`).

    Raises:
        UsageError: if the name is unknown, or "cupy" is asked for but cannot be used.
    """
    if name not in BACKENDS:
        raise UsageError(f"there is no backend {name!r}; choose one of {', '.join(BACKENDS)}")
    return _usable_cupy() if name == "cupy" else np


def _usable_cupy() -> Any:
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        raise UsageError(
            f"the backend cupy needs the package cupy ({error}): install pitcheck[cuda12] or "
            f"pitcheck[cuda13], or choose numpy"
        ) from error
    try:
        devices = cupy.cuda.runtime.getDeviceCount()
        cupy.zeros(1)
    # CuPy raises errors of many classes where the driver is missing or does not fit
    except Exception as error:
        raise UsageError(
            f"the backend cupy finds no GPU that it can use ({error}); choose numpy"
        ) from error
    if devices < 1:
        raise UsageError("the backend cupy finds no GPU; choose numpy")
    return cupy


def gpu_count() -> int:
    """Return the number of GPUs that CuPy sees, 0 without CuPy. Nothing is computed on them."""
    try:
        return int(importlib.import_module("cupy").cuda.runtime.getDeviceCount())
    # CuPy raises errors of many classes where the driver is missing or does not fit
    except Exception:
        return 0


def to_host(xp: Any, array: Any) -> Any:
    """Return the array as a NumPy array."""
    return array if xp is np else xp.asnumpy(array)


def places_along(xp: Any, shape: Sequence[int], index: Any, axis: int) -> tuple[Any, ...]:
    """Return index arrays for ``index`` along array ``axis`` and every place along the others."""
    rank = len(shape)
    return tuple(
        index if i == axis else xp.arange(size).reshape((size,) + (1,) * (rank - 1 - i))
        for i, size in enumerate(shape)
    )


def scatter_add(xp: Any, target: Any, index: tuple[Any, ...], source: Any) -> None:
    """Add ``source`` to ``target[index]`` in place; repeated indices add up.

    int64 wraps modulo 2^64.
    """
    # CuPy's atomic additions know unsigned integers only, and modulo 2^64 both are one
    if target.dtype == np.int64:
        target, source = target.view(np.uint64), source.view(np.uint64)
    xp.add.at(target, index, source)
