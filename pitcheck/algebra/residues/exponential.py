"""The exponential of a chain: exp(x) at level i+1 is w^(x at level i).

w has order P(i) modulo P(i+1). x + P(i) and x give the same power, so exp(a + b) = exp(a) exp(b)
holds exactly. Powers come from three tables of 2^11, 2^10 and 2^10 entries per trial and level, for
the digits of a 31-bit exponent. They stay in the first-level cache and cost next to nothing to
build, which larger tables do not.

>>> draw_exponents((11, 23), seed=1, trials=(0, 1)) == draw_exponents((11, 23), 1, (0, 1))
True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pitcheck.algebra.keyed import key_of
from pitcheck.algebra.residues.modular import Modular

GENERATOR = 4
"""A generator of the squares. 2^2 is a square other than 1 modulo every prime above 3, and the
squares modulo P(i+1) have the prime order P(i).
"""

DIGITS = (11, 10, 10)
"""The bits of the digits of an exponent, lowest first."""


class Exponential:
    """The exponential at all levels and for given trials.

    ``exponents[i][t]`` is r in w = 4^r modulo P(i+1), random for every level and trial number.
    """

    def __init__(self, modular: Modular, seed: int, trials: Sequence[int]) -> None:
        self.modular = modular
        self.exponents = draw_exponents(
            modular.chain.primes if modular.chain.linked else (), seed, trials
        )
        self._tables: list[Any] | None = None
        self._offsets: dict[int, Any] = {}

    def __call__(self, x: Any, low: int) -> Any:
        """Return the powers w^x of residues at levels low .., one level up.

        Shape (levels, trials or 1, ...) becomes (levels, trials, ...). All those levels must exist.
        """
        xp = self.modular.xp
        tables = self._tables = self._tables or self.tables(self.modular)
        levels, trials = len(self.exponents), len(self.exponents[0])
        lanes = xp.arange(levels * trials, dtype=np.int64).reshape(levels, trials)[
            low : low + x.shape[0]
        ]
        lanes = lanes.reshape(lanes.shape + (1,) * (x.ndim - 2))
        result, shift = None, 0
        for bits, table in zip(DIGITS, tables, strict=True):
            digit = (x >> shift) & ((1 << bits) - 1)
            factor = table.take(digit + (lanes << bits))
            result = factor if result is None else self.modular.multiply(result, factor, low + 1)
            shift += bits
        return result

    def tables(self, modular: Modular) -> list[Any]:
        """Return tables of shape (levels, trials, 2^bits), flattened, one for each digit.

        Those of trials with the same exponents are computed once.
        """
        xp, primes = modular.xp, modular.chain.primes
        columns = list(zip(*self.exponents, strict=True))
        distinct = {column: number for number, column in enumerate(dict.fromkeys(columns))}
        places = xp.asarray([distinct[column] for column in columns], dtype=np.int64)
        tables, shift = [], 0
        for bits in DIGITS:
            base = [
                [pow(GENERATOR, column[level] << shift, p) for column in distinct]
                for level, p in enumerate(primes[1:])
            ]
            step = xp.asarray(base, dtype=np.int64)[:, :, None]
            table = xp.ones_like(step)
            for _ in range(bits):
                table = xp.concatenate([table, modular.multiply(table, step, 1)], axis=2)
                step = modular.multiply(step, step, 1)
            tables.append(table[:, places].reshape(-1))
            shift += bits
        return tables


def draw_exponents(primes: Sequence[int], seed: int, trials: Sequence[int]) -> list[list[int]]:
    """Return r per level i (of P(i) -> P(i+1)) and trial, uniform in [1, P(i))."""
    distinct = dict.fromkeys(trials)
    drawn = [
        {trial: 1 + key_of(seed, "base of exp", level, trial) % (p - 1) for trial in distinct}
        for level, p in enumerate(primes[:-1])
    ]
    return [[row[trial] for trial in trials] for row in drawn]
