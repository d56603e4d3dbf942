"""Residues at the edges of their range, and the arithmetic of a GPU on kernels of the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from kernels.host_cupy import HostCupy

from pitcheck.algebra.device.device_modular import DeviceModular
from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.modular import Modular

Array = np.ndarray[Any, Any]

CHAIN = Chain((2147483647, 2147483629, 3, 101), linked=False)
"""The largest primes and the smallest: all kernels take them."""
PRIMES = CHAIN.primes
LOW = 1
XP = HostCupy()
DEVICE = DeviceModular(XP, CHAIN)
NUMPY = Modular(np, CHAIN)


def edges(shape: tuple[int, ...], seed: int, low: int = 0) -> Array:
    """Return residues (levels from low, *shape), half of them at the edges of their range."""
    generator = np.random.default_rng(seed)
    rows = []
    for p in PRIMES[low:]:
        pool = np.array([0, 1, 2, p - 1, p - 2, p // 2, p // 2 + 1, 1 << 30, 46340]) % p
        chosen = generator.choice(pool, shape)
        rows.append(
            np.where(generator.random(shape) < 0.5, chosen, generator.integers(0, p, shape))
        )
    return np.stack(rows).astype(np.int64)


def views(seed: int, low: int = 0) -> dict[str, Array]:
    """Return residues of shape (levels, 2, 3, 4), or broadcast to it, at many strides."""
    whole = edges((2, 3, 4), seed, low)
    return {
        "contiguous": whole,
        "transposed": edges((4, 3, 2), seed, low).transpose(0, 3, 2, 1),
        "backwards": whole[:, ::-1, :, ::-1],
        "every other": edges((4, 3, 8), seed, low)[:, ::2, :, ::2],
        "not aligned": edges((2 * 3 * 4 + 1,), seed, low)[:, 1:].reshape(-1, 2, 3, 4)[:, :],
        "one trial": edges((1, 3, 4), seed, low),
        "constant": edges((1, 1, 1), seed, low),
        "repeated": np.broadcast_to(edges((2, 1, 4), seed, low), whole.shape),
        "one level": edges((2, 3, 4), seed, low)[:1] % 3,
    }


def same(found: Array, expected: Array) -> bool:
    """Return True if arrays are equal in numbers, shape and dtype."""
    return bool(
        found.shape == expected.shape
        and found.dtype == expected.dtype
        and np.array_equal(found, expected)
    )


def by_integers(function: Callable[..., int], low: int, *arrays: Array) -> Array:
    """Return a function of a prime and Python's integers, modulo that prime."""
    full = np.broadcast_arrays(*arrays)
    result = np.empty(full[0].shape, dtype=np.int64)
    for place in np.ndindex(*result.shape):
        p = PRIMES[low + place[0]]
        result[place] = function(p, *(int(a[place]) for a in full)) % p
    return result


EXTREMES = [0, 1, -1, 2**31 - 1, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63), -(2**63) + 1]
