"""The oracle: the algebra of residues with its arithmetic done by the package galois.

Every sum, product, inverse and power is computed slowly and independently. Values, levels, specials
and formal logarithms are the same code as for residues; arithmetic modulo primes is not. Fresh
values are the same numbers.

>>> from fractions import Fraction
>>> from pitcheck.algebra.residues.chains import Chain
>>> algebra = GaloisAlgebra(Chain((11, 23)), seed=1, trials=(0,))
>>> algebra.constant(Fraction(1, 2)).data.reshape(-1).tolist()
[6, 12]
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pitcheck.algebra.backend import places_along
from pitcheck.algebra.residues.array_forms import ArrayForms
from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.exponential import GENERATOR, draw_exponents
from pitcheck.algebra.residues.prime import PrimeAlgebra
from pitcheck.errors import UnsupportedError


class _GaloisArithmetic(ArrayForms):
    """The operations of :class:`pitcheck.algebra.residues.modular.Modular` in galois' prime fields.

    They act level by level on arrays of shape (levels, trials, instances, ...).
    """

    def __init__(self, chain: Chain, seed: int, trials: Sequence[int]) -> None:
        galois = importlib.import_module("galois")
        super().__init__(np, chain.primes)
        self.chain = chain
        self.fields = [galois.GF(p) for p in chain.primes]
        self.exponents = draw_exponents(chain.primes, seed, trials)

    def _each(self, operation: Callable[..., Any], low: int, *arrays: Any) -> Any:
        """Apply ``operation`` in the field of every level to the arrays' entries of that level."""
        levels = []
        for i in range(arrays[0].shape[0]):
            field = self.fields[low + i]
            levels.append(
                np.asarray(
                    operation(*(field(np.array(a[i], dtype=np.int64)) for a in arrays)),
                    dtype=np.int64,
                )
            )
        return np.stack(levels)

    def add(self, a: Any, b: Any, low: int) -> Any:
        """Return a + b."""
        return self._each(lambda x, y: x + y, low, a, b)

    def subtract(self, a: Any, b: Any, low: int) -> Any:
        """Return a - b."""
        return self._each(lambda x, y: x - y, low, a, b)

    def negate(self, a: Any, low: int) -> Any:
        """Return -a."""
        return self._each(lambda x: -x, low, a)

    def multiply(self, a: Any, b: Any, low: int) -> Any:
        """Return a b."""
        return self._each(lambda x, y: x * y, low, a, b)

    def inverse(self, a: Any, low: int) -> Any:
        """Return 1/a for ``a`` without zeros."""
        return self._each(lambda x: x**-1, low, a)

    def power(self, a: Any, exponent: int, low: int) -> Any:
        """Return a^exponent."""
        return self._each(lambda x: x**exponent, low, a)

    def root(self, a: Any, low: int) -> Any:
        """Return x^((p+1)/4)."""
        roots = [
            self.power(a[i : i + 1], (self.chain.primes[low + i] + 1) // 4, low + i)
            for i in range(a.shape[0])
        ]
        return np.concatenate(roots)

    def sum(self, a: Any, axes: tuple[int, ...], low: int) -> Any:
        """Return the sum over array axes ``axes``."""
        return self._folded(np.add, a, axes, low)

    def product(self, a: Any, axis: int, low: int) -> Any:
        """Return the product along array axis ``axis``."""
        return self._folded(np.multiply, a, (axis,), low)

    def _folded(self, operation: Any, a: Any, axes: tuple[int, ...], low: int) -> Any:
        for axis in sorted(axes, reverse=True):
            a = self._each(lambda x, axis=axis: operation.reduce(x, axis=axis - 1), low, a)
        return a

    def matmul(self, a: Any, b: Any, low: int) -> Any:
        """Return the matrix product over the last two axes, as products and sums."""
        products = self.multiply(a[..., :, :, None], b[..., None, :, :], low)
        return self.sum(products, (products.ndim - 2,), low)

    def embed(self, integers: Any, low: int, count: int) -> Any:
        """Return integers as residues of ``count`` levels."""
        whole = [
            [int(v) % p for v in integers.reshape(-1)] for p in self.chain.primes[low : low + count]
        ]
        return np.array(whole, dtype=np.int64).reshape(count, *integers.shape[1:])

    def constant(self, numerator: int, denominator: int, low: int, count: int) -> Any:
        """Return a rational as residues, shape (count, 1, 1)."""
        fields = zip(
            self.fields[low : low + count], self.chain.primes[low : low + count], strict=True
        )
        return np.array(
            [int(f(numerator % p) / f(denominator % p)) for f, p in fields], dtype=np.int64
        ).reshape(count, 1, 1)

    def residues_of(self, words: Any, domain: str) -> Any:
        """Return uniform words as residues, by Python's integers."""
        levels = []
        for level, p in zip(words, self.chain.primes, strict=True):
            flat = [
                int(w) % p if domain == "any" else int(w) % (p - 1) + 1 for w in level.reshape(-1)
            ]
            levels.append(
                np.array(
                    [v * v % p if domain == "square" else v for v in flat], dtype=np.int64
                ).reshape(level.shape)
            )
        return np.stack(levels)

    def exp(self, x: Any, low: int) -> Any:
        """Return w^x, one level up."""
        levels = []
        for i in range(x.shape[0]):
            field, rows = self.fields[low + i + 1], self.exponents[low + i]
            full = np.broadcast_to(x[i], (len(rows), *x.shape[2:]))
            levels.append(
                np.stack(
                    [
                        np.asarray((field(GENERATOR) ** r) ** full[t], dtype=np.int64)
                        for t, r in enumerate(rows)
                    ]
                )
            )
        return np.stack(levels)

    def log(self, x: Any, low: int) -> Any:
        """Return logarithms of |x| to base w, one level down, by galois' own discrete logarithm."""
        levels = []
        for i in range(x.shape[0]):
            level = low + i
            rows = self.exponents[level - 1]
            full = np.broadcast_to(x[i], (len(rows), *x.shape[2:]))
            levels.append(np.stack([self._log_row(full[t], level, r) for t, r in enumerate(rows)]))
        return np.stack(levels)

    def _log_row(self, x: Any, level: int, exponent: int) -> Any:
        """Return log x / log w in the group of order q, where p = 2q + 1 and both logs are halved.

        Logs are to a primitive root g modulo p; |x| is x or -x, and -1 = g^q.
        """
        field, below = self.fields[level], self.fields[level - 1]
        order = below.order
        base = int((field(GENERATOR) ** exponent).log()) // 2
        halves = []
        for value in x.reshape(-1):
            found = int(field(int(value)).log())
            halves.append((found if found % 2 == 0 else (found + order) % (2 * order)) // 2 % order)
        result = below(np.array(halves, dtype=np.int64)) / below(base % order)
        return np.asarray(result, dtype=np.int64).reshape(x.shape)

    def add_at(self, base: Any, axis: int, index: Any, source: Any, low: int) -> Any:
        """Return ``base`` with ``source`` added at places, computed with Python's integers."""
        exact = base.astype(object)
        np.add.at(exact, places_along(np, base.shape, index, axis), source.astype(object))
        return np.stack(
            [(level % self.chain.primes[low + i]).astype(np.int64) for i, level in enumerate(exact)]
        )


class GaloisAlgebra(PrimeAlgebra):
    """Residues along ``chain`` for trial numbers ``trials``, computed by galois.

    Raises:
        UnsupportedError: if galois is not installed.
    """

    def __init__(self, chain: Chain, seed: int, trials: Sequence[int]) -> None:
        try:
            arithmetic = _GaloisArithmetic(chain, seed, trials)
        except ImportError as error:
            raise UnsupportedError(f"the oracle needs the package galois: {error}") from error
        super().__init__(np, chain, seed, trials, arithmetic)
