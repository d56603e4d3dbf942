"""A module that stands for CuPy where there is no GPU, over NumPy.

It has the functions that pitcheck uses and no others, with CuPy's parameters, and refuses what CuPy
refuses. So what runs on it, and gives NumPy's result, should run on a GPU. Its ``counter`` says
what a GPU would be asked for. Launches are those of CuPy 14, or fewer: a sort is a few.

>>> cupy = StrictCupy()
>>> x = cupy.arange(3) + 1
>>> x.tolist(), cupy.counter.launches, cupy.counter.synchronisations
([1, 2, 3], 2, 1)
>>> x + np.arange(3)
Traceback (most recent call last):
    ...
TypeError: Unsupported type <class 'numpy.ndarray'>
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeGuard

import numpy as np
from device.device_counter import Counter
from device.strict_array import DeviceArray, Memory, matmul, supported
from device.strict_indexing import UndefinedError, place_of
from device.strict_kernels import RawModule

UFUNCS = [
    "absolute",
    "add",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "cos",
    "divide",
    "equal",
    "exp",
    "floor_divide",
    "greater",
    "greater_equal",
    "invert",
    "isfinite",
    "isinf",
    "isnan",
    "left_shift",
    "less",
    "less_equal",
    "log",
    "logical_and",
    "logical_or",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "not_equal",
    "power",
    "remainder",
    "right_shift",
    "sign",
    "sqrt",
    "subtract",
]
"""The elementwise functions, each of them one launch."""
SHIFTS = ("left_shift", "right_shift")
DTYPES = ["bool_", "uint8", "uint32", "uint64", "int32", "int64", "float32", "float64"]
ADDABLE = frozenset("iIlLqQfdefFD") - frozenset("lq")
"""The characters of dtypes that ``add.at`` has atomic additions for: no int64."""
_MOST = 8
"""The arrays above which a concatenation is one launch, and not one for each."""


class Ufunc:
    """An elementwise function."""

    def __init__(self, device: StrictCupy, name: str) -> None:
        self.device = device
        self.__name__ = name

    def __call__(self, *given: Any, out: Any = None, dtype: Any = None) -> DeviceArray:
        return self.device.function(self.__name__, *given, out=out, dtype=dtype)

    def at(self, a: DeviceArray, indices: Any, b: Any = None) -> None:
        """Add ``b`` at places of ``a``; no other function has this here.

        Raises:
            NotImplementedError: if the function is not add.
            TypeError: if the dtype has no atomic additions.
        """
        if self.__name__ != "add":
            raise NotImplementedError(f"`{self.__name__}.at` is not supported yet")
        if not self.device.owns(a) or not self.device.owns(b):
            raise TypeError("add.at takes arrays of the device")
        if a.dtype.char not in ADDABLE:
            raise TypeError(f"cupy.add.at has no additions of {a.dtype}")
        index = place_of(self.device, indices)
        self.device.counter.launch("add.at", index.integers + 2)
        with np.errstate(all="ignore"):
            np.add.at(a.host, index.key, b.host)


class StrictCupy:
    """The stand-in. Arrays of one are strange to another."""

    __name__ = "cupy"
    ndarray = DeviceArray
    newaxis = None
    inf, nan = np.inf, np.nan

    def __init__(self, devices: int = 1) -> None:
        self.counter = Counter()
        self.devices = devices
        self._user: int | None = None
        for name in UFUNCS:
            setattr(self, name, Ufunc(self, name))
        for name in DTYPES:
            setattr(self, name, getattr(np, name))
        self.lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=self._as_strided))
        self.cuda = SimpleNamespace(
            Device=lambda: SimpleNamespace(synchronize=self._synchronize),
            runtime=SimpleNamespace(
                getDeviceCount=self._device_count,
                setDevice=lambda number: None,
                memGetInfo=lambda: (64 << 30, 80 << 30),
            ),
        )
        self.RawModule = partial(RawModule, self)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the stand-in for cupy has no {name!r}; add it if CuPy has it")

    def _device_count(self) -> int:
        """Return the number of devices that CUDA_VISIBLE_DEVICES leaves."""
        self._use()
        named = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
        return min(len(named) or self.devices, self.devices)

    def _use(self) -> None:
        """Refuse to be used in a process that was forked from one that did, as CUDA does."""
        self._user = os.getpid() if self._user is None else self._user
        if self._user != os.getpid():
            raise RuntimeError("cudaErrorInitializationError: initialization error")

    def owns(self, x: Any) -> TypeGuard[DeviceArray]:
        """Return True for an array of this device."""
        return isinstance(x, DeviceArray) and x.device is self

    def made(self, name: str, host: Any, launches: int = 1) -> DeviceArray:
        """Return an array of new memory, which ``launches`` of a function fill."""
        self._use()
        host = np.asarray(host)
        self.counter.launch(name, launches if host.size else 0)
        return DeviceArray(self, host, Memory(self, host.nbytes))

    def function(self, name: str, *given: Any, out: Any = None, dtype: Any = None) -> DeviceArray:
        """Return an elementwise function of arrays of the device and numbers.

        Raises:
            TypeError: if something else is given, such as an array of the host.
        """
        operands = [self._operand(x) for x in given]
        if out is not None and not self.owns(out):
            raise TypeError(f"out must be an array of the device, not {type(out)}")
        if dtype is not None:
            supported(dtype)
        if name in SHIFTS:
            self._refuse_wide(*operands)
        function = getattr(np, name)
        with np.errstate(all="ignore"):
            if out is not None:
                self.counter.launch(name, int(out.size > 0))
                function(*operands, out=out.host, dtype=dtype)
                return out
            return self.made(name, np.asarray(function(*operands, dtype=dtype), order="C"))

    def _refuse_wide(self, shifted: Any, places: Any) -> None:
        """Raise UndefinedError for a shift by less than 0, or by all of the bits or more."""
        width = 8 * np.asarray(shifted).itemsize
        if not ((np.asarray(places) >= 0) & (np.asarray(places) < width)).all():
            raise UndefinedError(f"numbers of {width} bits are shifted by other places than those")

    def _operand(self, x: Any) -> Any:
        if self.owns(x):
            return x.host
        if type(x) is int and not -(1 << 63) <= x < 1 << 64:
            raise OverflowError(f"the integer {x} has more than 64 bits")
        if type(x) in (bool, int, float, complex) or isinstance(x, np.generic):
            return x
        raise TypeError(f"Unsupported type {type(x)}")

    def _synchronize(self) -> None:
        self.counter.synchronisations += 1

    # --- making arrays
    def asarray(
        self, a: Any, dtype: Any = None, order: None = None, *, copy: None = None
    ) -> DeviceArray:
        """Return an array of the device, with a transfer if ``a`` is on the host."""
        if self.owns(a):
            return a if dtype is None else a.astype(dtype, copy=False)
        host = np.array(a, dtype=dtype, order="C")
        supported(host.dtype)
        if host.ndim:
            self.counter.to_device(host.nbytes)
        return self.made("fill", host, 0 if host.ndim else 1)

    def ascontiguousarray(self, a: DeviceArray, dtype: Any = None) -> DeviceArray:
        wanted = a.dtype if dtype is None else supported(dtype)
        if a.host.flags.c_contiguous and wanted == a.dtype:
            return a
        return self.made("copy", np.array(a.host, dtype=wanted, order="C"))

    def asnumpy(self, a: Any, stream: None = None, order: str = "C", out: None = None) -> Any:
        return a.get() if self.owns(a) else np.asarray(a, order="C")

    def empty(self, shape: Any, dtype: Any = float, order: str = "C") -> DeviceArray:
        """Return an array of numbers that nobody would use."""
        wanted = supported(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * wanted.itemsize
        host = np.frombuffer(bytearray(b"\xa5" * size), dtype=wanted).reshape(shape)
        return self.made("empty", host, 0)

    def zeros(self, shape: Any, dtype: Any = float, order: str = "C") -> DeviceArray:
        return self.made("fill", np.zeros(shape, supported(dtype)))

    def ones(self, shape: Any, dtype: Any = float, order: str = "C") -> DeviceArray:
        return self.made("fill", np.ones(shape, supported(dtype)))

    def full(self, shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> DeviceArray:
        value = self._operand(fill_value)
        wanted = np.array(fill_value).dtype if dtype is None else supported(dtype)
        return self.made("fill", np.full(shape, value, wanted))

    def zeros_like(self, a: DeviceArray, dtype: Any = None) -> DeviceArray:
        return self.zeros(a.shape, a.dtype if dtype is None else dtype)

    def ones_like(self, a: DeviceArray, dtype: Any = None) -> DeviceArray:
        return self.ones(a.shape, a.dtype if dtype is None else dtype)

    def arange(self, start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> DeviceArray:
        first, last = (0, start) if stop is None else (start, stop)
        return self.made("arange", np.arange(first, last, step, dtype=dtype))

    # --- moving elements
    def broadcast_to(self, array: DeviceArray, shape: Sequence[int]) -> DeviceArray:
        self._mine(array)
        return array.as_view(np.broadcast_to(array.host, shape))

    def concatenate(self, tup: Sequence[DeviceArray], axis: int | None = 0) -> DeviceArray:
        for each in tup:
            self._mine(each)
        self.counter.sent += 3 * (len(tup) > _MOST)
        return self.made(
            "concatenate",
            np.concatenate([each.host for each in tup], axis=axis),
            len(tup) if len(tup) <= _MOST else 1,
        )

    def expand_dims(self, a: DeviceArray, axis: int) -> DeviceArray:
        self._mine(a)
        return a.as_view(np.expand_dims(a.host, axis))

    def moveaxis(self, a: DeviceArray, source: int, destination: int) -> DeviceArray:
        self._mine(a)
        return a.as_view(np.moveaxis(a.host, source, destination))

    def repeat(self, a: DeviceArray, repeats: Any, axis: int | None = None) -> DeviceArray:
        self._mine(a)
        return a.repeat(repeats, axis)

    def take_along_axis(self, a: DeviceArray, indices: DeviceArray, axis: int) -> DeviceArray:
        """Return elements by their places along an axis, with one wide index for all axes."""
        if indices.dtype.kind not in "iu":
            raise IndexError("`indices` must be an integer array")
        if a.ndim != indices.ndim:
            raise ValueError("`indices` and `a` must have the same number of dimensions")
        sizes = [(-1 if i == place else 1) for place in range(a.ndim) for i in range(a.ndim)]
        shapes = [sizes[i : i + a.ndim] for i in range(0, len(sizes), a.ndim)]
        places = [self.arange(n).reshape(s) for n, s in zip(a.shape, shapes, strict=True)]
        places[axis] = indices
        return a[tuple(places)]

    def _as_strided(
        self, x: DeviceArray, shape: Sequence[int] | None = None, strides: Any = None
    ) -> DeviceArray:
        self._mine(x)
        return x.as_view(np.lib.stride_tricks.as_strided(x.host, shape, strides))

    # --- choosing
    def where(self, condition: Any, x: Any = None, y: Any = None) -> Any:
        """Return elements of x or y; the condition must have ``astype``, which bool has not."""
        if x is None or y is None:
            raise ValueError("Must provide both 'x' and 'y' or neither.")
        holds = self._operand(condition.astype("?", copy=False))
        first, second = self._operand(x), self._operand(y)
        return self.made("where", np.asarray(np.where(holds, first, second), order="C"))

    def nonzero(self, a: DeviceArray) -> tuple[DeviceArray, ...]:
        self._mine(a)
        return a.nonzero()

    def clip(self, a: DeviceArray, a_min: Any, a_max: Any, out: None = None) -> DeviceArray:
        self._mine(a)
        return self.made("clip", np.clip(a.host, self._operand(a_min), self._operand(a_max)))

    def argsort(self, a: DeviceArray, axis: int = -1, kind: str | None = None) -> DeviceArray:
        self._mine(a)
        return a.argsort(axis=axis, kind=kind)

    def searchsorted(
        self, a: DeviceArray, v: Any, side: str = "left", sorter: None = None
    ) -> DeviceArray:
        if not self.owns(a) or not self.owns(v):
            raise NotImplementedError("Only int or ndarray are supported for a")
        return self.made("searchsorted", np.searchsorted(a.host, v.host))

    def unique(
        self,
        ar: DeviceArray,
        return_index: bool = False,
        return_inverse: bool = False,
        return_counts: bool = False,
        axis: None = None,
        *,
        equal_nan: bool = True,
    ) -> Any:
        """Return different elements in their order; waits for their number."""
        self._mine(ar)
        if return_index or return_counts or axis is not None:
            raise NotImplementedError("the stand-in has return_inverse alone")
        found, inverse = np.unique(ar.host.reshape(-1), return_inverse=True)
        self.counter.launch("unique", 10)
        self.counter.to_host(4)
        different = self.made("unique", found)
        if not return_inverse:
            return different
        return different, self.made("unique", inverse.reshape(ar.shape), 4)

    def matmul(self, a: Any, b: Any) -> DeviceArray:
        return matmul(a, b)

    def _mine(self, array: Any) -> None:
        if not self.owns(array):
            raise TypeError(f"{type(array)} is no array of the device")
