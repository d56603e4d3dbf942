"""The choice of ``--backend auto``: for every stage the array module predicted to end first.

A processor ends sooner at reduced shapes, where every operation is on few elements, and a GPU at
whole shapes. CuPy is looked for when the first stage is large enough to pay for its start.

>>> Automatic().module(numpy_seconds=0.1, cupy_seconds=0.01).__name__
'numpy'
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np

from pitcheck.algebra.backend import array_module
from pitcheck.errors import UsageError
from pitcheck.prove.full_shapes.demand import Demand
from pitcheck.prove.full_shapes.rates import CUPY, NUMPY, seconds_of

START = 3.0
"""The seconds of the first use of CuPy in a process: its import, the device, the kernels."""


@dataclass
class Automatic:
    """The array modules of this process. ``find`` returns CuPy, or raises UsageError."""

    find: Callable[[], Any] = field(default=lambda: array_module("cupy"))
    _cupy: Any = None
    _process: int = field(default_factory=os.getpid)
    _missing: bool = False

    def cheapest(self, demand: Demand, draws: int, steps: int) -> Any:
        """Return the array module for so many draws together of a stage with so many steps."""
        numpy, cupy = (seconds_of(demand, rates, draws, steps) for rates in (NUMPY, CUPY))
        return self.module(numpy, cupy)

    def module(self, numpy_seconds: float, cupy_seconds: float) -> Any:
        """Return the array module on which a stage is predicted to end first."""
        start = 0.0 if self._cupy is not None else START
        if numpy_seconds <= cupy_seconds + start or self._unusable:
            return np
        if self._cupy is None:
            self._start()
        return np if self._cupy is None else self._cupy

    @property
    def _unusable(self) -> bool:
        """True without a GPU, and in a process that was forked from one that uses it already.

        What CUDA has set up in a process does not work in a copy of it.
        """
        return self._missing or (self._cupy is not None and self._process != os.getpid())

    def _start(self) -> None:
        try:
            self._cupy, self._process = self.find(), os.getpid()
        except UsageError:
            self._missing = True


def automatic_of(backend: str) -> Automatic | None:
    """Return the choice for a backend by name; None for one that is given or the only one."""
    return Automatic() if backend == "auto" and _is_installed() else None


def _is_installed() -> bool:
    """Return True if CuPy can be found, which imports nothing."""
    try:
        return find_spec("cupy") is not None
    except ImportError:
        return False
