"""Modular primitives against Python's integers, at residues chosen to break them."""

import galois
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitcheck.algebra.residues.chains import Chain, chains_of
from pitcheck.algebra.residues.modular import Modular

CHAIN = chains_of(4)[0]
M = Modular(np, CHAIN)


def adversarial(chain: Chain, count: int, seed: int) -> np.ndarray:
    """Return residues of shape (levels, 1, 1, count).

    They are 0, 1, p-1, the halves, powers of two and random ones.
    """
    generator = np.random.default_rng(seed)
    rows = []
    for p in chain.primes:
        special = [
            0,
            1,
            2,
            p - 1,
            p - 2,
            p // 2,
            p // 2 + 1,
            1 << 15,
            (1 << 15) - 1,
            1 << 16,
            (1 << 16) - 1,
            p >> 16 << 16,
            (p >> 16 << 16) - 1,
        ]
        values = [v % p for v in special] + list(generator.integers(0, p, count))
        rows.append([values[i] for i in generator.permutation(len(values))[:count]])
    return np.array(rows, dtype=np.int64).reshape(len(chain), 1, 1, count)


def python(operation, low: int, *arrays: np.ndarray) -> np.ndarray:
    result = np.empty(arrays[0].shape, dtype=np.int64)
    for index in np.ndindex(*result.shape):
        p = CHAIN.primes[low + index[0]]
        result[index] = operation(p, *(int(a[index]) for a in arrays)) % p
    return result


@given(st.integers(0, 2**32), st.integers(0, 3))
def test_ring_operations(seed: int, low: int) -> None:
    a, b = adversarial(CHAIN, 40, seed)[low:], adversarial(CHAIN, 40, seed + 1)[low:]
    for operation, oracle in [
        (M.add, lambda p, x, y: x + y),
        (M.subtract, lambda p, x, y: x - y),
        (M.multiply, lambda p, x, y: x * y),
    ]:
        assert np.array_equal(operation(a, b, low), python(oracle, low, a, b))
    assert np.array_equal(M.negate(a, low), python(lambda p, x: -x, low, a))
    nonzero = np.where(a == 0, 1, a)
    assert np.array_equal(M.inverse(nonzero, low), python(lambda p, x: pow(x, -1, p), low, nonzero))
    assert np.array_equal(M.root(a, low), python(lambda p, x: pow(x, (p + 1) // 4, p), low, a))
    for n in (0, 1, 2, 3, 7, 100):
        assert np.array_equal(M.power(a, n, low), python(lambda p, x, n=n: pow(x, n, p), low, a))


def test_operands_are_left_alone() -> None:
    a, b = adversarial(CHAIN, 12, 1), adversarial(CHAIN, 12, 2)
    kept = a.copy(), b.copy()
    for operation in (M.add, M.subtract, M.multiply):
        operation(a, b, 0)
    for one in (M.negate, M.root):
        one(a, 0)
    M.inverse(np.where(a == 0, 1, a), 0)
    M.sum(a, (3,), 0)
    M.matmul(a.reshape(4, 1, 1, 3, 4), b.reshape(4, 1, 1, 4, 3), 0)
    assert np.array_equal(a, kept[0]) and np.array_equal(b, kept[1])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 31, 64, 100])
def test_inverse_of_any_number_of_elements(size: int) -> None:
    a = np.maximum(adversarial(CHAIN, 100, size)[..., :size], 1)
    assert np.array_equal(M.multiply(a, M.inverse(a, 0), 0), np.ones_like(a))


def test_galois_agrees_on_products_and_inverses() -> None:
    a, b = np.maximum(adversarial(CHAIN, 12, 5), 1), adversarial(CHAIN, 12, 6)
    for level, p in enumerate(CHAIN.primes):
        field = galois.GF(p)
        x, y = field(a[level, 0, 0]), field(b[level, 0, 0])
        assert np.array_equal(np.asarray(x * y), M.multiply(a, b, 0)[level, 0, 0])
        assert np.array_equal(np.asarray(field(1) / x), M.inverse(a, 0)[level, 0, 0])


def exact_product(a: np.ndarray, b: np.ndarray, low: int) -> np.ndarray:
    full = a.astype(object) @ b.astype(object)
    return np.stack(
        [(level % CHAIN.primes[low + i]).astype(np.int64) for i, level in enumerate(full)]
    )


@pytest.mark.parametrize(
    "terms", [0, 1, 2, 4, 7, 8, 9, 63, 64, 65, 191, 192, 193, 255, 256, 384, 385, 1000]
)
@pytest.mark.parametrize("fill", ["top", "half", "past half", "low bits", "mixed"])
def test_matrix_products_are_exact(terms: int, fill: str) -> None:
    def matrix(shape: tuple[int, ...], seed: int) -> np.ndarray:
        generator = np.random.default_rng(seed)
        rows = []
        for p in CHAIN.primes:
            pool = {
                "top": [p - 1],
                "half": [p // 2],
                "past half": [p // 2 + 1],
                "low bits": [(p // 2 >> 16 << 16) - (1 << 15) - 1, (1 << 15)],
            }.get(fill)
            pool = pool or [
                0,
                1,
                p - 1,
                p // 2,
                p // 2 + 1,
                1 << 15,
                p >> 1,
                int(generator.integers(p)),
            ]
            rows.append(generator.choice(np.array(pool, dtype=np.int64) % p, size=shape))
        return np.stack(rows)

    a, b = matrix((1, 1, 3, terms), 1), matrix((1, 1, terms, 2), 2)
    assert np.array_equal(M.matmul(a, b, 0), exact_product(a, b, 0))


def test_matrix_products_broadcast_over_trials_and_instances() -> None:
    generator = np.random.default_rng(3)
    p = min(CHAIN.primes)
    for terms in (3, 20):
        a = generator.integers(0, p, (4, 3, 1, 2, 5, terms))
        b = generator.integers(0, p, (4, 1, 2, 1, terms, 4))
        assert np.array_equal(M.matmul(a, b, 0), exact_product(a, b, 0))


@given(st.integers(1, 40), st.integers(0, 1000))
def test_products_and_sums_along_an_axis(size: int, seed: int) -> None:
    a = adversarial(CHAIN, 40, seed)[..., :size].reshape(4, 1, 1, size, 1)
    product = [
        [int(np.prod(level.astype(object))) % p] for level, p in zip(a, CHAIN.primes, strict=True)
    ]
    assert M.product(a, 3, 0).reshape(4, 1).tolist() == product
    total = [
        [int(np.sum(level.astype(object))) % p] for level, p in zip(a, CHAIN.primes, strict=True)
    ]
    assert M.sum(a, (3,), 0).reshape(4, 1).tolist() == total


def test_tiny_primes() -> None:
    chain = Chain((11, 23, 47))
    tiny = Modular(np, chain)
    for level, p in enumerate(chain.primes):
        x, y = (g.reshape(1, 1, 1, -1) for g in np.meshgrid(np.arange(p), np.arange(p)))
        assert np.array_equal(tiny.add(x, y, level), (x + y) % p)
        assert np.array_equal(tiny.subtract(x, y, level), (x - y) % p)
        assert np.array_equal(tiny.multiply(x, y, level), (x * y) % p)
