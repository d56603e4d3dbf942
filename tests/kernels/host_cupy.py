"""A module that stands for CuPy: NumPy, with kernels that run on the host and are counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from kernels import host_kernels


class HostCupy:
    """NumPy under another name; ``launches`` counts the launches of kernels by their names."""

    def __init__(self) -> None:
        self.launches: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def RawModule(self, code: str) -> Any:  # noqa: N802  CuPy's name
        """Return the kernels of a source text."""
        return _Counted(code, self.launches)

    @staticmethod
    def asnumpy(array: Any) -> Any:
        """Return the array."""
        return array


class _Counted:
    def __init__(self, code: str, launches: Counter[str]) -> None:
        self._code = code
        self._launches = launches

    def get_function(self, name: str) -> Any:
        kernel = host_kernels.module(self._code).get_function(name)

        def launched(grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...]) -> None:
            self._launches[name] += 1
            kernel(grid, block, args)

        return launched
