"""Ring operations on residues along a chain, on int64 arrays (levels, trials, instances, ...).

Products of two residues below 2^31 fit int64. A sum or difference is brought back into [0, p) by
the smaller of two unsigned readings: a number below 0 is huge as unsigned. Array operations are few
because most arrays are small, where every call counts.

>>> from pitcheck.algebra.residues.chains import Chain
>>> modular = Modular(np, Chain((11, 23)))
>>> a, b = np.array([[5], [5]]), np.array([[8], [20]])
>>> modular.add(a, b, low=0).tolist(), modular.multiply(a, b, low=0).tolist()
([[2], [2]], [[7], [8]])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pitcheck.algebra.backend import places_along, scatter_add
from pitcheck.algebra.keyed import remainder
from pitcheck.algebra.residues.array_forms import ArrayForms
from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.matmul import MatrixProduct


class Modular(ArrayForms):
    """Exact arithmetic modulo the members of one chain.

    ``low`` is the chain level of an array's first entry.
    """

    def __init__(self, xp: Any, chain: Chain) -> None:
        super().__init__(xp, chain.primes)
        self.chain = chain
        self.matrix_product = MatrixProduct(xp, self)
        self._primes: dict[tuple[int, int, int], Any] = {}

    def primes(self, low: int, count: int, ndim: int) -> Any:
        """Return the primes from level ``low``, shaped (count, 1, ..., 1) with ``ndim`` axes."""
        found = self._primes.get((low, count, ndim))
        if found is None:
            column = self.xp.asarray(self.chain.primes[low : low + count], dtype=np.int64)
            found = self._primes[low, count, ndim] = column.reshape((count,) + (1,) * (ndim - 1))
        return found

    def _of(self, array: Any, low: int) -> Any:
        return self.primes(low, array.shape[0], array.ndim)

    def reduce(self, t: Any, low: int) -> Any:
        """Return ``t`` modulo the primes, in [0, p), for any int64 ``t``; ``t`` is overwritten."""
        p = self._of(t, low)
        quotient = t // p
        quotient *= p
        t -= quotient
        return t

    def add(self, a: Any, b: Any, low: int) -> Any:
        """Return a + b."""
        total = a + b
        less = total - self._of(total, low)
        return self.xp.minimum(total.view(np.uint64), less.view(np.uint64)).view(np.int64)

    def subtract(self, a: Any, b: Any, low: int) -> Any:
        """Return a - b."""
        difference = a - b
        more = difference + self._of(difference, low)
        return self.xp.minimum(difference.view(np.uint64), more.view(np.uint64)).view(np.int64)

    def negate(self, a: Any, low: int) -> Any:
        """Return -a."""
        negative = -a
        more = negative + self._of(a, low)
        return self.xp.minimum(negative.view(np.uint64), more.view(np.uint64)).view(np.int64)

    def multiply(self, a: Any, b: Any, low: int) -> Any:
        """Return a b."""
        return self.reduce(a * b, low)

    def sum(self, a: Any, axes: tuple[int, ...], low: int) -> Any:
        """Return the sum over array axes ``axes``."""
        return self.reduce(a.sum(axis=axes), low)

    def matmul(self, a: Any, b: Any, low: int) -> Any:
        """Return the matrix product over the last two axes."""
        return self.matrix_product(a, b, low)

    def embed(self, integers: Any, low: int, count: int) -> Any:
        """Return integers of shape (1, ...) as residues of shape (count, ...)."""
        return self.reduce(self.xp.repeat(integers, count, axis=0), low)

    def constant(self, numerator: int, denominator: int, low: int, count: int) -> Any:
        """Return a rational as residues, shape (count, 1, 1); no prime divides the denominator."""
        residues = [
            numerator * pow(denominator, -1, p) % p for p in self.chain.primes[low : low + count]
        ]
        return self.xp.asarray(residues, dtype=np.int64).reshape(count, 1, 1)

    def residues_of(self, words: Any, domain: str) -> Any:
        """Return uniform 64-bit words of shape (all levels, ...) as residues of the same shape.

        By ``domain`` they are any ("any"), nonzero ("nonzero"), or squares of nonzero ones
        ("square").
        """
        p = self._of(words, 0).view(np.uint64)
        if domain == "any":
            return remainder(words, p).view(np.int64)
        one = np.uint64(1)
        nonzero = (remainder(words, p - one) + one).view(np.int64)
        return nonzero if domain == "nonzero" else self.multiply(nonzero, nonzero, 0)

    def power(self, a: Any, exponent: int, low: int) -> Any:
        """Return a^exponent for ``exponent >= 0``, by squaring."""
        result = self.xp.ones_like(a) if exponent == 0 else None
        square = a
        while exponent:
            if exponent & 1:
                result = square if result is None else self.multiply(result, square, low)
            exponent >>= 1
            if exponent:
                square = self.multiply(square, square, low)
        return result

    def root(self, a: Any, low: int) -> Any:
        """Return x^((p+1)/4).

        Along a chain that exponent doubles from level to level, so all levels share one power and
        some are squared on.
        """
        if not self.chain.linked:
            powers = [
                self.power(a[i : i + 1], (self.chain.primes[low + i] + 1) // 4, low + i)
                for i in range(a.shape[0])
            ]
            return self.xp.concatenate(powers)
        result = self.power(a, (self.chain.primes[low] + 1) // 4, low)
        for level in range(1, a.shape[0]):
            result = self.xp.concatenate(
                [result[:level], self.multiply(result[level:], result[level:], low + level)]
            )
        return result

    def product(self, a: Any, axis: int, low: int) -> Any:
        """Return the product along array axis ``axis``, which disappears; that of nothing is 1."""
        a = self.xp.moveaxis(a, axis, -1)
        if a.shape[-1] == 0:
            return self.xp.ones(a.shape[:-1], dtype=np.int64)
        while a.shape[-1] > 1:
            half = a.shape[-1] // 2
            paired = self.multiply(a[..., :half], a[..., half : 2 * half], low)
            a = (
                paired
                if a.shape[-1] == 2 * half
                else self.xp.concatenate([paired, a[..., -1:]], axis=-1)
            )
        return a[..., 0]

    def inverse(self, a: Any, low: int) -> Any:
        """Return 1/a for ``a`` without zeros.

        Pairs are multiplied up to a few products, those are inverted by Euclid, and the way goes
        down again (Montgomery's trick as a tree).
        """
        columns = a.reshape(a.shape[0], -1)
        return self._inverse_columns(columns, low).reshape(a.shape)

    def _inverse_columns(self, x: Any, low: int) -> Any:
        size = x.shape[1]
        if size <= 4:
            return self._inverse_few(x, low)
        half = size // 2
        left, right = x[:, :half], x[:, half : 2 * half]
        pairs = self.multiply(left, right, low)
        up = self._inverse_columns(
            pairs if size == 2 * half else self.xp.concatenate([pairs, x[:, -1:]], axis=1), low
        )
        parts = [
            self.multiply(up[:, :half], right, low),
            self.multiply(up[:, :half], left, low),
            up[:, half:],
        ]
        return self.xp.concatenate(parts, axis=1)

    def _inverse_few(self, x: Any, low: int) -> Any:
        rows: Sequence[Sequence[int]] = x.tolist()
        found = [
            [pow(v, -1, self.chain.primes[low + i]) for v in row] for i, row in enumerate(rows)
        ]
        return self.xp.asarray(found, dtype=np.int64).reshape(x.shape)

    def sum_of_products(self, a: Any, b: Any, axes: tuple[int, ...], low: int) -> Any:
        """Return the sum of a b over array axes ``axes``."""
        return self.sum(self.multiply(a, b, low), axes, low)

    def add_at(self, base: Any, axis: int, index: Any, source: Any, low: int) -> Any:
        """Return ``base`` with ``source`` added at places ``index`` along array axis ``axis``.

        Repeats add up, at most 2^32 of them. The other axes of ``source`` are those of ``base``,
        those of ``index`` broadcast to them. ``base`` is overwritten.
        """
        scatter_add(self.xp, base, places_along(self.xp, base.shape, index, axis), source)
        return self.reduce(base, low)
