"""Shapes and numbers chosen to fool the kernels, against Python's integers.

New arrays are filled with numbers that are no residues: what a kernel does not write shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels.host_cupy import HostCupy

from kernels import host_kernels
from pitcheck.algebra.device.device_modular import DeviceModular
from pitcheck.algebra.device.int8_products import Int8Product
from pitcheck.algebra.device.kernels import Kernels
from pitcheck.algebra.device.products import DeviceProduct
from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.modular import Modular

pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason=host_kernels.MISSING)

Array = np.ndarray[Any, Any]

CHAIN = Chain((2147483647, 3, 2147483629), linked=False)
POISON = -123_456_789


class Poisoned(HostCupy):
    """The stand-in, whose new arrays hold numbers that are no residues."""

    @staticmethod
    def empty(shape: Any, dtype: Any = np.float64) -> Array:
        """Return an array of the number that nothing may leave in place."""
        made = np.empty(shape, dtype=dtype)
        made.fill(POISON if made.dtype.kind in "if" and made.itemsize > 1 else 77)
        return made


XP = Poisoned()
DEVICE = DeviceModular(XP, CHAIN)


def numbers(shape: tuple[int, ...], seed: int, levels: int = 3) -> Array:
    """Return residues, many of them 0, 1 or p - 1."""
    drawn = np.random.default_rng(seed)
    rows = [
        np.where(
            drawn.random(shape) < 0.6,
            drawn.choice(np.array([0, 1, p - 1, p // 2]), shape),
            drawn.integers(0, p, shape),
        )
        for p in CHAIN.primes[:levels]
    ]
    return np.stack(rows).astype(np.int64)


def exact(array: Array) -> Array:
    """Return the same numbers as Python's integers."""
    return array.astype(object)


def modulo(array: Array) -> Array:
    """Return Python's integers modulo the primes of their levels."""
    primes = np.array(CHAIN.primes[: array.shape[0]], dtype=object)
    result: Array = array % primes.reshape(-1, *(1,) * (array.ndim - 1))
    return result


SHAPES: list[tuple[int, ...]] = [
    (1, 1),
    (1, 1, 1),
    (2, 1, 0),
    (0, 1, 3),
    (2, 3, 1, 5),
    (2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2),
    (1, 1, 2, 3, 2, 2, 1, 2, 2, 2, 2, 3),
]


def turned(array: Array, seed: int) -> Array:
    """Return a view of the same shape whose strides are negative, or 0, or of another order."""
    kind = seed % 4
    inner = tuple(range(1, array.ndim))
    if kind == 0:
        return np.ascontiguousarray(array[:, ..., ::-1])[:, ..., ::-1]
    if kind == 1:
        back = np.ascontiguousarray(array.transpose(0, *inner[::-1]))
        return back.transpose(0, *inner[::-1])
    if kind == 2:
        wide = np.zeros((array.shape[0], array[0].size * 2 + 1), dtype=np.int64)
        odd = wide[:, 1::2]
        odd[:] = array.reshape(array.shape[0], -1)
        return odd.reshape(array.shape)
    held = np.zeros(array.size + 1, dtype=np.int64)
    held[1:] = array.reshape(-1)
    return held[1:].reshape(array.shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_elementwise_operations_at_any_strides(shape: tuple[int, ...]) -> None:
    for seed in range(4):
        a, b = turned(numbers(shape, seed), seed), turned(numbers(shape, seed + 9), seed + 1)
        first = np.broadcast_to(b[:, :1], b.shape) if shape[0] else b
        for other in (b, first, a):
            assert (DEVICE.add(a, other, 0) == modulo(exact(a) + exact(other))).all()
            assert (DEVICE.subtract(a, other, 0) == modulo(exact(a) - exact(other))).all()
            assert (DEVICE.multiply(a, other, 0) == modulo(exact(a) * exact(other))).all()
            assert (DEVICE.equal(a, other) == (a == other).all(axis=0, keepdims=True)).all()
        assert (DEVICE.negate(a, 0) == modulo(-exact(a))).all()
        inverse, zero = DEVICE.inverse_or_one(a, 0)
        assert (zero is not None) == bool((a == 0).any())
        ones = modulo(exact(inverse) * np.where(a == 0, 1, exact(a)))
        assert (ones == np.ones_like(a)).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_along_any_axes(shape: tuple[int, ...]) -> None:
    for seed in range(4):
        a, b = turned(numbers(shape, seed), seed), turned(numbers(shape, seed + 9), seed + 1)
        every = tuple(range(1, len(shape) + 1))
        for axes in (every[-1:], every[::2], every):
            assert (DEVICE.sum(a, axes, 0) == modulo(exact(a).sum(axis=axes))).all()
            products = modulo((exact(a) * exact(b)).sum(axis=axes))
            assert (DEVICE.sum_of_products(a, b, axes, 0) == products).all()
        product = exact(a).prod(axis=len(shape))
        assert (DEVICE.product(a, len(shape), 0) == modulo(product)).all()


def test_the_least_and_the_greatest_integers_are_reduced() -> None:
    low, high = -(1 << 63), (1 << 63) - 1
    given = np.array([[low, high, low + 1, -1, 0, 1 << 62, -(1 << 62), low // 2 - 1]] * 3)
    given = given.reshape(3, 1, 1, 8)
    assert (DEVICE.reduce(given, 0) == modulo(exact(given))).all()
    assert (DEVICE.embed(given[:1], 0, 3) == modulo(exact(given))).all()


SIZES = [
    *[(m, k, n) for m in (1, 16, 17) for k in (1, 17, 64) for n in (1, 16, 64)],
    *[(0, 3, 2), (2, 0, 3), (3, 2, 0), (65, 1, 1), (1, 65, 1), (1, 1, 65), (2, 66, 3)],
    *[(3, 351, 2), (2, 352, 3), (2, 353, 2), (1, 704, 1), (1, 705, 2)],
]


@pytest.mark.parametrize("kind", ["batch", "shared right", "shared left", "one level"])
def test_products_of_any_sizes(kind: str) -> None:
    for m, k, n in SIZES:
        batch = 2 if m * k * n < 5000 else 1
        left, right = (1 if kind == name else batch for name in ("shared left", "shared right"))
        a, b = numbers((left, 1, m, k), m + k), numbers((right, 1, k, n), n + k)
        if kind == "one level":
            a = a[1:2]
        a = np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)
        b = np.ascontiguousarray(b[..., ::-1])[..., ::-1]
        expected = modulo(exact(a) @ exact(b)) if k else np.zeros((3, batch, 1, m, n), np.int64)
        found = DEVICE.matmul(a, b, 0)
        assert found.shape == expected.shape, (m, k, n)
        assert (found == expected).all(), (m, k, n)


def _gemm(a: Array, first: int, b: Array, second: int, out: Array, sizes: Any) -> None:
    rows, columns, terms, length = sizes
    left, right = (x.reshape(-1)[at:].view(np.int8) for x, at in ((a, first), (b, second)))
    for row in range(rows):
        for column in range(columns):
            x, y = left[row * length :][:terms], right[column * length :][:terms]
            out[row, column] = int(x.astype(np.int64) @ y.astype(np.int64))


@pytest.mark.parametrize("kind", ["batch", "shared right", "one level left", "one level right"])
def test_the_largest_products_are_those_of_integers(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a level axis of one stands for all levels, as in other operations."""
    from pitcheck.algebra.device import products  # noqa: PLC0415  the module whose limit is changed

    monkeypatch.setattr(products, "LARGE", 1)
    made = DeviceProduct(Kernels(XP), 1 << 14)
    made._int8 = Int8Product(made.kernels, _gemm, workspace=4 * 7 * 16 * 16)
    for m, k, n in [(65, 2, 3), (1, 66, 2), (17, 16, 65), (2, 353, 1)]:
        a, b = numbers((2, 1, m, k), m), numbers((1 if kind == "shared right" else 2, 1, k, n), n)
        a = a[1:2] if kind == "one level left" else a
        b = b[1:2] if kind == "one level right" else b
        expected = modulo(exact(a) @ exact(b))
        assert (made(a, b, DEVICE.structs[0]) == expected).all(), (m, k, n)


@pytest.mark.parametrize("count", [0, 1, 3, 40])
@pytest.mark.parametrize("axis", [3, 4])
def test_sums_at_repeated_or_no_places(count: int, axis: int) -> None:
    drawn = np.random.default_rng(count)
    base = numbers((2, 1, 4, 5), 1)
    shape = [2, 1, 4, 5]
    shape[axis - 1] = count
    source = turned(numbers(tuple(shape), 2), 0)
    index = drawn.integers(0, base.shape[axis], shape)[None]
    index[..., : count // 2] = 0
    expected = exact(base)
    for place in np.ndindex(*source.shape):
        to = list(place)
        to[axis] = int(index[(0, *place[1:])])
        expected[tuple(to)] += int(source[place])
    assert (DEVICE.add_at(base.copy(), axis, index, source, 0) == modulo(expected)).all()


@pytest.mark.parametrize("members", [1, 2, 7])
def test_hashes_and_draws_over_chains_of_any_length(members: int) -> None:
    primes = (3, 5, 7, 2147483629, 2147483647, 101, 11)[:members]
    chain = Chain(primes, linked=False)
    device, host = DeviceModular(XP, chain), Modular(np, chain)
    trials = (0, 5)
    a = np.stack([np.arange(12).reshape(2, 1, 6) % p for p in primes]).astype(np.int64)
    for arguments in ([a], [a, a[..., ::-1]], [a[:, :1], a, a[..., :1]]):
        found = device.hashed(7, trials, arguments, 0, members)
        assert (found == host.hashed(7, trials, arguments, 0, members)).all()
        assert (device.entries(7, trials, arguments) == host.entries(7, trials, arguments)).all()
    for domain in ("any", "nonzero", "square"):
        for instances, shape in ((1, (0,)), (3, (1,)), (5, (3277,)), (1, (16385,))):
            drawn = device.drawn((1, "k"), trials, instances, shape, domain)
            assert (drawn == host.drawn((1, "k"), trials, instances, shape, domain)).all()
