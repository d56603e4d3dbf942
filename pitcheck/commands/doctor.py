"""``pitcheck doctor``: what is installed, whether a GPU answers, whether arithmetic is exact."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from pitcheck import __version__
from pitcheck.algebra.backend import array_module, to_host
from pitcheck.algebra.residues.backend_residues import arithmetic
from pitcheck.algebra.residues.chains import Chain, chains_of
from pitcheck.algebra.residues.modular import Modular
from pitcheck.errors import UsageError
from pitcheck.report.destinations import print_bytes

PACKAGES = (
    "numpy",
    "galois",
    "mpmath",
    "gmpy2",
    "networkx",
    "msgspec",
    "zstandard",
    "click",
    "rich",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "torch",
    "jax",
)
INEXACT = 2
TERMS = (1, 8, 9, 64, 65, 192, 193, 352, 353, 1000)
"""Numbers of terms on both sides of every bound at which a matrix product changes its method."""

_ROWS = 3
_SEED = 20


def run() -> int:
    """Print the findings; return 2 if arithmetic is not exact, else 0."""
    lines = [
        f"pitcheck {__version__}",
        f"Python {platform.python_version()} on {platform.platform()}",
    ]
    lines += [f"{package:<14} {_version(package)}" for package in PACKAGES]
    lines.append(f"{'GPU':<14} {_gpu()}")
    exact = True
    for name, answer in _self_tests():
        lines.append(
            f"{name:<14} "
            + ("exact" if answer else "NOT EXACT: do not trust any verdict of this installation")
        )
        exact = exact and answer
    print_bytes("".join(f"{line}\n" for line in lines).encode("utf-8"))
    return 0 if exact else INEXACT


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _gpu() -> str:
    try:
        cupy = array_module("cupy")
    except UsageError as error:
        return f"not used: {error}"
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return f"{properties['name'].decode()}, {properties['totalGlobalMem'] >> 30} GiB"


def _self_tests() -> Iterator[tuple[str, bool]]:
    chain = chains_of(3)[0]
    yield "NumPy", matmul_is_exact(np, chain)
    yield "galois", galois_agrees(chain)
    try:
        cupy = array_module("cupy")
    except UsageError:
        return
    yield "CuPy", matmul_is_exact(cupy, chain)


def operands(chain: Chain, terms: int) -> tuple[Any, Any]:
    """Return two random matrices of residues per prime, (levels, 3, terms) and (levels, terms, 3).

    Some residues are at the extremes (p - 1)/2 and p - 1.
    """
    generator = np.random.default_rng(_SEED)
    lefts, rights = [], []
    for p in chain.primes:
        left, right = generator.integers(0, p, size=(2, _ROWS, terms))
        left[0], left[1], right[0], right[1] = (p - 1) // 2, p - 1, (p - 1) // 2, (p + 1) // 2
        lefts.append(left)
        rights.append(right.T)
    return np.stack(lefts), np.stack(rights)


def matmul_is_exact(xp: Any, chain: Chain) -> bool:
    """Return True if modular matrix products equal those of Python's integers.

    They are compared at every number of terms in TERMS and every prime of the chain.
    """
    return all(_product_is_exact(xp, chain, terms) for terms in TERMS)


def _product_is_exact(xp: Any, chain: Chain, terms: int) -> bool:
    left, right = operands(chain, terms)
    found = to_host(xp, arithmetic(xp, chain).matmul(xp.asarray(left), xp.asarray(right), 0))
    for level, p in enumerate(chain.primes):
        columns = list(zip(*right[level].tolist(), strict=True))
        expected = [
            [sum(x * y for x, y in zip(row, column, strict=True)) % p for column in columns]
            for row in left[level].tolist()
        ]
        if found[level].tolist() != expected:
            return False
    return True


def galois_agrees(chain: Chain) -> bool:
    """Return True if modular matrix products equal those of galois, another implementation."""
    from galois import GF  # noqa: PLC0415  half a second to import

    left, right = operands(chain, TERMS[2])
    found = Modular(np, chain).matmul(left, right, 0)
    for level, p in enumerate(chain.primes):
        field = GF(p)
        if not np.array_equal(np.asarray(field(left[level]) @ field(right[level])), found[level]):
            return False
    return True
