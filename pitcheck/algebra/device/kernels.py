"""The CUDA kernels: one source text, compiled once, and their launches.

>>> source().startswith("// The arithmetic that all kernels share")
True
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.device.layouts import BLOCK, Operand, Plan, grid_of, operand, planned
from pitcheck.errors import UsageError
from pitcheck.resources import shipped

MOST_LEVELS = 16
PRIMES = np.dtype([("of", np.uint64, (MOST_LEVELS, 2))])
_COMMON = "residues.cuh"
_MOST_MARKS = (1 << 32) - 1


def source() -> str:
    """Return the source text of all kernels, the arithmetic that they share first."""
    folder = shipped("kernels", "kernels")
    files = [folder / _COMMON, *sorted(folder.glob("*.cu"))]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def primes_struct(primes: Sequence[int]) -> NDArray[np.void]:
    """Return primes and the floors of 2^64 over them, the struct ``Primes``.

    Raises:
        UsageError: if there are more than 16.
    """
    if len(primes) > MOST_LEVELS:
        raise UsageError(
            f"a chain of {len(primes)} primes is too long for a GPU, whose kernels take "
            f"{MOST_LEVELS}; choose the backend numpy"
        )
    result = np.zeros(1, PRIMES)
    for place, prime in enumerate(primes):
        result["of"][0, place] = prime, (1 << 64) // prime
    return result


class Kernels:
    """The kernels on the current device; ``xp`` is cupy."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self._module = xp.RawModule(code=source())
        self._found: dict[str, Any] = {}
        self._marks = 0
        self.flag = xp.zeros(1, dtype=np.uint32)
        """The number that a kernel sets to the mark of its launch if it finds what it looks for."""

    def next_mark(self) -> np.uint32:
        """Return the mark of another launch, so that the flag need not be cleared before it."""
        self._marks = self._marks % _MOST_MARKS + 1
        return np.uint32(self._marks)

    def marked(self, mark: np.uint32) -> bool:
        """Return True if a launch has set the flag to its mark. Waits for the device."""
        return int(self.flag[0]) == int(mark)

    def launch(self, name: str, plan: Plan, *arguments: Any) -> None:
        """Run a kernel over the elements of a plan, if there are any."""
        if plan.size and plan.shape[0]:
            self.run(name, plan.grid, arguments)

    def each(self, name: str, plan: Plan, *arguments: Any) -> None:
        """Run a kernel whose threads take an element at all levels together, if there are any."""
        if plan.size and plan.shape[0]:
            self.run(name, grid_of(plan.size), arguments)

    def run(self, name: str, grid: tuple[int, ...], arguments: Sequence[Any]) -> None:
        """Run a kernel."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._module.get_function(name)
        found(grid, BLOCK, tuple(arguments))

    def over(self, *arrays: Any, beside: tuple[Operand, ...] = ()) -> tuple[Plan, tuple[Any, ...]]:
        """Return the plan for arrays that broadcast, and the arrays, copied if it needs that.

        ``beside`` are more operands, with a stride along one axis below the levels at most.

        Raises:
            ValueError: if they do not broadcast.
        """
        plan = planned((*map(operand, arrays), *beside))
        if plan.layout is not None:
            return plan, arrays
        xp = self.xp
        # A level axis of size 1 stays one: it stands for all levels.
        full = tuple(
            xp.ascontiguousarray(xp.broadcast_to(a, (a.shape[0], *plan.shape[1:]))) for a in arrays
        )
        return planned((*map(operand, full), *beside)), full


@lru_cache(maxsize=8)
def kernels_of(xp: Any) -> Kernels:
    """Return the kernels of an array module, compiled once for all algebras."""
    return Kernels(xp)
