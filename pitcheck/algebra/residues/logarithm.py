"""Discrete logarithms: log(x) at level i is the exponent r of |x| = w^r modulo P(i+1).

|x| is whichever of x and -x is a square. The squares modulo P(i+1) form a group of prime order
P(i), so log(x y) = log(x) + log(y) holds exactly, and log(-x) = log(x). The exponent is found by
baby steps and giant steps (Shanks 1971). Baby steps are sorted once per prime, giant steps of all
elements run together, and a table of bits spares most of them a search.

>>> import numpy as np
>>> from pitcheck.algebra.residues.chains import Chain
>>> logarithm = Logarithm(Modular(np, Chain((11, 23))))
>>> logarithm(np.array([[[pow(4, 7, 23)]]]), low=1, exponents=[[1]]).item()
7
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pitcheck.algebra.residues.exponential import GENERATOR
from pitcheck.algebra.residues.modular import Modular
from pitcheck.errors import UnsupportedError

_BABY_BITS = 17
_FILTER_BITS = 22
_BLOCK = 1 << 20
"""The giant steps looked at together: enough to be fast, few enough to stay in the cache."""


class _Steps:
    """The baby and giant steps for the squares modulo P(level), where level >= 1."""

    def __init__(self, modular: Modular, level: int) -> None:
        xp, prime = modular.xp, modular.chain.primes[level]
        order = (prime - 1) // 2
        baby = min(1 << _BABY_BITS, 1 << order.bit_length())
        powers = _powers(modular, GENERATOR, baby, level)
        self.places = xp.argsort(powers)
        self.sorted = powers[self.places]
        self.seen = xp.zeros(1 << _FILTER_BITS, dtype=np.bool_)
        self.seen[powers & ((1 << _FILTER_BITS) - 1)] = True
        count = -(-order // baby)
        self.giant = _powers(
            modular, pow(GENERATOR, -baby, prime), 1 << max(count - 1, 0).bit_length(), level
        )[:count]
        self.baby = baby
        self.order = order


def _powers(modular: Modular, base: int, count: int, level: int) -> Any:
    """Return base^0 .. base^(count-1) modulo the prime of ``level``; count is a power of two."""
    xp, prime = modular.xp, modular.chain.primes[level]
    table = xp.ones((1, 1), dtype=np.int64)
    while table.shape[1] < count:
        step = xp.asarray([[pow(base, table.shape[1], prime)]], dtype=np.int64)
        table = xp.concatenate([table, modular.multiply(table, step, level)], axis=1)
    return table[0]


class Logarithm:
    """Discrete logarithms along one chain; tables are made when first asked for, and kept."""

    def __init__(self, modular: Modular) -> None:
        self.modular = modular
        self._steps: dict[int, _Steps] = {}

    def __call__(self, x: Any, low: int, exponents: list[list[int]]) -> Any:
        """Return the logarithms of nonzero residues at levels low .. (all >= 1), one level down.

        ``x`` has shape (levels, trials or 1, ...), the result (levels, trials, ...).
        ``exponents[i][t]`` is r in w = 4^r, the base at level i+1.

        Raises:
            UnsupportedError: if ``low`` is 0: the lowest level has no logarithm.
        """
        xp, primes = self.modular.xp, self.modular.chain.primes
        if low < 1:
            raise UnsupportedError("the lowest level of a chain has no logarithm")
        trials = len(exponents[0])
        full = xp.broadcast_to(x, (x.shape[0], trials, *x.shape[2:]))
        results = []
        for i in range(x.shape[0]):
            level = low + i
            of_four = self._to_generator(full[i].reshape(-1), level).reshape(full.shape[1:])
            inverse = xp.asarray(
                [pow(r, -1, primes[level - 1]) for r in exponents[level - 1]], dtype=np.int64
            )
            results.append(
                self.modular.multiply(
                    of_four[None], inverse.reshape((1, trials) + (1,) * (x.ndim - 2)), level - 1
                )
            )
        return xp.concatenate(results)

    def _to_generator(self, x: Any, level: int) -> Any:
        """Return r in |x| = 4^r modulo the prime of ``level``, for x of shape (n,)."""
        xp, prime = self.modular.xp, self.modular.chain.primes[level]
        steps = self._steps.get(level)
        if steps is None:
            steps = self._steps[level] = _Steps(self.modular, level)
        # A search is dear, and trials of one draw have the same residues.
        different, places = xp.unique(x, return_inverse=True)
        is_square = self.modular.power(different[None], (prime - 1) // 2, level)[0] == 1
        left = xp.where(is_square, different, prime - different)
        result = xp.zeros(different.shape, dtype=np.int64)
        for start in range(0, len(different), max(1, _BLOCK // len(steps.giant))):
            rows = slice(start, start + max(1, _BLOCK // len(steps.giant)))
            result[rows] = self._search(left[rows], steps, level)
        return result[places.reshape(-1)]

    def _search(self, y: Any, steps: _Steps, level: int) -> Any:
        xp = self.modular.xp
        result = xp.zeros(y.shape, dtype=np.int64)
        moved = self.modular.multiply(y[None, :, None], steps.giant[None, None, :], level)[0]
        row, giant = xp.nonzero(steps.seen[moved & ((1 << _FILTER_BITS) - 1)])
        candidates = moved[row, giant]
        place = xp.minimum(xp.searchsorted(steps.sorted, candidates), len(steps.sorted) - 1)
        hit = steps.sorted[place] == candidates
        result[row[hit]] = (giant[hit] * steps.baby + steps.places[place[hit]]) % steps.order
        return result
