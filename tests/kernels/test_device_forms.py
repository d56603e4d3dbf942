"""Hashes, order, comparison and special codes on kernels of the host: NumPy's, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels.device_samples import DEVICE, EXTREMES, NUMPY, PRIMES, XP, edges, same, views

from kernels import host_kernels
from pitcheck.algebra.device.device_modular import DeviceModular
from pitcheck.algebra.device.kernels import primes_struct
from pitcheck.algebra.keyed import SHORT
from pitcheck.algebra.residues.chains import chains_of
from pitcheck.algebra.residues.modular import Modular

pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason=host_kernels.MISSING)


def test_comparison_at_all_levels() -> None:
    for name, a in views(3).items():
        b = a.copy()
        b[..., 0] = (b[..., 0] + 1) % 3
        for x, y in ((a, b), (a, a[:, :1]), (a, a[..., :1])):
            for operation in ("equal", "differ"):
                found = getattr(DEVICE, operation)(x, y)
                assert same(found, getattr(NUMPY, operation)(x, y)), name
        zeroed = a * (np.arange(4) > 1)
        assert same(DEVICE.vanishes(zeroed), NUMPY.vanishes(zeroed)), name


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("axis", [0, 1, 3])
def test_concatenation(count: int, axis: int) -> None:
    own = [v for name, v in views(7).items() if v.shape == (4, 2, 3, 4)]
    arrays = [own[i % len(own)] for i in range(count)]
    arrays[-1] = np.take(arrays[-1], [1, 0, 1], axis=axis)
    arrays[0] = np.take(arrays[0], [], axis=axis) if count > 3 else arrays[0]
    for dtype in (np.int64, np.float64, np.uint64, np.uint8, np.bool_, np.int32):
        given_arrays = [x.astype(dtype, order="K") for x in arrays]
        expected = NUMPY.concatenate(given_arrays, axis)
        assert same(DEVICE.concatenate(given_arrays, axis), expected)
    mixed = [arrays[0], *(x.astype(np.uint8) for x in arrays[1:])]
    assert same(DEVICE.concatenate(mixed, axis), NUMPY.concatenate(mixed, axis))


@pytest.mark.parametrize("nan_first", [False, True])
def test_keys_of_order(nan_first: bool) -> None:
    codes = np.array([0, 1, 2, 3], dtype=np.uint8).reshape(1, 1, 1, 4)
    for level in range(4):
        top = edges((2, 3, 4), level)[level : level + 1]
        for special in (None, codes, np.broadcast_to(codes, top.shape), codes[..., :1]):
            found = DEVICE.order_key(top[..., ::-1], level, special, nan_first)
            assert same(found, NUMPY.order_key(top[..., ::-1], level, special, nan_first))


@pytest.mark.parametrize("low, stop", [(0, 1), (0, 2), (0, 4), (1, 4), (3, 4)])
def test_keyed_functions(low: int, stop: int) -> None:
    own = [v[: stop - low] for name, v in views(5, low).items() if name != "one level"]
    own[0] = own[0] * (np.arange(4) > 0)
    for x in own:
        for parity in (None, "odd", "even"):
            single: Any = (77, (0, 5) if x.shape[1] == 2 else (3,), [x], low, stop - low, parity)
            assert same(DEVICE.hashed(*single), NUMPY.hashed(*single))
    for arity in (2, 3, 4):
        several: Any = (2**64 - 1, (0, 2**40), own[:arity], low, stop - low)
        assert same(DEVICE.hashed(*several), NUMPY.hashed(*several))


def test_tables() -> None:
    own = [v for name, v in views(9).items() if name != "one level"]
    own[0] = own[0] * (np.arange(4) > 0)
    for x in own:
        trials = (0, 5) if x.shape[1] == 2 else (3,)
        for parity in (None, "odd", "even"):
            single: Any = (77, trials, [x], parity)
            assert same(DEVICE.entries(*single), NUMPY.entries(*single))
    for arity in (1, 2, 3, 4):
        for output in ("any", "nonzero", "words"):
            several: Any = (2**64 - 1, (3, 2**40), own[:arity], None, output)
            assert same(DEVICE.entries(*several), NUMPY.entries(*several))


def test_draws_of_whole_words() -> None:
    words = np.array(EXTREMES).reshape(1, 1, 2, 5)
    for trials in ((0,), (0, 1, 2)):
        options = (1, trials, [words], 0, 4)
        assert same(DEVICE.hashed(*options), NUMPY.hashed(*options))


@pytest.mark.parametrize("domain", ["any", "nonzero", "square"])
def test_words_as_residues(domain: str) -> None:
    near = [2**64 // q * q - 1 for p in PRIMES for q in (p, p - 1)]
    words = np.array([0, 1, 2**64 - 1, 2**63, *(p - 1 for p in PRIMES), *near], dtype=np.uint64)
    words = np.broadcast_to(words, (4, 1, 2, len(words)))
    assert same(DEVICE.residues_of(words, domain), NUMPY.residues_of(words, domain))


@pytest.mark.parametrize("begin", [0, 1, 2**40])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 4097])
def test_philox_is_that_of_numpy(count: int, begin: int) -> None:
    keys = np.array([[[0, 0], [2**64 - 1, 2**64 - 1]], [[1, 2], [2**63, 3]]], dtype=np.uint64)
    found = np.zeros((2, 2, count), dtype=np.uint64)
    if count:
        sizes = map(np.uint64, (2, 2, count, begin))
        philox = host_kernels.kernel("philox")
        philox((2, 2), (3,), (keys, found, *sizes, primes_struct(PRIMES), np.int32(3)))
    for place in np.ndindex(2, 2):
        expected = np.random.Philox(key=keys[place], counter=begin).random_raw(count)
        assert np.array_equal(found[place], expected)


@pytest.mark.parametrize("domain", ["any", "nonzero", "square"])
def test_draws(domain: str) -> None:
    for shape in ((3, 5), (), (0,), (SHORT // 2,), (101, SHORT // 100)):
        options = (("seed", "x"), (0, 7), 2, shape, domain)
        assert same(DEVICE.drawn(*options), NUMPY.drawn(*options))
    for count in (4, SHORT + 2):
        few, more = (DEVICE.drawn((1,), t, 1, (count,), "any") for t in ((7,), (0, 7)))
        assert np.array_equal(few[:, 0], more[:, 1])
        assert not np.array_equal(more[:, 0], more[:, 1])


@pytest.mark.parametrize("domain", ["any", "nonzero", "square"])
def test_rows_of_draws(domain: str) -> None:
    for shape in ((12, 5), (24, SHORT // 8), (4 * SHORT,), (9, SHORT // 4 + 1)):
        whole = NUMPY.drawn(("seed", "x"), (0, 7), 1, shape, domain)
        for rows in ((0, 4), (4, 8), (8, shape[0]), (3, 7), (0, shape[0])):
            for modular in (DEVICE, NUMPY):
                found = modular.drawn_rows(("seed", "x"), (0, 7), shape, rows, domain)
                assert same(found, whole[:, :, :, slice(*rows)])


def test_specials() -> None:
    codes = np.array([0, 1, 2, 3], dtype=np.uint8).reshape(1, 1, 1, 4)
    for name, a in views(4).items():
        if name == "one level":
            continue
        for x, low in ((a, 0), (a[1:3], 1), (a % 3, 0), (a * (np.arange(4) > 2), 0)):
            for special in (None, codes, np.broadcast_to(codes, (1, *x.shape[1:3], 4))):
                for operation, rest in (
                    ("stand_ins", ()),
                    ("signless", (2,)),
                    ("signless", (512,)),
                ):
                    options = (x, low, *rest, special)
                    expected = getattr(NUMPY, operation)(*options)
                    assert np.array_equal(getattr(DEVICE, operation)(*options), expected, True)
    small = np.array([-511, -1, 0, 511, 512, -512]).reshape(1, 1, 1, 6)
    device, modular = (
        kind(xp, chains_of(2)[0]) for kind, xp in ((DeviceModular, XP), (Modular, np))
    )
    known = device.signless(device.embed(small, 0, 2), 0, 512)
    assert known.ravel().tolist() == [False] * 4 + [True] * 2
    assert same(known, modular.signless(device.embed(small, 0, 2), 0, 512))


def test_codes_of_numbers() -> None:
    largest = np.finfo(np.float64).max
    finite = np.array([0.0, -0.0, largest, -largest, 5e-324]).reshape(1, 1, 1, 5)
    assert DEVICE.codes_of(finite) is None and DEVICE.codes_of(finite[..., :0]) is None
    every = np.concatenate([finite, np.array([[[[np.nan, np.inf, -np.inf]]]])], axis=3)
    for x in (every, every[..., ::-1], every.astype(np.float64).transpose(0, 3, 1, 2)):
        assert same(DEVICE.codes_of(x), NUMPY.codes_of(x))
