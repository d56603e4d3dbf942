"""An array that stands for one on a GPU, and refuses what CuPy's array refuses.

It holds a NumPy array and is none: NumPy cannot read it, and it meets no NumPy array in arithmetic.
Rules are those of CuPy 14: :mod:`device.test_strict_cupy` has them as tests.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from device.strict_indexing import Index, UndefinedError, place_of, placed_at, taken

if TYPE_CHECKING:
    from device.strict_cupy import StrictCupy

KINDS = "biufc"
"""The kinds of dtypes that a device computes with."""
NUMPY_ONLY = (
    "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy "
    "array explicitly."
)
COMPARING = ("less", "less_equal", "equal", "not_equal", "greater", "greater_equal")


class Memory:
    """A piece of the device's memory, given back when no array uses it any more."""

    def __init__(self, device: StrictCupy, size: int) -> None:
        self._device = device
        self._size = size
        device.counter.allocate(size)

    def __del__(self) -> None:
        self._device.counter.allocate(-self._size)


class DeviceArray:
    """An array of the stand-in ``device``: ``host`` is its content, ``memory`` what it lies in."""

    __slots__ = ("device", "host", "memory")
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, device: StrictCupy, host: Any, memory: Memory) -> None:
        self.device = device
        self.host = host
        self.memory = memory

    # --- what NumPy asks
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(NUMPY_ONLY)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        """Return what the device's function of that name gives; a host array stops it there."""
        function = getattr(self.device, ufunc.__name__, None)
        if function is None:
            return NotImplemented
        if "out" in named:
            (named["out"],) = named["out"]
        if method != "__call__":
            function = getattr(function, method)
        if ufunc.__name__ in COMPARING:
            inputs = tuple(
                x.item() if isinstance(x, np.ndarray) and x.ndim == 0 else x for x in inputs
            )
        return function(*inputs, **named)

    def __array_function__(self, function: Any, types: Any, given: Any, named: Any) -> Any:
        """Return what the device's function of that name gives, of arrays of the device alone."""
        mine: Any = self.device
        for name in (*function.__module__.split(".")[1:], function.__name__):
            mine = getattr(mine, name, None)
        if mine is None or not all(issubclass(t, DeviceArray) for t in types):
            return NotImplemented
        return mine(*given, **named)

    # --- properties
    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.host.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        found: np.dtype[Any] = self.host.dtype
        return found

    @property
    def ndim(self) -> int:
        return int(self.host.ndim)

    @property
    def size(self) -> int:
        return int(self.host.size)

    @property
    def nbytes(self) -> int:
        return int(self.host.nbytes)

    @property
    def itemsize(self) -> int:
        return int(self.host.itemsize)

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(self.host.strides)

    @property
    def flags(self) -> Any:
        return self.host.flags

    @property
    def T(self) -> DeviceArray:  # noqa: N802  NumPy's name
        return self.transpose()

    # --- to the host
    def get(self) -> Any:
        """Return a copy on the host; waits for the device."""
        self.device.counter.to_host(self.nbytes)
        return np.array(self.host, order="C")

    def item(self) -> Any:
        return self.get().item()

    def tolist(self) -> Any:
        return self.get().tolist()

    def __bool__(self) -> bool:
        if self.size == 0:
            warnings.warn("The truth value of an empty array is ambiguous.", DeprecationWarning, 2)
            return False
        if self.size > 1:
            raise ValueError("The truth value of an array with more than one element is ambiguous.")
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __repr__(self) -> str:
        return f"device {self.get()!r}"

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[DeviceArray]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    # --- elements
    def __getitem__(self, key: Any) -> DeviceArray:
        index: Index = place_of(self.device, key)
        return taken(self, index)

    def __setitem__(self, key: Any, value: Any) -> None:
        placed_at(self, place_of(self.device, key), value)

    def take(self, indices: Any, axis: int | None = None, out: None = None) -> DeviceArray:
        """Return elements along an axis; indices on the host are sent to the device."""
        if isinstance(indices, DeviceArray):
            given = indices.host
        elif np.isscalar(indices):
            given = indices
        else:
            given = np.asarray(indices, dtype=np.int64)
            self.device.counter.to_device(given.nbytes)
        return self.device.made("take", self.host.take(given, axis=axis))

    # --- views
    def as_view(self, host: Any) -> DeviceArray:
        """Return an array in the same memory."""
        return DeviceArray(self.device, host, self.memory)

    def view(self, dtype: Any = None) -> DeviceArray:
        return self.as_view(self.host.view() if dtype is None else self.host.view(np.dtype(dtype)))

    def reshape(self, *shape: Any) -> DeviceArray:
        """Return a view, or a copy where the layout allows no view."""
        wanted = tuple(shape[0]) if len(shape) == 1 and not np.isscalar(shape[0]) else shape
        found = self.host.reshape(wanted)
        if not found.size or np.may_share_memory(found, self.host):
            return self.as_view(found)
        return self.device.made("copy", found)

    def ravel(self) -> DeviceArray:
        return self.reshape(-1)

    def transpose(self, *axes: Any) -> DeviceArray:
        return self.as_view(self.host.transpose(*axes))

    def squeeze(self, axis: Any = None) -> DeviceArray:
        return self.as_view(self.host.squeeze(axis))

    # --- copies
    def copy(self, order: str = "C") -> DeviceArray:
        return self.device.made("copy", np.array(self.host, order="C"))

    def astype(
        self,
        dtype: Any,
        order: str = "K",
        casting: None = None,
        subok: None = None,
        copy: bool = True,
    ) -> DeviceArray:
        """Return a copy in another dtype; itself without ``copy`` if that is its dtype."""
        wanted = supported(dtype)
        if wanted == self.dtype and not copy:
            return self
        if self.dtype.kind == "f" and wanted.kind in "iu":
            refuse_undefined(self.host, wanted)
        with np.errstate(all="ignore"):
            return self.device.made("astype", self.host.astype(wanted, order="K"))

    def fill(self, value: Any) -> None:
        if np.ndim(value):
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        self.device.counter.launch("fill", int(self.size > 0))
        self.host[...] = value.host if isinstance(value, DeviceArray) else value

    def repeat(self, repeats: Any, axis: int | None = None) -> DeviceArray:
        if isinstance(repeats, np.ndarray):
            raise TypeError("'repeats' does not accept numpy.ndarray; convert with cupy.array()")
        return self.device.made("repeat", self.host.repeat(repeats, axis))

    def nonzero(self) -> tuple[DeviceArray, ...]:
        """Return the places of elements that are not 0; waits for their number."""
        if not self.ndim:
            raise ValueError("Calling nonzero on 0d arrays is not allowed.")
        self.device.counter.launch("nonzero", (self.dtype != np.bool_) + 2 if self.size else 0)
        self.device.counter.to_host(4)
        found = self.device.made("nonzero", np.argwhere(self.host))
        return tuple(found.as_view(found.host[:, i]) for i in range(self.ndim))

    # --- reductions
    def _reduced(self, name: str, axis: Any, keepdims: bool, **more: Any) -> DeviceArray:
        with np.errstate(all="ignore"):
            found = getattr(self.host, name)(axis=axis, keepdims=keepdims, **more)
        return self.device.made(name, found)

    def sum(
        self, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False
    ) -> DeviceArray:
        return self._reduced("sum", axis, keepdims, dtype=dtype)

    def any(self, axis: Any = None, out: None = None, keepdims: bool = False) -> DeviceArray:
        return self._reduced("any", axis, keepdims)

    def all(self, axis: Any = None, out: None = None, keepdims: bool = False) -> DeviceArray:
        return self._reduced("all", axis, keepdims)

    def max(self, axis: Any = None, out: None = None, keepdims: bool = False) -> DeviceArray:
        return self._reduced("max", axis, keepdims)

    def min(self, axis: Any = None, out: None = None, keepdims: bool = False) -> DeviceArray:
        return self._reduced("min", axis, keepdims)

    def argmax(
        self, axis: Any = None, out: None = None, dtype: None = None, keepdims: bool = False
    ) -> DeviceArray:
        return self._reduced("argmax", axis, keepdims)

    def argmin(
        self, axis: Any = None, out: None = None, dtype: None = None, keepdims: bool = False
    ) -> DeviceArray:
        return self._reduced("argmin", axis, keepdims)

    def argsort(self, axis: int = -1, kind: str | None = None) -> DeviceArray:
        if kind not in (None, "stable"):
            raise ValueError("kind can only be None or 'stable'")
        self.device.counter.launch("argsort", SORTING if self.size else 0)
        return self.device.made("argsort", np.argsort(self.host, axis=axis, kind="stable"))

    # --- arithmetic
    def __matmul__(self, other: Any) -> DeviceArray:
        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> DeviceArray:
        return matmul(other, self)

    def __neg__(self) -> DeviceArray:
        return self.device.function("negative", self)

    def __abs__(self) -> DeviceArray:
        return self.device.function("absolute", self)

    def __invert__(self) -> DeviceArray:
        return self.device.function("invert", self)


SORTING = 3
"""The launches of a sort beside the copy of its keys, at least."""


def supported(dtype: Any) -> np.dtype[Any]:
    """Return a dtype. Raises ValueError if a device does not compute with it."""
    found: np.dtype[Any] = np.dtype(dtype)
    if found.kind not in KINDS:
        raise ValueError(f"Unsupported dtype {found}")
    return found


def refuse_undefined(numbers: Any, wanted: np.dtype[Any]) -> None:
    """Raise UndefinedError if some real numbers have no integer of a dtype."""
    limits = np.iinfo(wanted)
    if not ((numbers > float(limits.min) - 1) & (numbers < float(limits.max) + 1)).all():
        raise UndefinedError(f"numbers without an integer of {wanted} are cast to it")


def matmul(a: Any, b: Any) -> DeviceArray:
    """Return a product of matrices, of arrays of the device alone."""
    if not isinstance(a, DeviceArray) or not isinstance(b, DeviceArray):
        raise TypeError(f"matmul takes arrays of the device, not {type(a)} and {type(b)}")
    copies = sum(not x.host.flags.c_contiguous or x.dtype.kind == "b" for x in (a, b))
    # Batches that broadcast go through a list of pointers for each operand.
    batches = [prod(x.shape[:-2]) for x in (a, b)]
    a.device.counter.launch("matmul", copies + 2 * (batches[0] != batches[1]))
    with np.errstate(all="ignore"):
        return a.device.made("matmul", np.matmul(a.host, b.host))


def _binary(name: str) -> tuple[Callable[[Any, Any], Any], ...]:
    """Return an operator, the same with its operands exchanged, and the same in place."""

    def forward(self: DeviceArray, other: Any) -> DeviceArray:
        return self.device.function(name, self, other)

    def backward(self: DeviceArray, other: Any) -> DeviceArray:
        return self.device.function(name, other, self)

    def inside(self: DeviceArray, other: Any) -> DeviceArray:
        return self.device.function(name, self, other, out=self)

    return forward, backward, inside


def _compared(name: str) -> Callable[[Any, Any], Any]:
    def compared(self: DeviceArray, other: Any) -> DeviceArray:
        if isinstance(other, np.ndarray) and other.ndim == 0:
            other = other.item()
        return self.device.function(name, self, other)

    return compared


OPERATORS: Sequence[tuple[str, str]] = (
    ("add", "add"),
    ("sub", "subtract"),
    ("mul", "multiply"),
    ("truediv", "divide"),
    ("floordiv", "floor_divide"),
    ("mod", "remainder"),
    ("pow", "power"),
    ("lshift", "left_shift"),
    ("rshift", "right_shift"),
    ("and", "bitwise_and"),
    ("or", "bitwise_or"),
    ("xor", "bitwise_xor"),
)
for _short, _name in OPERATORS:
    for _prefix, _function in zip(("", "r", "i"), _binary(_name), strict=True):
        setattr(DeviceArray, f"__{_prefix}{_short}__", _function)
for _short, _name in zip(("lt", "le", "eq", "ne", "gt", "ge"), COMPARING, strict=True):
    setattr(DeviceArray, f"__{_short}__", _compared(_name))
