"""The arithmetic of a GPU, with its kernels run on the host: the residues of NumPy, bit for bit,
and those of Python's integers at the edges of every range.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels.device_samples import (
    CHAIN,
    DEVICE,
    EXTREMES,
    LOW,
    NUMPY,
    PRIMES,
    XP,
    Array,
    by_integers,
    edges,
    same,
    views,
)

from kernels import host_kernels
from pitcheck.algebra.device.device_modular import DeviceModular
from pitcheck.algebra.device.kernels import MOST_LEVELS, primes_struct, source
from pitcheck.algebra.device.layouts import MOST_AXES
from pitcheck.algebra.device.products import MOST_TERMS
from pitcheck.algebra.device.programs import (
    ADD,
    CONSTANT,
    INVERSE,
    IS_ZERO,
    LOAD,
    LOAD_BOOL,
    MULTIPLY,
    NEGATE,
    POWER,
    REDUCE,
    SELECT,
    SUBTRACT,
    program,
)
from pitcheck.algebra.residues.backend_residues import functions
from pitcheck.algebra.residues.chains import Chain, chains_of
from pitcheck.algebra.residues.exponential import draw_exponents
from pitcheck.algebra.residues.modular import Modular
from pitcheck.errors import UsageError

pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason=host_kernels.MISSING)

BINARY: dict[str, Callable[..., int]] = {
    "add": lambda p, x, y: x + y,
    "subtract": lambda p, x, y: x - y,
    "multiply": lambda p, x, y: x * y,
}


@pytest.mark.parametrize("operation", BINARY)
@pytest.mark.parametrize("low", [0, LOW])
def test_sums_and_products_of_two(operation: str, low: int) -> None:
    first, second = views(1, low), views(2, low)
    for left, a in first.items():
        for right, b in second.items():
            if "one level" in (left, right) and left != right and operation == "multiply":
                continue
            found = getattr(DEVICE, operation)(a, b, low)
            assert same(found, by_integers(BINARY[operation], low, a, b)), (left, right)


@given(st.integers(0, 2**32), st.integers(0, 3), st.integers(0, 70))
def test_random_operands(seed: int, low: int, size: int) -> None:
    a, b = edges((1, 2, size), seed, low), edges((1, 2, size), seed + 1, low)
    for operation, oracle in BINARY.items():
        found = getattr(DEVICE, operation)(a, b, low)
        assert same(found, by_integers(oracle, low, a, b))
    assert same(DEVICE.negate(a, low), by_integers(lambda p, x: -x, low, a))


@st.composite
def pairs_of_views(draw: st.DrawFn) -> list[Array]:
    """Draw two arrays of residues at random strides, which broadcast against each other."""
    rank = draw(st.integers(2, 5))
    full = [4, *(draw(st.integers(1, 4)) for _ in range(rank))]
    found = []
    for seed in draw(st.tuples(st.integers(0, 99), st.integers(0, 99))):
        steps = [1, *(draw(st.sampled_from((1, -1, 2, -3))) for _ in range(rank))]
        kept = [size if draw(st.booleans()) else 1 for size in full[1:]]
        order = draw(st.permutations(range(1, rank + 1)))
        whole = [size * abs(step) for size, step in zip(kept, steps[1:], strict=True)]
        array = edges(tuple(whole[axis - 1] for axis in order), seed)
        array = array.transpose(0, *(order.index(axis) + 1 for axis in range(1, rank + 1)))
        array = array[tuple(slice(None, None, step) for step in steps)]
        repeated = draw(st.booleans())
        found.append(np.broadcast_to(array, full) if repeated else array)
    return found


@given(pairs_of_views(), st.data())
def test_arrays_at_any_strides(arrays: list[Array], data: st.DataObject) -> None:
    a, b = arrays
    for operation in ("add", "multiply"):
        found = getattr(DEVICE, operation)(a, b, 0)
        assert same(found, getattr(NUMPY, operation)(a, b, 0))
    assert same(DEVICE.differ(a, b), NUMPY.differ(a, b))
    axes = data.draw(st.sets(st.integers(1, a.ndim - 1), min_size=1))
    assert same(DEVICE.sum(a, tuple(axes), 0), NUMPY.sum(a, tuple(axes), 0))
    products = (a, b, tuple(axes), 0)
    assert same(DEVICE.sum_of_products(*products), NUMPY.sum_of_products(*products))
    nonzero = np.maximum(a, 1)
    assert same(DEVICE.inverse(nonzero[..., ::-1], 0), NUMPY.inverse(nonzero, 0)[..., ::-1])


def test_shapes_that_do_not_fit_are_refused_as_by_numpy() -> None:
    a, b = edges((1, 1, 3), 1), edges((1, 1, 4), 2)
    for operation in ("add", "multiply", "equal"):
        with pytest.raises(ValueError, match="shape"):
            arguments = (a, b) if operation == "equal" else (a, b, 0)
            getattr(DEVICE, operation)(*arguments)
    with pytest.raises(ValueError, match="product"):
        DEVICE.matmul(a, b, 0)


def test_empty_arrays_and_numbers() -> None:
    for shape in ((4, 2, 0, 3), (4, 1, 1), (4, 0, 1, 1)):
        a = np.zeros(shape, dtype=np.int64)
        assert same(DEVICE.add(a, a, 0), a) and same(DEVICE.negate(a, 0), a)
        assert same(DEVICE.sum(a, (2,), 0), NUMPY.sum(a, (2,), 0))
        assert same(DEVICE.product(a, 2, 0), NUMPY.product(a, 2, 0))
        assert same(DEVICE.equal(a, a), NUMPY.equal(a, a))
        assert same(DEVICE.order_key(a[:1], 0), NUMPY.order_key(a[:1], 0))
        one, found = a + 1, DEVICE.inverse(a + 1, 0)
        assert same(found, one)
    nothing = np.zeros((4, 1, 1, 3, 0), dtype=np.int64)
    found = DEVICE.matmul(nothing, nothing.swapaxes(3, 4), 0)
    assert same(found, np.zeros((4, 1, 1, 3, 3), dtype=np.int64))


def test_any_integer_is_reduced() -> None:
    numbers = np.array(
        EXTREMES
        + [s * k * p + d for p in PRIMES for k in (1, 2**31) for s in (1, -1) for d in (-1, 0, 1)]
    ).reshape(1, 1, 1, -1)
    expected = by_integers(lambda p, x: x, 0, np.repeat(numbers, 4, axis=0))
    assert same(DEVICE.embed(numbers, 0, 4), expected)
    assert same(NUMPY.embed(numbers, 0, 4), expected)
    assert same(DEVICE.embed(numbers, 2, 2), expected[2:])


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, 100, 2**31 - 2, 2**31 - 1, 2**40 + 5])
def test_powers(exponent: int) -> None:
    a = edges((1, 2, 20), exponent % 97)
    expected = by_integers(lambda p, x: pow(x, exponent, p), 0, a)
    assert same(DEVICE.power(a, exponent, 0), expected)


def test_roots_along_chains_and_of_unlinked_primes() -> None:
    for chain in (chains_of(4)[0], chains_of(1)[0]):
        device, modular = DeviceModular(XP, chain), Modular(np, chain)
        a = np.stack([np.random.default_rng(3).integers(0, p, (2, 1, 9)) for p in chain.primes])
        assert same(device.root(a, 0), modular.root(a, 0))
    a = edges((2, 9), 5)[:2]
    assert same(DEVICE.root(a, 0), NUMPY.root(a, 0))


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 63, 1000])
def test_inverses(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for many in (1, 1 << 17):
        monkeypatch.setattr("pitcheck.algebra.device.device_modular._MANY", many)
        a = np.maximum(edges((1, 1, size), size), 1)
        expected = by_integers(lambda p, x: pow(x, -1, p), 0, a)
        assert same(DEVICE.inverse(a, 0), expected)
        found, zero = DEVICE.inverse_or_one(a[..., ::-1], 0)
        assert zero is None and same(found, expected[..., ::-1])
        a[1, 0, 0, size // 2] = 0
        for arithmetic in (DEVICE, NUMPY):
            found, zero = arithmetic.inverse_or_one(a, 0)
            assert same(zero, a == 0)
            assert same(found, np.where(zero, 1, expected))


@pytest.mark.parametrize("axes", [(1,), (3,), (2, 3), (1, 2, 3), (3, 1)])
def test_sums_along_axes(axes: tuple[int, ...]) -> None:
    for name, a in views(4).items():
        expected = by_integers(lambda p, x: x, 0, a.astype(object).sum(axis=axes))
        assert same(DEVICE.sum(a, axes, 0), expected), name
        b = edges((2, 1, 4), 9)
        exact = (a.astype(object) * b).sum(axis=axes)
        found = DEVICE.sum_of_products(a, b, axes, 0)
        if name != "one level":
            assert same(found, by_integers(lambda p, x: x, 0, exact)), name
        assert same(found, NUMPY.sum_of_products(a, b, axes, 0)), name


@pytest.mark.parametrize("count", [1, 128, 129, 5000, 70000])
def test_long_sums_are_made_of_parts(count: int) -> None:
    top = np.broadcast_to(np.array(PRIMES).reshape(4, 1, 1, 1) - 1, (4, 1, 2, count))
    total = by_integers(lambda p, x: -count, 0, top[..., 0])
    assert same(DEVICE.sum(top, (3,), 0), total)
    squares = by_integers(lambda p, x: count, 0, top[..., 0])
    assert same(DEVICE.sum_of_products(top, top, (3,), 0), squares)
    if count < 5000:
        power = by_integers(lambda p, x: (-1) ** count, 0, top[..., 0])
        assert same(DEVICE.product(top, 3, 0), power)


def test_products_along_an_axis() -> None:
    for name, a in views(6).items():
        for axis in (1, 2, 3):
            assert same(DEVICE.product(a, axis, 0), NUMPY.product(a, axis, 0)), name


def test_additions_at_places() -> None:
    generator = np.random.default_rng(8)
    for axis in (3, 4):
        base = edges((2, 3, 5, 6), 1)
        shape = [4, 2, 3, 5, 6]
        shape[axis] = 40
        source = edges(tuple(shape[1:]), 2)
        of_index = [1, 2, 1, 1, 1]
        of_index[axis] = 40
        index = generator.integers(0, base.shape[axis], of_index)
        for added in (source, np.broadcast_to(source[:, :1], source.shape)):
            expected = NUMPY.add_at(base.copy(), axis, index, added, 0)
            assert same(DEVICE.add_at(base.copy(), axis, index, added, 0), expected)


@pytest.mark.parametrize("terms", [1, 2, 3, 63, 64, 65, 352, 353, 704, 1000])
def test_matrix_products(terms: int) -> None:
    for rows, columns in ((1, 1), (3, 2), (4, 5)):
        for fill in (lambda p: p - 1, lambda p: p // 2, lambda p: p // 2 + 1, None):
            a, b = edges((2, 1, rows, terms), 1), edges((1, 3, terms, columns), 2)
            if fill is not None:
                a[:], b[:] = (np.array([fill(p) for p in PRIMES]).reshape(4, 1, 1, 1, 1),) * 2
            exact = a.astype(object) @ b.astype(object)
            assert same(DEVICE.matmul(a, b, 0), by_integers(lambda p, x: x, 0, exact))


def test_a_chunk_of_the_longest_sums_is_exact_in_any_order() -> None:
    p = 2147483647
    half, low = (p - 1) // 2, 23170
    worst = 23170 * 46340 + low  # the largest high part beside the largest low part, below half
    assert worst <= half and 352 * 23171 * half < 2**53
    a = np.full((1, 1, 1, 2, 352), worst)
    b = np.full((1, 1, 1, 352, 70), half)
    device = DeviceModular(XP, Chain((p,), linked=False))
    assert np.all(device.matmul(a, b, 0) == 352 * worst * half % p)


def test_the_constants_of_the_kernel_keep_sums_exact() -> None:
    found = re.search(r"#define BASE (\d+)", source())
    base, half = int(found[1]) if found else 0, 2**30 - 1
    assert max(base // 2, (half + base // 2) // base) * half * MOST_TERMS <= 2**53


@pytest.mark.parametrize("chunks", [1, 511, 512, 513, 2600])
@pytest.mark.parametrize("sign", [1, -1])
def test_any_number_of_chunks_is_joined(chunks: int, sign: int) -> None:
    largest = 352 * 23171 * (2**30 - 1)
    products = np.full((1, chunks, 2, 3), float(sign * largest))
    products[:, :, 1] -= sign * 5
    out = np.zeros((1, 3), dtype=np.int64)
    sizes = map(np.uint64, (0, 1, 1, chunks, 3, 3, 3, 3))
    join = host_kernels.kernel("join_products")
    join((1,), (2,), (products, out, primes_struct(PRIMES), *sizes))
    total = sign * chunks * (largest * 46340 + largest - 5)
    assert out.tolist() == [[total % PRIMES[0]] * 3]


@pytest.mark.parametrize("length", [2, 3, 4])
def test_exponentials_at_the_edges(length: int) -> None:
    chain, trials = chains_of(length)[0], (0, 3)
    modular = functions(XP, chain, 5, trials)
    bases = [
        [pow(4, r, p) for r in row]
        for row, p in zip(draw_exponents(chain.primes, 5, trials), chain.primes[1:], strict=True)
    ]
    for low in range(length - 1):
        primes = chain.primes[low : length - 1]
        x = np.array([[0, 1, 2047, 2048, (1 << 21) - 1, p - 1, p // 2] for p in primes])
        x = x.reshape(len(primes), 1, 1, 7)
        found = modular.exp(x[..., ::-1], low)[..., ::-1]
        for place in np.ndindex(len(primes), 2, 1, 7):
            base, p = bases[low + place[0]][place[1]], chain.primes[low + place[0] + 1]
            assert found[place] == pow(base, int(x[place[0], 0, 0, place[3]]), p)


def test_large_products_in_pieces() -> None:
    device = DeviceModular(XP, CHAIN)
    a, b = edges((2, 3, 9, 90), 1), edges((1, 3, 90, 12), 2)
    exact = by_integers(lambda p, x: x, 0, a.astype(object) @ b.astype(object))
    one = b[:, :, :1]
    shared = by_integers(lambda p, x: x, 0, a.astype(object) @ one.astype(object))
    for workspace in (1, 15_000, 40_000, 1 << 20):
        device.device_product.workspace = workspace
        assert same(device.matmul(a, b, 0), exact)
        assert same(device.matmul(a[..., ::-1, :], b, 0), exact[..., ::-1, :])
        assert same(device.matmul(a, one, 0), shared)


def _turned(a: Array) -> Array:
    """Return the same matrices with columns one after the other in memory."""
    return a.swapaxes(3, 4).copy().swapaxes(3, 4)


def test_matrices_at_any_strides() -> None:
    for size in (5, 66):
        a, b = edges((1, 2, 4, size), 1), edges((2, 1, size, 3), 2)
        for x in (a, _turned(a), a[..., ::-1, :], np.broadcast_to(a[..., :1, :], a.shape)):
            for y in (b, _turned(b), b[..., ::-1], np.broadcast_to(b[..., :1], b.shape)):
                exact = x.astype(object) @ y.astype(object)
                assert same(DEVICE.matmul(x, y, 0), by_integers(lambda p, v: v, 0, exact))


def test_a_program_of_every_instruction() -> None:
    a, b, held = (
        edges((2, 1, 6), 1),
        edges((2, 1, 6), 2),
        np.arange(12).reshape(1, 2, 1, 6) % 3 == 0,
    )
    far = np.broadcast_to(np.array(EXTREMES[-6:]), (4, 1, 1, 6))
    steps = (
        (LOAD_BOOL, 3),
        (LOAD, 0),
        (LOAD, 1),
        (MULTIPLY, 0),
        (CONSTANT, 0),
        (ADD, 0),
        (LOAD, 2),
        (REDUCE, 0),
        (NEGATE, 0),
        (POWER, 1),
        (LOAD, 0),
        (INVERSE, 0),
        (SUBTRACT, 0),
        (SELECT, 0),
        (LOAD, 1),
        (IS_ZERO, 0),
        (ADD, 0),
    )

    def oracle(p: int, x: int, y: int, z: int, chosen: int) -> int:
        inverse = pow(x, -1, p) if x else 0
        return (x * y + 1 if chosen else pow(-z, 3, p) - inverse) + (y == 0)

    found = DEVICE.evaluate(steps, (a, b, far, held), 0, ((1,) * 4, (3,) * 4))
    assert same(found, by_integers(oracle, 0, a, b, far, held))


@pytest.mark.parametrize(
    "steps",
    [
        (),
        ((ADD, 0),),
        ((LOAD, 0), (LOAD, 0)),
        ((LOAD, 0),) * 7 + ((ADD, 0),) * 6,
        ((LOAD, 0), *((NEGATE, 0),) * 30),
    ],
)
def test_a_wrong_program_is_refused(steps: Any) -> None:
    with pytest.raises(ValueError, match="a program"):
        program(steps)


def test_more_axes_than_a_kernel_follows_are_copied() -> None:
    rank = MOST_AXES + 3
    shape = (4, *(2,) * rank)
    a = edges(shape[1:], 1).transpose(0, *range(rank, 0, -1))
    b = edges((2, 1) * (rank // 2) + (2,) * (rank % 2), 2)
    assert same(DEVICE.multiply(a, b, 0), NUMPY.multiply(a, b, 0))
    assert same(DEVICE.sum(a, (2, 4), 0), NUMPY.sum(a, (2, 4), 0))
    assert same(DEVICE.equal(a, b), NUMPY.equal(a, b))
    options = (5, (0, 1), [a], 0, 4)
    assert same(DEVICE.hashed(*options), NUMPY.hashed(*options))


def test_a_chain_longer_than_kernels_allow_is_refused() -> None:
    with pytest.raises(UsageError, match="17 primes is too long"):
        primes_struct([3] * (MOST_LEVELS + 1))


def test_operands_are_left_alone() -> None:
    a = edges((2, 3, 4), 1)
    kept = a.copy()
    DEVICE.reduce(a, 0)
    DEVICE.inverse_or_one(a, 0)
    DEVICE.matmul(a, a.swapaxes(2, 3), 0)
    DEVICE.sum(a, (1, 2, 3), 0)
    assert np.array_equal(a, kept)
