"""Indices of arrays on a device: views, elements and assignments, with what each of them costs.

An index array on the host is sent to the device, as CuPy does without a word. An assignment from
an array of the host is refused, but for elements that index arrays name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from device.strict_array import DeviceArray
    from device.strict_cupy import StrictCupy


class UndefinedError(Exception):
    """A program does something without a defined result on a GPU, though NumPy gives one."""


@dataclass(frozen=True)
class Index:
    """A NumPy index, and how many of its entries are integer arrays, and boolean ones."""

    key: tuple[Any, ...]
    integers: int
    masks: int


def place_of(device: StrictCupy, key: Any) -> Index:
    """Return the index that a key is, with the arrays of the host in it sent to the device.

    Raises:
        TypeError: if a slice has a bound on the device.
        IndexError: if an array is neither of integers nor boolean.
    """
    entries = [_entry(device, each) for each in (key if isinstance(key, tuple) else (key,))]
    arrays = [each for each in entries if isinstance(each, np.ndarray)]
    if any(each.dtype.kind not in "biu" for each in arrays):
        raise IndexError("arrays used as indices must be of integer or boolean type")
    masks = sum(each.dtype.kind == "b" for each in arrays)
    if not any(each is Ellipsis for each in entries):
        entries.append(Ellipsis)
    return Index(tuple(entries), len(arrays) - masks, masks)


def _entry(device: StrictCupy, entry: Any) -> Any:
    if entry is None or entry is Ellipsis:
        return entry
    if isinstance(entry, slice):
        if any(device.owns(each) for each in (entry.start, entry.stop, entry.step)):
            raise TypeError("a bound of a slice is an array of the device; it must be an integer")
        return entry
    if device.owns(entry):
        return entry.host
    if np.isscalar(entry) and not isinstance(entry, bool | np.bool_):
        return entry
    given = np.asarray(entry)
    device.counter.to_device(given.nbytes)
    return given.astype(np.int32) if isinstance(entry, list | tuple) and not given.size else given


def _cost(array: DeviceArray, index: Index) -> None:
    """Count what is done before elements are moved: scans of masks, and one wide index."""
    counter = array.device.counter
    for _ in range(index.masks):
        counter.launch("mask", 2)
        # The number of elements that a mask names has to be known on the host.
        counter.to_host(4)
    if index.integers + index.masks > 1:
        counter.launch("index", 1 + index.integers + index.masks)


def taken(array: DeviceArray, index: Index) -> DeviceArray:
    """Return the elements at an index: a view, if it has no arrays."""
    found = array.host[index.key]
    if not index.integers and not index.masks:
        return array.as_view(found)
    _cost(array, index)
    return array.device.made("elements", found)


def placed_at(array: DeviceArray, index: Index, value: Any) -> None:
    """Put a value at an index.

    Raises:
        ValueError: if the value is an array of the host, and the index has no arrays.
        TypeError: if the value is neither an array of the device nor a number.
    """
    counter = array.device.counter
    if array.device.owns(value):
        given = value.host
    elif isinstance(value, np.ndarray | list | tuple) and np.ndim(value):
        if not index.integers and not index.masks:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        given = np.asarray(value)
        counter.to_device(given.nbytes)
    elif np.isscalar(value) or isinstance(value, np.ndarray):
        given = value
    else:
        raise TypeError(f"a {type(value)} cannot be put into an array of the device")
    _cost(array, index)
    counter.launch("assign", int(array.size > 0))
    given = np.array(given)
    with np.errstate(all="ignore"):
        array.host[index.key] = given
        if index.integers and not _same(array.host[index.key], given):
            raise UndefinedError("different values are put at one place, in no defined order")


def _same(found: Any, given: Any) -> bool:
    """Return True if what was read back is what was put there; NaN is NaN."""
    expected = np.broadcast_to(given, found.shape).astype(found.dtype)
    return bool(((found == expected) | (found != found)).all())
