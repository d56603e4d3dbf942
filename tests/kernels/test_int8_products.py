"""Products on int8 tensor cores, with kernels on the host and GEMMs of NumPy for cuBLAS's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels.host_cupy import HostCupy

from kernels import host_kernels
from pitcheck.algebra.device import products
from pitcheck.algebra.device.int8_products import DIAGONALS, MOST_TERMS, Int8Product, run
from pitcheck.algebra.device.kernels import kernels_of, primes_struct
from pitcheck.algebra.device.products import DeviceProduct

pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason=host_kernels.MISSING)

Array = np.ndarray[Any, Any]
PRIMES = (2147483647, 3, 1777359359)
XP = HostCupy()


def gemm(
    a: Array, a_place: int, b: Array, b_place: int, out: Array, sizes: tuple[int, int, int, int]
) -> None:
    """Write a @ b^T as cuBLAS does: no sum may leave int32."""
    rows, columns, terms, length = sizes
    left = a.reshape(rows, length)[:, a_place : a_place + terms].astype(np.int64)
    right = b.reshape(columns, length)[:, b_place : b_place + terms].astype(np.int64)
    found = left @ right.T
    assert np.abs(found).max(initial=0) < 1 << 31
    out[...] = found


def product(workspace: int = 1 << 31) -> Int8Product:
    return Int8Product(kernels_of(XP), gemm, workspace)


def exact(a: Array, b: Array) -> Array:
    """Return ``a @ b`` modulo the primes, by Python's integers."""
    levels = [
        x.astype(object) @ y.astype(object) % p for x, y, p in zip(a, b, PRIMES, strict=False)
    ]
    return np.stack(levels).astype(np.int64)


def operands(m: int, k: int, n: int, seed: int) -> tuple[Array, Array]:
    """Return residues at all levels, with rows and columns at the edges of their range."""
    generator = np.random.default_rng(seed)
    left, right = [], []
    for p in PRIMES:
        x, y = generator.integers(0, p, (1, m, k)), generator.integers(0, p, (2, k, n))
        x[:, : m // 2], y[..., : n // 2] = p - 1, p // 2
        x[:, -1:], y[..., -1:] = p // 2 + 1, p // 2 + 1
        left.append(x)
        right.append(y)
    return np.stack(left), np.stack(right)


def test_every_pair_of_digits_is_in_one_diagonal() -> None:
    pairs = [
        (each.first + i, 3 - (each.second + i), diagonal)
        for diagonal in range(DIAGONALS)
        for each in [run(diagonal)]
        for i in range(each.digits)
    ]
    assert sorted((i, j) for i, j, _ in pairs) == [(i, j) for i in range(4) for j in range(4)]
    assert all(i + j == diagonal for i, j, diagonal in pairs)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 5, 7), (16, 16, 16), (17, 33, 40)], ids=str)
def test_products_are_those_of_integers(sizes: tuple[int, int, int]) -> None:
    a, b = operands(*sizes, seed=1)
    assert np.array_equal(product()(a, b, PRIMES), exact(a, b))


def test_more_terms_than_int32_holds_are_taken_in_pieces() -> None:
    a, b = operands(2, MOST_TERMS + 3, 3, seed=2)
    assert np.array_equal(product()(a, b, PRIMES), exact(a, b))


def test_rows_are_taken_in_pieces_that_fit() -> None:
    a, b = operands(50, 20, 9, seed=3)
    assert np.array_equal(product(workspace=1)(a, b, PRIMES), exact(a, b))


def test_transposed_operands_and_empty_ones() -> None:
    a, b = operands(6, 8, 10, seed=4)
    turned = np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)
    assert np.array_equal(product()(turned, b[..., ::-1], PRIMES), exact(a, b)[..., ::-1])
    assert product()(a[:, :, :0], b, PRIMES).shape == (3, 2, 0, 10)


@given(st.integers(1, 20), st.integers(1, 40), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_any_product(m: int, k: int, n: int, seed: int) -> None:
    a, b = operands(m, k, n, seed)
    assert np.array_equal(product()(a, b, PRIMES), exact(a, b))


def test_the_largest_products_are_made_of_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "LARGE", 70 * 80 * 90)
    monkeypatch.setattr(products, "Int8Product", lambda kernels: Int8Product(kernels, gemm))
    XP.launches.clear()
    for terms, used in ((80, True), (79, False)):
        a, b = operands(70, terms, 90, seed=5)
        found = DeviceProduct(kernels_of(XP))(a, b, primes_struct(PRIMES))
        assert np.array_equal(found, exact(a, b))
        assert (XP.launches["join_digits"] > 0) is used
        XP.launches.clear()
