"""Kernels of CUDA sources, run on the host with the arguments that CuPy would take.

>>> from device.strict_cupy import StrictCupy
>>> StrictCupy().RawModule(code="", options=["-O3"])
Traceback (most recent call last):
    ...
TypeError: options of a RawModule are a tuple, not <class 'list'>
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from device.strict_array import DeviceArray
from kernels.host_kernels import HostKernel, HostModule, module

if TYPE_CHECKING:
    from device.strict_cupy import StrictCupy

STRIDED = frozenset({"Layout", "Matrix", "Parts"})
"""The structs of kernels that have strides in them."""


class RawModule:
    """The kernels of a source text, built when one is first asked for."""

    def __init__(
        self,
        device: StrictCupy,
        code: str | None = None,
        *,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
    ) -> None:
        if not isinstance(code, str):
            raise TypeError(f"the stand-in takes the code of a RawModule, not {type(code)}")
        if not isinstance(options, tuple):
            raise TypeError(f"options of a RawModule are a tuple, not {type(options)}")
        self.device = device
        self.code = code
        self._built: HostModule | None = None

    def get_function(self, name: str) -> Kernel:
        """Return a kernel by its name."""
        self._built = self._built or module(self.code)
        return Kernel(self.device, self._built.get_function(name))


class Kernel:
    """One kernel, with arrays of the device as its pointers."""

    def __init__(self, device: StrictCupy, host: HostKernel) -> None:
        self.device = device
        self.host = host

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[Any],
        *,
        shared_mem: int = 0,
    ) -> None:
        """Launch the kernel.

        Raises:
            TypeError: if a size is no tuple, or an argument is neither an array of the device nor
                a number of NumPy's with the width of its parameter.
            ValueError: if an array is not contiguous, and the kernel is not told strides.
        """
        if not isinstance(grid, tuple) or not isinstance(block, tuple):
            raise TypeError(f"grid and block are tuples, not {type(grid)} and {type(block)}")
        given = [self._argument(i, each) for i, each in enumerate(args)]
        self.device.counter.launch(self.host.name)
        self.host(grid, block, given)

    def _takes_strides(self) -> bool:
        """Return True if a kernel has a parameter for the strides of arrays."""
        return any(
            p.type.removeprefix("const ") in STRIDED or p.name == "step"
            for p in self.host.parameters
        )

    def _argument(self, place: int, given: Any) -> Any:
        if isinstance(given, DeviceArray):
            if not given.host.flags.c_contiguous and not self._takes_strides():
                raise ValueError(f"{self.host.name}: argument {place} is not contiguous")
            return given.host
        if isinstance(given, np.ndarray) and given.dtype.kind != "V":
            raise TypeError(f"{self.host.name}: argument {place} is an array of the host")
        return given
