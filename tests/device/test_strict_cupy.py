"""The stand-in for CuPy refuses what CuPy refuses, and counts what a GPU would be asked for."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device.strict_array import DeviceArray
from device.strict_cupy import StrictCupy
from device.strict_indexing import UndefinedError

from kernels import host_kernels

HOST = np.arange(3)


@pytest.fixture
def cupy() -> StrictCupy:
    return StrictCupy()


@pytest.fixture
def x(cupy: StrictCupy) -> DeviceArray:
    return cupy.asarray([[1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize(
    ("error", "use"),
    [
        (TypeError, lambda c, x: np.asarray(x)),
        (TypeError, lambda c, x: np.array([x, x])),
        (TypeError, lambda c, x: x + HOST),
        (TypeError, lambda c, x: HOST + x),
        (TypeError, lambda c, x: x + np.array(1)),
        (TypeError, lambda c, x: x == HOST),
        (TypeError, lambda c, x: np.add(HOST, x)),
        (TypeError, lambda c, x: np.add(x[0], 1, out=HOST.copy())),
        (TypeError, lambda c, x: x @ HOST),
        (TypeError, lambda c, x: np.concatenate([x[0], HOST])),
        (TypeError, lambda c, x: c.concatenate([x[0], HOST])),
        (TypeError, lambda c, x: c.broadcast_to(HOST, (2, 3))),
        (TypeError, lambda c, x: c.where(HOST > 1, x, 0)),
        (TypeError, lambda c, x: c.where(x > 1, x, HOST)),
        (TypeError, lambda c, x: c.add(x, 1, out=HOST)),
        (AttributeError, lambda c, x: c.where(True, x, 0)),
        (AttributeError, lambda c, x: c.where(1, x, 0)),
        (AttributeError, lambda c, x: c.bincount(x)),
        (AttributeError, lambda c, x: x.searchsorted(1)),
        (TypeError, lambda c, x: x.max(initial=0)),
        (TypeError, lambda c, x: x.sum(where=x > 1)),
        (TypeError, lambda c, x: np.median(x)),
        (NotImplementedError, lambda c, x: c.multiply.at(x, (0,), x[0])),
        (TypeError, lambda c, x: c.add.at(x, (0,), x[0])),
        (AttributeError, lambda c, x: c.maximum.accumulate(x)),
        (ValueError, lambda c, x: operator.setitem(x, (slice(None), 0), np.array([1, 2]))),
        (ValueError, lambda c, x: x.fill(HOST)),
        (TypeError, lambda c, x: x[x[0, 0] :]),
        (IndexError, lambda c, x: x[x * 1.0]),
        (TypeError, lambda c, x: range(x[0, 0])),
        (TypeError, lambda c, x: hash(x)),
        (TypeError, lambda c, x: c.repeat(x, HOST)),
        (ValueError, lambda c, x: bool(x)),
        (ValueError, lambda c, x: c.asarray(["a"])),
        (ValueError, lambda c, x: c.asarray([None])),
        (OverflowError, lambda c, x: x + (1 << 64)),
        (TypeError, lambda c, x: x + StrictCupy().asarray(1)),
        (ValueError, lambda c, x: c.argsort(x, kind="quicksort")),
        (UndefinedError, lambda c, x: operator.setitem(x, [0, 0], x)),
        (UndefinedError, lambda c, x: (x * np.nan).astype(np.int64)),
        (UndefinedError, lambda c, x: (x * 1e30).astype(np.int64)),
        (UndefinedError, lambda c, x: x << 64),
        (UndefinedError, lambda c, x: x >> -x),
    ],
)
def test_what_cupy_refuses_is_refused(
    cupy: StrictCupy, x: Any, error: type[Exception], use: Callable[..., Any]
) -> None:
    with pytest.raises(error):
        use(cupy, x)


def test_what_cupy_takes_is_taken(cupy: StrictCupy, x: Any) -> None:
    """Numbers of Python and NumPy, functions of NumPy, and indices on the host."""
    assert (x + 1).tolist() == (1 + x).tolist() == [[2, 3, 4], [5, 6, 7]]
    assert (np.uint8(1) + x).dtype == np.int64
    assert (np.True_ & (x > 2)).dtype == np.bool_
    assert np.exp(x * 0.0).tolist() == [[1.0] * 3] * 2
    assert x[:, np.array([2, 0])].tolist() == [[3, 1], [6, 4]]
    assert x.take(np.array([1]), axis=0).tolist() == [[4, 5, 6]]
    assert np.concatenate([x, x]).shape == (4, 3)
    assert cupy.where(np.True_, x, 0).tolist() == x.tolist()
    assert [int(row.sum()) for row in x] == [6, 15]
    assert cupy.asnumpy(x) is not x.host


def test_types_are_those_of_numpy_two(cupy: StrictCupy, x: Any) -> None:
    small = x.astype(np.uint8)
    assert (small + 1).dtype == np.uint8
    assert (small + np.int64(1)).dtype == np.int64
    assert cupy.where(small > 1, small, np.uint8(3)).dtype == np.uint8
    assert cupy.where(small > 1, -1, 1).dtype == np.int64
    assert small.sum().dtype == np.uint64
    assert (x > 1).sum().dtype == np.int64


def test_what_is_defined_is_done(cupy: StrictCupy, x: Any) -> None:
    x[[0, 0]] = 5
    assert (x * 1.5).astype(np.int64).tolist() == [[7, 7, 7], [6, 7, 9]]
    assert (x >> 63).tolist() == [[0] * 3] * 2
    y = x * 1.0
    y[[0, 0]] = np.nan
    assert cupy.isnan(y).tolist() == [[True] * 3, [False] * 3]


def test_views_launch_nothing(cupy: StrictCupy, x: Any) -> None:
    before = cupy.counter.copy()
    x[None, 1:, ::-1].transpose(2, 0, 1)
    x.reshape(3, 2).view(np.uint64)
    x.T.squeeze()
    cupy.expand_dims(cupy.moveaxis(x, 0, 1), 0)
    cupy.broadcast_to(x, (5, 2, 3))
    cupy.lib.stride_tricks.as_strided(x, (2, 2), (8, 8))
    seen = cupy.counter.since(before)
    assert (seen.launches, seen.sent, seen.fetched, seen.live_bytes) == (0, 0, 0, 0)
    x.T.reshape(-1)
    assert cupy.counter.since(before).by_name == {"copy": 1}


def test_a_view_shares_the_memory(cupy: StrictCupy, x: Any) -> None:
    x[1:][...] = 0
    x.reshape(-1)[0] = 7
    assert x.tolist() == [[7, 2, 3], [0, 0, 0]]


@pytest.mark.parametrize(
    ("use", "launches", "sent", "waits"),
    [
        (lambda c, x: x + 1, 1, 0, 0),
        (lambda c, x: bool((x > 1).any()), 2, 0, 1),
        (lambda c, x: x[0, 0].item(), 0, 0, 1),
        (lambda c, x: x[x > 1], 4, 0, 1),
        (lambda c, x: x.nonzero(), 4, 0, 1),
        (lambda c, x: c.asarray(np.arange(4)), 0, 1, 0),
        (lambda c, x: c.asarray(5), 1, 0, 0),
        (lambda c, x: x[:, [0, 1]], 1, 1, 0),
        (lambda c, x: operator.setitem(x, x > 2, 0), 4, 0, 1),
        (lambda c, x: operator.setitem(x, slice(1), 0), 1, 0, 0),
        (lambda c, x: c.concatenate([x] * 3), 3, 0, 0),
        (lambda c, x: c.concatenate([x] * 9), 1, 3, 0),
        (lambda c, x: c.asnumpy(x), 0, 0, 1),
        (lambda c, x: x[:0] + 1, 0, 0, 0),
    ],
)
def test_costs_are_counted(
    cupy: StrictCupy,
    x: Any,
    use: Callable[..., Any],
    launches: int,
    sent: int,
    waits: int,
) -> None:
    before = cupy.counter.copy()
    use(cupy, x)
    seen = cupy.counter.since(before)
    assert (seen.launches, seen.sent, seen.synchronisations) == (launches, sent, waits)


def test_memory_is_counted(cupy: StrictCupy) -> None:
    large = cupy.zeros(1000, np.uint8)
    view = large[:1]
    small = large[:500].copy()
    del large
    assert cupy.counter.live_bytes == 1500
    del view
    assert cupy.counter.live_bytes == 500
    del small
    assert (cupy.counter.live_bytes, cupy.counter.peak_bytes) == (0, 1500)


KERNEL = """
extern "C" __global__ void twice(const long long *a, long long *out, int size) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += gridDim.x * blockDim.x)
        out[i] = 2 * a[i];
}
"""


@pytest.mark.skipif(host_kernels.COMPILER is None, reason=host_kernels.MISSING)
def test_a_kernel_takes_what_cupy_would_take(cupy: StrictCupy, x: Any) -> None:
    launch: Any = cupy.RawModule(code=KERNEL).get_function("twice")
    out = cupy.empty((2, 3), np.int64)
    launch((1,), (32,), (x, out, np.int32(6)))
    assert out.tolist() == [[2, 4, 6], [8, 10, 12]]
    assert cupy.counter.by_name["twice"] == 1
    for wrong in ((x, out, 6), (x, out, np.int64(6)), (x.host, out, np.int32(6)), (x, out)):
        with pytest.raises(TypeError):
            launch((1,), (32,), wrong)
    with pytest.raises(ValueError, match="contiguous"):
        launch((1,), (32,), (x.T, out, np.int32(6)))
    with pytest.raises(TypeError, match="tuples"):
        launch(1, 32, (x, out, np.int32(6)))
